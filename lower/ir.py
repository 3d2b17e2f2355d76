"""Loop IR: what code generation sees. Nine statements over the shared scalar expressions.

Here `Index` is a loop variable or a `Let`, of type i64; a `Const` without a dtype is an i64 too;
`Access` reads a buffer, by one index an axis; every other expression is typed, with explicit
casts. No name is bound within the scope of the same name; scopes that are disjoint may share one,
as the copies of an unrolled body do. Sizes are constants; a dynamic one is a parameter of rank 0,
`B.size`, and a `Let` at the top says what it is and its bounds: `Size` does not occur. Nodes are
interned. Blocks are flat (`block` makes them), so that a program has one spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ..algo.dtypes import DType
from ..algo.node import node
from ..algo.tensor_expr.expr import Const, Expr, Index
from ..algo.tensor_expr.expr import substitute as replace
from ..sched.loop.nest import PARALLEL


class Stmt:
    """The base of loop IR statements."""

    __slots__ = ()


@node
class Buffer:
    """`scope` is param, heap, stack, register, shared, local or tile; strides count elements.

    A register buffer is one that passes have promised to index by constants only, plus, on one
    axis, the variable of a vector loop whose `lo` is constant: an axis of stride 1, or in reads
    any, which are columns then. Along an axis of stride 1 reads may add a number of cells, of 0 to
    as many as there are lanes, to a multiple of the lanes: the vector there and the next one are
    turned then. All lanes lie inside the buffer, those masked off included, so a masked access may
    touch them. A tile is a register of the matrix unit. `align` is the
    alignment in bytes that the address of element 0 has for certain. Strides that are no multiples
    of the element's size, as of a field of packed records, count bytes instead: `bytewise`.
    Stores to a `stream` buffer go past the caches.

    Extents and strides of a parameter may depend on dynamic sizes. They are names of `Let`s then;
    `shape` is the most that extents can be, and `extents` says of all axes what they are.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int | str, ...]
    scope: str
    align: int = 1
    bytewise: bool = False
    stream: bool = False
    extents: tuple[int | str, ...] = ()


@node
class Block(Stmt):
    """Statements one after the other."""

    stmts: tuple[Stmt, ...]


@node
class For(Stmt):
    """for var in lo .. hi-1 by step: body.

    `kind`: serial; parallel (iterations in any order, on any thread, a share
    for each; dynamic: the next ones to whoever is free); unroll (a pass removes it);
    vector (iterations lo .. hi-1 at once in `lanes` lanes, a power of two that the target has;
    lanes from hi on are masked off); dot (products of the bytes or bf16 of a word, which may be
    added in any order, by one instruction); matrix (nested ones make a block of a product of
    matrices, which a pass cuts into instructions); or a GPU axis, block.x to thread.z. `separate`
    asks for a version of the code around with only full turns of a loop whose bound varies. What
    comes after an iteration that makes `until` true does nothing, and is left out if serial.
    """

    var: str
    lo: Expr
    hi: Expr
    body: Stmt
    kind: str = "serial"
    step: int = 1
    lanes: int = 1
    separate: bool = False
    until: Expr | None = None


@node
class If(Stmt):
    """if cond: then, else orelse."""

    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@node
class Let(Stmt):
    """A name for a value within `body`; as an index it needs no check, even if read from memory."""

    var: str
    value: Expr
    body: Stmt


@node
class Alloc(Stmt):
    """Buffers of one scope, uninitialised, that live within `body`; `allocate` makes them."""

    buffers: tuple[Buffer, ...]
    body: Stmt

    @property
    def scope(self) -> str:
        """Where all of them are."""
        return self.buffers[0].scope


@node
class Store(Stmt):
    """buffer[index] = value."""

    buffer: str
    index: tuple[Expr, ...]
    value: Expr


@node
class Update(Stmt):
    """buffer[index] = combine(buffer[index], value), `reducer` giving combine.

    Under a vector loop whose lanes share the cell, all lanes' values are combined into it. An
    `atomic` one may meet others on the cell that run at once.
    """

    buffer: str
    index: tuple[Expr, ...]
    reducer: str
    value: Expr
    atomic: bool = False


@node
class Prefetch(Stmt):
    """Brings a cell (an `Access`) near, for it will be read soon.

    The cell may lie outside of its buffer, for it is not read; what its index reads may not.
    """

    cell: Expr


@node
class Barrier(Stmt):
    """All threads of a GPU block meet."""


@node
class Function:
    """A kernel. `params` are its buffers in calling order: inputs read, then outputs."""

    name: str
    params: tuple[Buffer, ...]
    body: Stmt


