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
from .machine import Machine
from .schedule import Schedule
from .sketch import Choice, Sketch, build

WORTH_A_THREAD = 30e-6  # seconds of one thread; below, waking others costs more than it saves
ADDITIONS = 7e9  # a second and lane, roughly
FROM_CACHE, FROM_MEMORY = 40e9, 12e9  # bytes a second and thread


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
    joins = _joins(found, {t.name for t in made.tensors.values() if t.role == "temp"})
    return Sketch({g.name: _choose(g, joins.get(g.name), _lanes(made, g, machine), machine)
                   for g in found})  # fmt: skip


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
        return Choice(outer=_outer(group, None, 1, machine), solved=group.solved)
    vector = _vector(group, lanes)
    if vector is None:
        return Choice(outer=None if join else _outer(group, None, 1, machine), join=join)
    if join is not None:
        return Choice(vector=vector, join=join)
    tile, vectors = _register_tile(group, vector, lanes, machine)
    outer = _outer(group, vector, lanes, machine)
    if outer is None and _worth(group, lanes, machine) and vector in group.outs and not tile:
        chunk = _chunk(group.extents[vector], machine)
        return Choice(vector=vector, outer=vector, chunk=chunk)
    return Choice(vector=vector, vectors=vectors, tile=tile, outer=outer)


def _combining(group: Group, join: tuple[str, str] | None, lanes: int, machine: Machine) -> Choice:
    """A fold keeps the order of its instances: lanes go along an index of its widest component."""
    own = [i for i in group.reds if Index(i) in group.main.lhs and group.extents[i] > 1]
    vector = own[-1] if own else None
    outer = None if join else _outer(group, None, lanes if own else 1, machine)
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
    if not _worth(group, lanes, machine):
        return Choice(vector=vector, merge=merge)
    if outer is not None:
        return Choice(vector=vector, merge=merge, outer=outer)
    extent = math.prod(group.extents[i] for i in merge)
    return Choice(vector=vector, merge=merge, outer=vector, chunk=_chunk(extent, machine))


def _chunk(extent: int, machine: Machine) -> int:
    """Iterations of a block, where one long loop is shared out."""
    return max(1024, -(-extent // (4 * machine.threads)))


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


def _register_tile(
    group: Group, vector: str, lanes: int, machine: Machine
) -> tuple[tuple[tuple[str, int], ...], int]:
    """The tile kept in registers: blocks of other indices, and its width in vectors.

    An index is worth a block where a read does not move along it: what is loaded serves all of
    the block. Each cell of the tile is an accumulator.
    """
    extent = group.extents[vector]
    reuse = {i: sum(1 for a in group.reads if group.stride(a, i) == 0) for i in group.outs}
    useful = [i for i in group.outs if i != vector and group.extents[i] > 1 and reuse[i]]
    if not group.reds:
        return _transposing_tile(group, vector, lanes)
    if not useful:
        return (), 0
    useful.sort(key=lambda i: (reuse[i], group.extents[i]), reverse=True)
    if vector in group.reds:
        tile = tuple((i, _divisor(group.extents[i], 4)) for i in useful[:2])
        return tile, 1 if extent > lanes else 0
    vectors = 2 if extent >= 2 * lanes else 1
    # A quarter of the registers is for what is loaded and broadcast.
    height = min(8, max(1, machine.registers * 3 // 4 // vectors))
    rows = useful[0]
    return ((rows, _divisor(group.extents[rows], height)),), vectors if extent > lanes else 0


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


def _divisor(extent: int, most: int) -> int:
    """The largest tile up to `most` that divides, unless that is under half of it."""
    most = min(extent, most)
    exact = next(n for n in range(most, 0, -1) if extent % n == 0)
    return exact if 2 * exact >= most else most


def _worth(group: Group, lanes: int, machine: Machine) -> bool:
    """Is there enough work in the nest to share it out? `lanes` is 1 where nothing is in lanes.

    Inside the loops of a recurrence it is shared out again in every iteration.
    """
    arithmetic = group.work * group.cost / (ADDITIONS * lanes)
    rate = FROM_CACHE if 2 * group.footprint <= machine.l3 else FROM_MEMORY
    seconds = max(arithmetic, group.footprint / rate)
    return machine.threads > 1 and seconds >= WORTH_A_THREAD * (1 if group.free else group.rounds)


def _outer(group: Group, vector: str | None, lanes: int, machine: Machine) -> str | None:
    """The loop that is given to threads: the outermost that has enough iterations."""
    if not _worth(group, lanes, machine):
        return None
    inner = [] if group.free else group.outs
    free = [i for i in (*group.free, *inner) if i != vector and i not in group.solved]
    wide = [i for i in free if group.extents[i] >= 2 * machine.threads]
    some = [i for i in free if group.extents[i] >= machine.threads]
    return next(iter(wide or some), None)


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
