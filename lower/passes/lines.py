"""Long vector loops that store past the caches run line by line, where rows begin amid lines.

    for j in 0 .. 1023 vector: y[i, j] = S(j)
        ==>     let j.head = i % 16:                     (-1023*i: the cells up to the next line)
                    prefetch y[i, 1022]
                    for j in 0 .. 16 vector: if j >= 16 - j.head: y[i, j.head - 16 + j] = S(...)
                    for j.line in 0 .. (1023 - j.head) // 16:
                        for j in 0 .. 16 vector: y[i, j.head + 16*j.line + j] = S(...)
                    for j in 0 .. 16 vector: if j < (1023 - j.head) % 16: the rest

Only whole lines can be stored past the caches; a row of other vectors would mix both kinds of
stores, which is far slower than either. No vector reaches into the next line, masked off or not,
and a line that is stored in parts is brought near before: other stores would wait behind it.
Memory is taken to start where a line does, as results of ours do; elsewhere stores find that they
are not aligned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...algo.tensor_expr.affine import bounds, linear, normalize
from ...algo.tensor_expr.build import add, compare, const, floordiv, mod, mul, sub
from ...algo.tensor_expr.expr import Access, Expr, Index, accesses, indices_of
from ...algo.tensor_expr.expr import substitute as replaced
from ..ir import (
    Buffer,
    For,
    If,
    Let,
    Prefetch,
    Stmt,
    Store,
    Update,
    block,
    expressions,
    substitute,
    walk,
)
from ..lanes import Scope, step
from ..ranges import span

LINE = 64
"""Bytes."""
SHORTEST = 16
"""Lines of a loop, of which two are stored in two parts."""


@dataclass(frozen=True, slots=True)
class _Long:
    """A store of a long row that begins amid a line; how many cells, after how many in memory."""

    store: Store
    count: Expr
    first: Expr


def stored_plainly(loop: For, scope: Scope) -> str | None:
    """The buffer that a loop in lines is not worth streaming: it updates memory beside.

    Lines of that, read and written, would be crossed, which costs more than the stores save.
    """
    found = _amid(loop, scope)
    beside = (item for item in walk(loop.body) if isinstance(item, Update))
    along = (step(scope.buffers[item.buffer], item.index, loop.var) != 0 for item in beside)
    return found.store.buffer if found is not None and any(along) else None


def lines(loop: For, scope: Scope) -> Stmt | None:
    """The loop in lines; None where it streams nothing, or each iteration starts with a line."""
    found = _amid(loop, scope)
    if found is None:
        return None
    store, count = found.store, found.count
    cells = LINE // scope.buffers[store.buffer].dtype.itemsize
    var, line, head = Index(loop.var), Index(f"{loop.var}.line"), Index(f"{loop.var}.head")
    whole = const(cells)

    def vector(start: Expr, cond: Expr | None = None) -> Stmt:
        body = substitute(loop.body, {var: add(loop.lo, add(start, var))})
        return For(
            loop.var, const(0), whole, body if cond is None else If(cond, body), "vector"
        )  # fmt: skip

    full = floordiv(sub(count, head), whole)
    done = add(head, mul(full, whole))
    last: dict[Expr, Expr] = {var: sub(loop.hi, const(1))}
    parts = block(
        Prefetch(Access(store.buffer, tuple(replaced(index, last) for index in store.index))),
        vector(sub(head, whole), compare("ge", var, sub(whole, head))),
        For(line.name, const(0), full, vector(add(head, mul(line, whole)))),
        vector(done, compare("lt", var, sub(count, done))),
    )
    return Let(head.name, normalize(mod(mul(const(-1), found.first), whole), scope.known), parts)


def _amid(loop: For, scope: Scope) -> _Long | None:
    store = _streamed(loop, scope)
    if store is None:
        return None
    buffer, count = scope.buffers[store.buffer], normalize(span(loop), scope.known)
    cells = LINE // buffer.dtype.itemsize
    start: dict[Expr, Expr] = {Index(loop.var): loop.lo}
    index = tuple(replaced(index, start) for index in store.index)
    first = normalize(place(index, buffer), scope.known)
    form = linear(first)
    if form is None or all(n % cells == 0 for n in (form.const, *form.terms.values())):
        return None
    if (bounds(count, scope.known)[0] or 0) < SHORTEST * cells:
        return None
    return _Long(store, count, first)


def _streamed(loop: For, scope: Scope) -> Store | None:
    """The first store past the caches, of a cell an iteration.

    None if the loop may not start anywhere: lanes of registers are fixed, and the order of a sum
    over lanes must not depend on where a row lies.
    """
    found = None
    bound = {item.var for item in walk(loop.body) if isinstance(item, (For, Let))}
    for item in walk(loop.body):
        cells = [cell for expr in expressions(item) for cell in accesses(expr)]
        if isinstance(item, (Store, Update)):
            cells.append(Access(item.buffer, item.index))
            if isinstance(item, Update) and loop.var not in _indices(item.index):
                return None
        for cell in cells:
            buffer = scope.buffers.get(cell.tensor)
            fixed = buffer is not None and buffer.scope == "register"
            if buffer is None or (fixed and loop.var in _indices(cell.indices)):
                return None
        if isinstance(item, Store) and found is None and scope.buffers[item.buffer].stream:
            one = step(scope.buffers[item.buffer], item.index, loop.var) == 1
            found = item if one and bound.isdisjoint(_indices(item.index)) else None
    return found


def _indices(exprs: Iterable[Expr]) -> set[str]:
    return {name for expr in exprs for name in indices_of(expr)}


def place(indices: Sequence[Expr], buffer: Buffer) -> Expr:
    """Cells of a buffer's memory before one of them."""
    total: Expr = const(0)
    for index, stride in zip(indices, buffer.strides, strict=True):
        factor = Index(stride) if isinstance(stride, str) else const(stride)
        total = add(total, mul(index, factor))
    return total
