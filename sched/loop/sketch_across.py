"""The primitives of a recurrence in lanes across an index along which nothing is carried.

    for b: for i: for j: R[b,i,j] = f(R[b,i-1,j], R[b,i,j-1])
        ==>   parallel for bo: for i: for j: vector for bi: R[b,i,j] = ..

Temporaries of the nest are laid out with the lanes innermost; of arguments and results, whose lanes
lie apart, a row of the innermost loop is copied before it, or after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...algo.tensor_expr.expr import Expr
from .access import Group
from .draft import Draft
from .extent import extent
from .marks import Parallel, Vectorize
from .memory import Layout
from .reorder import Reorder
from .split import Split
from .stage import Stage
from .storage import cells, touching
from .tree import around_stmt, loop_named


def write_across(
    draft: Draft, group: Group, index: str, width: int, cache: int, *, shared: bool
) -> None:
    """Splits the index, puts its lanes innermost, and gives its blocks to threads; rows are copied
    where they fit the `cache`."""
    whole = f"{group.name}.{index}"
    if not draft.has(whole):
        return
    lay, apart = list(_layouts(draft, whole)), list(_apart(draft, whole))
    outer, inner = f"{whole}o", f"{whole}i"
    if not draft.attempt(Split(whole, width)):
        return
    around = [loop.name for loop in around_stmt(draft.nest.tree, group.main.name)]
    order = (*(name for name in around if name != inner), inner)
    if draft.attempt(Reorder(order), Vectorize(inner)):
        for layout in lay:
            draft.attempt(layout)
        if len(order) > 3:
            _copy_rows(draft, order[-3], order[-2], width, apart, cache)
    if shared:
        draft.attempt(Parallel(outer))


def _layouts(draft: Draft, loop: str) -> Iterator[Layout]:
    """Layouts of what is written under a loop, the dimension along which it writes innermost."""
    nest = draft.nest
    for name, value in loop_named(nest.tree, loop).values.items():
        stmt = nest.stmts[name]
        if value in stmt.lhs[:-1]:
            yield Layout(stmt.buffer, _innermost(stmt.lhs, value))


def _apart(draft: Draft, loop: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Arguments and results of which an iteration touches several elements that lie apart along a
    loop, and layouts in which they do not."""
    nest, values = draft.nest, loop_named(draft.nest.tree, loop).values
    for buffer, users in touching(nest).items():
        touched = {
            (cell, value)
            for name, value in values.items()
            if name in users
            for cell in cells(nest.stmts[name], buffer)
            if value in cell[:-1]
        }
        layouts = {_innermost(cell, value) for cell, value in touched}
        if nest.buffers[buffer].scope == "param" and len(touched) > 1 and len(layouts) == 1:
            yield nest.buffers[buffer].tensor, layouts.pop()


def _innermost(cell: tuple[Expr, ...], value: Expr) -> tuple[str, ...]:
    """The layout that has the dimension of a cell with this coordinate innermost."""
    at = cell.index(value)
    return tuple(f"d{n}" for n in (*(n for n in range(len(cell)) if n != at), at))


def _copy_rows(
    draft: Draft,
    at: str,
    row: str,
    width: int,
    apart: list[tuple[str, tuple[str, ...]]],
    cache: int,
) -> None:
    """Copies rows of what lies apart, lanes innermost, in each iteration of the loop around."""
    long = extent(draft.nest, loop_named(draft.nest.tree, row))
    sizes = [draft.kernel.tensors[tensor].dtype.itemsize for tensor, _ in apart]
    if long is None or 2 * math.prod((long, width)) * sum(sizes) > cache:
        return
    for tensor, layout in apart:
        draft.attempt(Stage(tensor, at, "heap", layout))
