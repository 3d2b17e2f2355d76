"""The default schedule of nests in which memory runs across the lanes: transposes and scans."""

from __future__ import annotations

from ...algo.tensor_expr.expr import Index
from .access import Group
from .default_stream import large
from .machine import Machine
from .parallelism import worth_threads
from .sketch import Choice


def turning(group: Group, vector: str | None, lanes: int) -> tuple[str, str] | None:
    """The index to run in lanes and the one along which memory runs, if these are two.

    In lanes runs what the stores of a plain nest are contiguous in, and across the rows of a
    recurrence along them: rows are independent of each other.
    """
    if group.reds or group.solved:
        return None
    if group.main.carries:
        return _across_recurrence(group, lanes)
    if vector is None or group.store_stride(vector) != 1:
        return None
    for access in group.reads:
        if group.stride(access, vector) in (0, 1, None):
            continue
        for index in group.outs:
            if index != vector and group.stride(access, index) == 1 and group.extents[index] > 1:
                return vector, index
    return None


def _across_recurrence(group: Group, lanes: int) -> tuple[str, str] | None:
    values, carries = group.main.values, group.main.carries
    along = [v for v, carry in zip(values, carries, strict=False) if carry]
    if group.outs or not group.free or len(along) != 1 or not isinstance(along[0], Index):
        return None
    row, index = group.free[-1], along[0].name
    walks = [group.stride(a, index) for a in group.reads] + [group.store_stride(index)]
    across = [group.stride(a, row) for a in group.reads] + [group.store_stride(row)]
    if any(w not in (0, 1) for w in walks) or None in across or group.store_stride(index) != 1:
        return None
    if Index(row) not in group.main.lhs:
        return None
    long = group.extents[row] >= lanes and group.extents[index] >= lanes
    return (row, index) if long else None


def turned_tiles(group: Group, vector: str, turned: str, lanes: int, machine: Machine) -> Choice:
    """Tiles that are turned in registers."""
    outer = None
    if worth_threads(group, lanes, machine):
        others = [i for i in (*group.free, *group.outs) if i not in (vector, turned)]
        enough = (i for i in others if group.extents[i] >= 2 * machine.threads)
        outer = next(enough, vector)
    stream = not group.main.carries and large(group, machine)
    return Choice(vector=vector, turned=turned, outer=outer, stream=stream)
