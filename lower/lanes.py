"""How wide vectors are in a piece of loop IR, and a walk that finds the vector loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..algo.dtypes import DType
from ..algo.tensor_expr.affine import Interval, linear
from ..algo.tensor_expr.expr import Access, Cast, Expr, Index, indices_of, walk
from ..sched.loop.machine import Machine
from .ir import (
    Alloc,
    Buffer,
    For,
    Function,
    Let,
    Stmt,
    Store,
    Update,
    allocated,
    expressions,
    rebuild,
)
from .ir import walk as statements
from .ranges import inside


@dataclass(frozen=True, slots=True)
class Scope:
    """The buffers that are visible at a statement, and what is known of the variables there."""

    buffers: Mapping[str, Buffer]
    known: Mapping[str, Interval]


def lanes(loop: For, buffers: Mapping[str, Buffer], machine: Machine) -> int:
    """Elements of the widest type in a vector loop that one vector register holds; a power of two.

    What is the same in all lanes, such as the number of a row that is read from memory, is not in
    vectors, and its type does not matter.
    """
    types: set[DType] = set()
    own = {buffer.name: buffer for buffer in allocated(loop.body)}
    within = {loop.var, *_bound(loop.body)}
    for stmt in statements(loop.body):
        at: tuple[Expr, ...] = ()
        if isinstance(stmt, (Store, Update)):
            types.add((own.get(stmt.buffer) or buffers[stmt.buffer]).dtype)
            at = stmt.index
        items = dict.fromkeys(item for expr in expressions(stmt) for item in walk(expr))
        reads = [item for item in items if isinstance(item, Access)]
        # An index has few bits where it may, whatever its type.
        places = (*at, *(index for read in reads for index in read.indices))
        indexing = {item for index in places for item in walk(index)}
        for item in items:
            if within.isdisjoint(indices_of(item)):
                continue
            if isinstance(item, Access):
                types.add((own.get(item.tensor) or buffers[item.tensor]).dtype)
            elif isinstance(item, Cast) and item not in indexing:
                types.add(item.dtype)
    count = machine.lanes(max((t.itemsize for t in types), default=8))
    return int(1 << (count.bit_length() - 1))


def _bound(body: Stmt) -> set[str]:
    """The variables that statements within bind."""
    return {item.var for item in statements(body) if isinstance(item, (For, Let))}


def step(buffer: Buffer, indices: Sequence[Expr], var: str) -> int | None:
    """Elements from a cell of a buffer to the next one along a variable; None if that varies."""
    total = 0
    for index, stride in zip(indices, buffer.strides, strict=True):
        form = linear(index)
        if form is None or form.inside(var) or buffer.bytewise:
            return None
        if times := form.of(Index(var)):
            if isinstance(stride, str):
                return None
            total += times * stride
    return total


def visit(function: Function, vector: Callable[[For, Scope], Stmt]) -> Function:
    """The function with each vector loop replaced by what `vector` makes of it."""

    def stmt(item: Stmt, scope: Scope) -> Stmt:
        if isinstance(item, For) and item.kind == "vector":
            return vector(item, scope)
        buffers = scope.buffers
        if isinstance(item, Alloc):
            buffers = {**buffers, **{buffer.name: buffer for buffer in item.buffers}}
        within = Scope(buffers, inside(item, scope.known))
        return rebuild(item, lambda inner: stmt(inner, within))

    params = {param.name: param for param in function.params}
    return Function(function.name, function.params, stmt(function.body, Scope(params, {})))
