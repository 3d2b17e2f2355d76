"""The primitives of a recurrence in lanes across an index along which nothing is carried.

    for b: for i: for j: R[b,i,j] = f(R[b,i-1,j], R[b,i,j-1])
        ==>   parallel for bo: for i: for j: vector for bi: R[b,i,j] = ..

Temporaries of the nest are laid out with the lanes innermost.
"""

from __future__ import annotations

from collections.abc import Iterator

from .access import Group
from .draft import Draft
from .marks import Parallel, Vectorize
from .memory import Layout
from .reorder import Reorder
from .split import Split
from .tree import around_stmt, loop_named


def write_across(draft: Draft, group: Group, index: str, width: int, *, shared: bool) -> None:
    """Splits the index, puts its lanes innermost, and gives its blocks to threads."""
    whole = f"{group.name}.{index}"
    if not draft.has(whole):
        return
    lay = list(_layouts(draft, whole))
    outer, inner = f"{whole}o", f"{whole}i"
    if not draft.attempt(Split(whole, width)):
        return
    around = [loop.name for loop in around_stmt(draft.nest.tree, group.main.name)]
    order = (*(name for name in around if name != inner), inner)
    if draft.attempt(Reorder(order), Vectorize(inner)):
        for layout in lay:
            draft.attempt(layout)
    if shared:
        draft.attempt(Parallel(outer))


def _layouts(draft: Draft, loop: str) -> Iterator[Layout]:
    """Layouts of what is written under a loop, the dimension along which it writes innermost."""
    nest = draft.nest
    for name, value in loop_named(nest.tree, loop).values.items():
        stmt = nest.stmts[name]
        if value in stmt.lhs[:-1]:
            at = stmt.lhs.index(value)
            axes = [n for n in range(len(stmt.lhs)) if n != at]
            yield Layout(stmt.buffer, tuple(f"d{n}" for n in (*axes, at)))
