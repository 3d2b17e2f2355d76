"""The primitives of nests that run side by side, in the loops of the last of them.

    for i: for j: A(i,j)
    for i: for j: B(i,j)   ==>   for i: for j: { A(i,j); B(i,j) }

Loop by loop, from the outside: where one is not legal, those around it stay shared.
"""

from __future__ import annotations

from collections.abc import Sequence

from .access import Group
from .compute_with import ComputeWith
from .draft import Draft
from .names import index_of
from .tree import around_stmt


def write_beside(draft: Draft, groups: Sequence[Group], host: Group) -> None:
    """Puts nests that come before the host into its loops, each of which has those loops too.

    The nearest goes first, for what stands between two then runs after them.
    """
    last = _main(draft, host)
    for loop in around_stmt(draft.nest.tree, last):
        for group in reversed(groups):
            draft.attempt(ComputeWith(_main(draft, group), last, index_of(loop.name)))


def _main(draft: Draft, group: Group) -> str:
    """The statement that does the work of a nest; a reduction in blocks has one that goes first."""
    factored = f"{group.name}.rf.update"
    return factored if factored in draft.nest.stmts else group.main.name