T = TypeVar("T", Buffer, For)
KINDS = ("serial", *PARALLEL, "unroll", "vector", "dot", "matrix")
AXES = tuple(f"{level}.{axis}" for level in ("block", "thread") for axis in "xyz")


def block(*stmts: Stmt) -> Stmt:
    """Statements in order, nested blocks opened; one statement alone is itself."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Block) else (stmt,))
    return flat[0] if len(flat) == 1 else Block(tuple(flat))


def allocate(buffers: Iterable[Buffer], body: Stmt) -> Stmt:
    """`body` within the allocations of buffers: one statement for all of a scope, so that
    thousands of them are no deeper than one."""
    scopes: dict[str, list[Buffer]] = {}
    for buffer in buffers:
        scopes.setdefault(buffer.scope, []).append(buffer)
    for group in reversed(scopes.values()):
        body = Alloc(tuple(group), body)
    return body


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a dense array, the last axis fastest."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def variables(buffer: Buffer) -> tuple[str, ...]:
    """The names on which a buffer's extents and strides depend."""
    return tuple(n for n in (*buffer.strides, *buffer.extents) if isinstance(n, str))


def extents_of(buffer: Buffer) -> tuple[Expr, ...]:
    """The extents of a buffer, as expressions."""
    extents = buffer.extents or buffer.shape
    return tuple(Index(n) if isinstance(n, str) else Const(n) for n in extents)


def reach(buffer: Buffer) -> int:
    """The most by which an element can lie apart from element 0, in elements."""
    dense = contiguous(buffer.shape)  # what strides that vary can come to
    return sum(
        (n - 1) * (abs(s) if isinstance(s, int) else most)
        for n, s, most in zip(buffer.shape, buffer.strides, dense, strict=True)
    )


def children(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside a statement."""
    match stmt:
        case Block(stmts):
            return stmts
        case For(body=body) | Let(_, _, body) | Alloc(_, body):
            return (body,)
        case If(_, then, orelse):
            return (then,) if orelse is None else (then, orelse)
    return ()


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions directly in a statement (those of its children not)."""
    match stmt:
        case For(_, lo, hi, until=until):
            return (lo, hi) if until is None else (lo, hi, until)
        case If(cond, _, _):
            return (cond,)
        case Let(_, value, _):
            return (value,)
        case Store(_, index, value):
            return (*index, value)
        case Update(_, index, _, value):
            return (*index, value)
        case Prefetch(cell):
            return (cell,)
    return ()


def rebuild(
    stmt: Stmt, inner: Callable[[Stmt], Stmt], expr: Callable[[Expr], Expr] = lambda e: e
) -> Stmt:
    """The statement with `inner` applied to its children and `expr` to its own expressions."""
    match stmt:
        case Block(stmts):
            return block(*(inner(s) for s in stmts))
        case For(var, lo, hi, body, kind, step, lanes, separate, until):
            end = None if until is None else expr(until)
            return For(var, expr(lo), expr(hi), inner(body), kind, step, lanes, separate, end)
        case If(cond, then, orelse):
            return If(expr(cond), inner(then), None if orelse is None else inner(orelse))
        case Let(var, value, body):
            return Let(var, expr(value), inner(body))
        case Alloc(buffers, body):
            return Alloc(buffers, inner(body))
        case Store(buffer, index, value):
            return Store(buffer, tuple(expr(e) for e in index), expr(value))
        case Update(buffer, index, reducer, value, atomic):
            return Update(buffer, tuple(expr(e) for e in index), reducer, expr(value), atomic)
        case Prefetch(cell):
            return Prefetch(expr(cell))
    return stmt


def with_(item: T, **changes: Any) -> T:
    """The loop or buffer with some fields changed."""
    names: tuple[str, ...] = type(item).__match_args__
    return type(item)(**{**{name: getattr(item, name) for name in names}, **changes})


def allocated(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers that are allocated within a statement, in order."""
    for item in walk(stmt):
        if isinstance(item, Alloc):
            yield from item.buffers


def walk(stmt: Stmt) -> Iterator[Stmt]:
    """A statement and all within it, outer before inner, in order."""
    stack = [stmt]
    while stack:
        item = stack.pop()
        yield item
        stack.extend(reversed(children(item)))


def substitute(stmt: Stmt, values: Mapping[Expr, Expr]) -> Stmt:
    """The statement with expressions (variables, mostly) replaced by others, everywhere in it."""
    return rebuild(stmt, lambda s: substitute(s, values), lambda e: replace(e, values))
