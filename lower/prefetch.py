"""Prefetches: the cells that a statement will read some iterations of a loop later.

    for k in 0 .. n: y[k] = x[k]   ==>   for k in 0 .. n:
                                             prefetch x[min(k + 8, n - 1)]
                                             y[k] = x[k]

The loop's variable stops at its last value. Where an index is read from memory, every index on the
way is clamped to its buffer, so that prefetching reads nothing that is not there. Where such a
buffer is empty nothing is prefetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..algo.tensor_expr.affine import linear
from ..algo.tensor_expr.build import add, compare, const, maximum, minimum, mod, sub
from ..algo.tensor_expr.expr import Access, Expr, Index, accesses, substitute, transform
from . import ir

LINE = 64
"""Bytes of a cache line."""


def prefetches(
    stmt: ir.Stmt,
    loops: Sequence[ir.For],
    ahead: Mapping[str, Sequence[tuple[str, int]]],
    buffers: Mapping[str, ir.Buffer],
) -> Iterator[ir.Stmt]:
    """What goes before a statement under `loops`, outermost first.

    `ahead` gives the buffers that each loop prefetches, with the distances.
    """
    for depth, loop in enumerate(loops):
        for name, distance in ahead[loop.var]:
            read = [cell for expr in ir.expressions(stmt) for cell in accesses(expr)]
            for cell in dict.fromkeys(read):
                if cell.tensor == name and not _leads_nowhere(cell, buffers):
                    made = ir.Prefetch(_later(cell, loop, distance, buffers))
                    innermost = depth == len(loops) - 1
                    yield _once_a_line(made, cell, loop, buffers[name]) if innermost else made


def _later(cell: Access, loop: ir.For, distance: int, buffers: Mapping[str, ir.Buffer]) -> Access:
    """The cell, so many turns of the loop later."""
    var, last = Index(loop.var), sub(loop.hi, const(1))
    values: dict[Expr, Expr] = {var: minimum(add(var, const(distance * loop.step)), last)}

    def clamped(item: Expr) -> Expr:
        if not isinstance(item, Access):
            return item
        extents = ir.extents_of(buffers[item.tensor])
        return Access(item.tensor, tuple(map(_clamp, item.indices, extents)))

    def index(old: Expr, extent: Expr) -> Expr:
        new = transform(substitute(old, values), clamped)
        return _clamp(new, extent) if accesses(new) else new

    extents = ir.extents_of(buffers[cell.tensor])
    return Access(cell.tensor, tuple(map(index, cell.indices, extents)))


def _leads_nowhere(cell: Access, buffers: Mapping[str, ir.Buffer]) -> bool:
    """Is an index of a cell read from a buffer without elements, as under a condition may stand?"""
    return any(0 in buffers[a.tensor].shape for index in cell.indices for a in accesses(index))


def _clamp(index: Expr, extent: Expr) -> Expr:
    return maximum(const(0), minimum(index, sub(extent, const(1))))


def _once_a_line(made: ir.Stmt, cell: Access, loop: ir.For, buffer: ir.Buffer) -> ir.Stmt:
    """The prefetch in one of so many turns, where turns go through neighbouring elements."""
    each = LINE // buffer.dtype.itemsize
    var = Index(loop.var)
    if loop.kind != "serial" or loop.step != 1 or not cell.indices or each < 2:
        return made
    steps = 0
    for index, stride in zip(cell.indices, buffer.strides, strict=True):
        form = linear(index)
        if form is None or form.inside(loop.var) or isinstance(stride, str):
            return made
        steps += form.of(var) * stride
    if abs(steps) != 1:
        return made
    return ir.If(compare("eq", mod(sub(var, loop.lo), const(each)), const(0)), made)
