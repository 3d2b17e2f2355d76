"""The default schedule: an analytic model chooses a sketch in milliseconds.

It looks at strides (which index runs contiguously through most of what is touched), at reuse
(which second index would share what is loaded), at register and cache capacity, and at how much
work there is to give to threads. Whatever it chooses is checked like a user's schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...algo.dtypes import DType
from ...algo.tensor_expr.check import check
from ...algo.tensor_expr.expr import Access, Index, accesses
from ...algo.tensor_expr.op import Kernel, Op
from ...algo.tensor_expr.stages import kernel
from .access import Group, groups
from .default_across import across
from .default_contract import contraction
from .default_join import blocked
from .default_strip import strips
from .machine import Machine
from .parallelism import chunk_of, shared_loop, worth_threads
from .schedule import Schedule
from .sketch import Choice, Sketch, build


def default(
    op: Op, dtypes: Mapping[str, DType] | None, sizes: Mapping[str, int], machine: Machine
) -> Schedule:
    """The default schedule of an operator at sizes, on a machine.

    Dynamic sizes that are not among them stay symbols, and it is chosen for the most they can be.
    """
    return build(op, dtypes, sizes, choose(op, dtypes, sizes, machine), machine)


def choose(
    op: Op, dtypes: Mapping[str, DType] | None, sizes: Mapping[str, int], machine: Machine
) -> Sketch:
    """The sketch of the default schedule."""
    made = kernel(check(op), dtypes or {}, {**op.maxima, **sizes})
    found = groups(made)
    temps = {t.name for t in made.tensors.values() if t.role == "temp"}
    lanes = {g.name: _lanes(made, g, machine) for g in found}
    crossed = {g.name: c for g in found if (c := across(g, temps, lanes[g.name], machine))}
    strip = strips(found, temps, min(lanes.values(), default=1), machine)
    if strip is not None:
        return Sketch(strip)
    joins = _joins(found, temps)
    choices = {g.name: _choose(g, joins.get(g.name), lanes[g.name], machine) for g in found}
    choices |= crossed
    return Sketch(blocked(found, choices, lanes, machine) if joins else choices)


def _lanes(made: Kernel, group: Group, machine: Machine) -> int:
    """Elements of the widest type that the group touches in one vector."""
    names = (group.main.tensor, *(a.tensor for a in group.reads))
    return machine.lanes(max(made.tensors[name].dtype.itemsize for name in names))


def _choose(group: Group, join: tuple[str, str] | None, lanes: int, machine: Machine) -> Choice:
    if group.fold is not None:
        return _combining(group, join, lanes, machine)
    merge = () if join or group.reds else _merge(group, lanes)
    if merge:
        return _walk(group, merge, lanes, machine)
    if group.solved and join is None:
        return Choice(outer=shared_loop(group, None, 1, machine), solved=group.solved)
    if join is None and _shares(group):
        found = contraction(group, lanes, machine)
        if found is not None:
            return found
    vector = _vector(group, lanes)
    if vector is None:
        return Choice(outer=None if join else shared_loop(group, None, 1, machine), join=join)
    if join is not None:
        return Choice(vector=vector, join=join)
    tile, vectors = ((), 0) if group.reds else _transposing_tile(group, vector, lanes)
    outer = shared_loop(group, vector, lanes, machine)
    if outer is None and worth_threads(group, lanes, machine) and vector in group.outs and not tile:
        chunk = chunk_of(group.extents[vector], machine)
        return Choice(vector=vector, outer=vector, chunk=chunk)
    return Choice(vector=vector, vectors=vectors, tile=tile, outer=outer)


def _shares(group: Group) -> bool:
    """Is it a reduction in which what is loaded serves several cells?"""
    pairs = [(a, i) for a in group.reads for i in group.outs if group.extents[i] > 1]
    return bool(group.reds) and any(group.stride(a, i) == 0 for a, i in pairs)


def _combining(group: Group, join: tuple[str, str] | None, lanes: int, machine: Machine) -> Choice:
    """A fold keeps the order of its instances: lanes go along an index of its widest component."""
    own = [i for i in group.reds if Index(i) in group.main.lhs and group.extents[i] > 1]
    vector = own[-1] if own else None
    outer = None if join else shared_loop(group, None, lanes if own else 1, machine)
    return Choice(vector=vector, outer=outer, join=join)


def _merge(group: Group, lanes: int) -> tuple[str, ...]:
    """Innermost indices to make one loop of, so that short ones fill vectors."""
    merged = list(group.outs[-1:])
    extent = group.extents[merged[0]] if merged else 0
    for outer in reversed(group.outs[:-1]):
        if extent >= 8 * lanes or not group.collapse(outer, merged[-1], extent):
            break
        merged.insert(0, outer)
        extent *= group.extents[outer]
    return tuple(merged) if len(merged) > 1 else ()


def _walk(group: Group, merge: tuple[str, ...], lanes: int, machine: Machine) -> Choice:
    """A nest whose innermost indices are one walk through memory, run in lanes."""
    vector = "_".join(merge)
    outer = next((i for i in group.outs if i not in merge and group.extents[i] > 1), None)
    if not worth_threads(group, lanes, machine):
        return Choice(vector=vector, merge=merge)
    if outer is not None:
        return Choice(vector=vector, merge=merge, outer=outer)
    extent = math.prod(group.extents[i] for i in merge)
    return Choice(vector=vector, merge=merge, outer=vector, chunk=chunk_of(extent, machine))


def _vector(group: Group, lanes: int) -> str | None:
    """The index to run in lanes: the one whose accesses are cheapest for a vector of work."""

    def price(stride: int | None) -> float:
        if stride == 0:
            return 0.25
        return 1.0 if stride == 1 else float(lanes)

    best, cheapest = None, float("inf")
    for index in (*reversed(group.outs), *reversed(group.reds)):
        extent = group.extents[index]
        if extent < 2:
            continue
        cost = sum(price(group.stride(a, index)) for a in group.reads)
        store = group.store_stride(index)
        if index in group.outs:
            cost += price(store) if store != 0 else float(lanes)
        else:
            cost += 1.0 + 4.0 * lanes / extent  # the lanes are combined at the end
        full = -(-extent // lanes) * lanes
        cost *= full / extent
        if cost < 0.9 * cheapest:
            best, cheapest = index, cost
    scalar = lanes * (1.0 + len(group.reads))
    return best if cheapest < scalar else None


def _transposing_tile(
    group: Group, vector: str, lanes: int
) -> tuple[tuple[tuple[str, int], ...], int]:
    """Where a read jumps along the lanes and is contiguous along another index, a block of that
    index makes use of the whole of every cache line it touches."""
    for access in group.reads:
        if group.stride(access, vector) not in (0, 1):
            for index in group.outs:
                if index != vector and group.stride(access, index) == 1:
                    return ((index, min(lanes, group.extents[index])),), 1
    return (), 0


def _joins(found: list[Group], temps: set[str]) -> dict[str, tuple[str, str]]:
    """Which temporaries to compute inside a loop of their last consumer, without recomputation.

    A temporary is joined at the deepest loop whose outer indices it and its consumer's reads
    share bare and in order, short of the consumer's innermost loop, which is for vectors.
    """
    joins: dict[str, tuple[str, str]] = {}
    if not found:
        return joins
    last = found[-1]
    if last.main.carries:
        return joins
    for n in range(len(found) - 2, -1, -1):
        group = found[n]
        if group.main.tensor.removesuffix(".acc") != group.name or group.name not in temps:
            continue
        if group.main.carries:
            continue  # its loops are those of a recurrence
        readers = [g for g in found[n + 1 :] if any(a.tensor == group.name for a in _all_reads(g))]
        if not all(r is last or r.name in joins for r in readers):
            continue
        depth = min((_shared(group, r) for r in readers), default=0)
        depth = min([depth, len(last.outs) - 1, *(_depth(last, joins[r.name][1]) for r in readers
                                                   if r.name in joins)])  # fmt: skip
        if depth > 0 and last.extents[last.outs[depth - 1]] > 1:
            joins[group.name] = (last.name, last.outs[depth - 1])
    return joins


def _depth(last: Group, index: str) -> int:
    return last.outs.index(index) + 1


def _all_reads(group: Group) -> list[Access]:
    return [a for stage in group.stages for a in accesses(stage.value)]


def _shared(producer: Group, consumer: Group) -> int:
    """How many leading axes every read uses with the consumer's own leading loops."""
    depth = len(producer.outs)
    for access in _all_reads(consumer):
        if access.tensor != producer.name:
            continue
        same = 0
        pairs = zip(access.indices, consumer.outs, strict=False)
        for expr, index in pairs:
            if expr is not Index(index):
                break
            same += 1
        depth = min(depth, same)
    return depth
