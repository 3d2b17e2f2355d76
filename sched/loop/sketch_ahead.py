"""Rows that are found by data are brought near some iterations before they are added up.

    for t: for d: y[d] += w[at[t],d]   ==>   for t: prefetch w[at[t + 8]]; for d: y[d] += w[at[t],d]

The processor foresees rows that follow each other, not these. Eight rows on was best of 4, 8, 16
and 25 for rows of four cache lines (measured), and pays where a table is beyond the caches of a
core.
"""

from __future__ import annotations

import math

from ...algo.tensor_expr.expr import Access, Index, accesses, indices_of
from .access import Group
from .draft import Draft
from .machine import Machine
from .prefetch import Prefetch

AHEAD = 8


def bring_near(draft: Draft, group: Group, prefix: str, vector: str, machine: Machine) -> None:
    """Marks the loop of a reduction in which lanes run along rows that data choose."""
    for read in group.reads:
        size = math.prod(group.shapes[read.tensor]) * group.sizes[read.tensor]
        if size > machine.l2 and read.indices and read.indices[-1] is Index(vector):
            for index in _choosing(group, read):
                draft.attempt(Prefetch(read.tensor, prefix + index, AHEAD))


def _choosing(group: Group, read: Access) -> list[str]:
    """The reduction's innermost index by which data choose what is read, if any."""
    chosen = {name for part in read.indices if accesses(part) for name in indices_of(part)}
    return [index for index in group.reds if index in chosen][-1:]
