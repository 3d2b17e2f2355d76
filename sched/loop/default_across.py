"""Recurrences in lanes: across an index along which nothing is carried, such as that of a batch.

An instance waits for the one before it, so that one after the other leaves the machine idle; those
of different elements of a batch are independent.
"""

from __future__ import annotations

from ...algo.tensor_expr.expr import Index
from .access import Group
from .machine import Machine
from .parallelism import worth_threads
from .sketch import Choice

WORTH_A_GATHER = 8.0
"""Additions of each instance that pay for an access across the lanes."""


def across(group: Group, temps: set[str], lanes: int, machine: Machine) -> Choice | None:
    """Lanes across the last index that carries nothing, if there are enough of its iterations and
    enough to compute in each."""
    if not group.free or group.outs or group.reds or group.fold is not None:
        return None
    index = group.free[-1]
    if group.extents[index] < lanes or Index(index) not in group.main.values:
        return None
    walks = [(a.tensor, group.stride(a, index)) for a in group.reads]
    walks.append((group.main.tensor, group.store_stride(index)))
    apart = sum(stride not in (0, 1) for tensor, stride in walks if tensor not in temps)
    if Index(index) not in group.main.lhs or group.cost < WORTH_A_GATHER * apart:
        return None
    outer = index if worth_threads(group, lanes, machine) else None
    return Choice(vector=index, vectors=1, outer=outer)
