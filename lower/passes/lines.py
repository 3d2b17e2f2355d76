"""Long vector loops that store past the caches run line by line, where rows begin amid lines.

    for j in 0 .. 1023 vector: y[i, j] = S(j)
        ==>     let j.head = i % 16:                     (-1023*i: the cells up to the next line)
                    for j in 0 .. 16 vector: if j >= 16 - j.head: y[i, j.head - 16 + j] = S(...)
                    for j.line in 0 .. (1023 - j.head) // 16:
                        for j in 0 .. 16 vector: y[i, j.head + 16*j.line + j] = S(...)
                    for j in 0 .. 16 vector: if j < (1023 - j.head) % 16: the rest

Only whole lines can be stored past the caches; a row of other vectors would mix both kinds of
stores, which is far slower than either. No vector reaches into the next line, masked off or not.
Memory is taken to start where a line does, as results of ours do; elsewhere stores find that they
are not aligned.
"""

from __future__ import annotations

from ...algo.tensor_expr.affine import bounds, linear, normalize
from ...algo.tensor_expr.build import add, compare, const, floordiv, mod, mul, sub
from ...algo.tensor_expr.expr import Access, Expr, Index, accesses, indices_of
from ...algo.tensor_expr.expr import substitute as replaced
from ..ir import For, If, Let, Stmt, Store, Update, block, expressions, substitute, walk
from ..lanes import Scope, step
from ..ranges import span

LINE = 64
"""Bytes."""
SHORTEST = 16
"""Lines of a loop, of which two are stored in two parts."""


def lines(loop: For, scope: Scope) -> Stmt | None:
    """The loop in lines; None where it streams nothing, or each iteration starts with a line."""
    found = _first(loop, scope)
    count = normalize(span(loop), scope.known)
    if found is None or (bounds(count, scope.known)[0] or 0) < SHORTEST * found[1]:
        return None
    first, cells = found
    var, line, head = Index(loop.var), Index(f"{loop.var}.line"), Index(f"{loop.var}.head")
    whole = const(cells)

    def vector(start: Expr, cond: Expr | None = None) -> Stmt:
        body = substitute(loop.body, {var: add(loop.lo, add(start, var))})
        return For(
            loop.var, const(0), whole, body if cond is None else If(cond, body), "vector"
        )  # fmt: skip

    full = floordiv(sub(count, head), whole)
    done = add(head, mul(full, whole))
    parts = block(
        vector(sub(head, whole), compare("ge", var, sub(whole, head))),
        For(line.name, const(0), full, vector(add(head, mul(line, whole)))),
        vector(done, compare("lt", var, sub(count, done))),
    )
    return Let(head.name, normalize(mod(mul(const(-1), first), whole), scope.known), parts)


def _first(loop: For, scope: Scope) -> tuple[Expr, int] | None:
    """The first cell that is streamed to, counted in the buffer's memory, and the cells of a line.

    None if rows begin with lines, or if the loop may not start anywhere: lanes of registers are
    fixed, and the order of a sum over lanes must not depend on where a row lies.
    """
    found = None
    for item in walk(loop.body):
        cells = [cell for expr in expressions(item) for cell in accesses(expr)]
        if isinstance(item, (Store, Update)):
            cells.append(Access(item.buffer, item.index))
            moves = any(loop.var in indices_of(index) for index in item.index)
            if isinstance(item, Update) and not moves:
                return None
        for cell in cells:
            buffer = scope.buffers.get(cell.tensor)
            moves = any(loop.var in indices_of(index) for index in cell.indices)
            if buffer is None or (buffer.scope == "register" and moves):
                return None
        if isinstance(item, Store) and found is None:
            found = _place(loop, item, scope)
    return found


def _place(loop: For, item: Store, scope: Scope) -> tuple[Expr, int] | None:
    """The cell that a store streams to first, if that may lie within a line."""
    buffer = scope.buffers[item.buffer]
    if not buffer.stream or step(buffer, item.index, loop.var) != 1:
        return None
    cells = LINE // buffer.dtype.itemsize
    first: Expr = const(0)
    for index, stride in zip(item.index, buffer.strides, strict=True):
        if isinstance(stride, str):  # of a dynamic size
            return None
        first = add(first, mul(const(stride), index))
    first = normalize(replaced(first, {Index(loop.var): loop.lo}), scope.known)
    form = linear(first)
    if form is None or all(n % cells == 0 for n in (form.const, *form.terms.values())):
        return None
    return first, cells
