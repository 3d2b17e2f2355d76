"""The default schedule: an analytic model chooses a sketch in milliseconds.

It looks at strides (which index runs contiguously through most of what is touched), at reuse
(which second index would share what is loaded), at register and cache capacity, and at how much
work there is to give to threads. Whatever it chooses is checked like a user's schedule.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from ...algo.dtypes import DType
from ...algo.tensor_expr.expr import Index
from ...algo.tensor_expr.op import Kernel, Op
from .access import Group, groups
from .default_across import across
from .default_beside import company
from .default_contract import contraction
from .default_join import blocked
from .default_joins import Join, in_its_lanes, joins
from .default_layout import layouts
from .default_stream import streamed
from .default_strip import strips
from .default_turn import turned_tiles, turning
from .default_windows import neighbours, windows
from .default_words import by_words
from .draft import laid_out
from .machine import Machine
from .parallelism import chunk_of, shared_loop, worth_threads
from .schedule import Schedule
from .sketch import Choice, Sketch
from .sketch_build import build

RUN = 8
"""Vectors that a thread reads one after the other, at least, where threads share a row."""
OWN = 4
"""Instances of a sum, at least, for each cell of the results that its blocks have of their own."""
FEW = 8
"""Elements that are added to a cell, at most, of which those of a few cells are near each other."""
PART = 4
"""Vectors of a part of a row whose sums are in registers."""
ROWS = 64
"""Rows of a block in which a temporary slides along, at most."""


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
    made = laid_out(op, dtypes, sizes)
    if made is None:
        return Sketch({})
    found = groups(made)
    temps = {t.name for t in made.tensors.values() if t.role == "temp"}
    lanes = {g.name: _lanes(made, g, machine) for g in found}
    laid = layouts(found, temps, lanes)
    if laid:
        found = [replace(g, layouts=laid) for g in found]
    crossed = {g.name: c for g in found if (c := across(g, temps, lanes[g.name], machine))}
    strip = strips(found, temps, min(lanes.values(), default=1), machine)
    if strip is not None:
        return Sketch(strip)
    # The innermost loop of a nest is for vectors, unless those run along a sum.
    rows = {
        g.name: len(g.outs) - (_vector(g, lanes[g.name], ()) not in g.reds) for g in found
    }  # fmt: skip
    shared = company(found, temps, machine)
    beside = {g.name: shared.order for g in shared.groups} if shared else {}
    rows |= {name: len(order) - 1 for name, order in beside.items()}
    joined, sliding = joins(found, temps, rows, beside, machine)
    worded = {g.name: c for g in found if (c := by_words(g, machine))}
    joined = {g: (c, i) for g, (c, i) in joined.items() if not worded.keys() & {g, c}}
    sliding = frozenset(name for name in sliding if name in joined)
    alone = [g for g in found if g.name not in beside]
    held = {g.name: _held(g, joined.values()) for g in alone}
    choices = {
        g.name: _choose(
            g, joined.get(g.name), g.main.tensor in temps, held[g.name], lanes[g.name], machine
        )
        for g in alone
    }
    choices |= crossed | worded
    if shared is not None:
        choices |= shared.choices(machine)
    together = None
    if sliding and sliding == joined.keys():
        together = windows(found, sliding, choices[found[-1].name], machine)
    choices |= together or {}
    for name in () if together else sliding:
        consumer, index = joined[name]
        choices[consumer] = host = _rows(choices[consumer], index, found[-1], machine)
        producer = next(group for group in found if group.name == name)
        if host.vector is not None and in_its_lanes(producer, found[-1], host.vector):
            index = host.vector
        choices[name] = replace(choices[name], slides=True, join=(consumer, index))
    for g in found:
        if g.main.tensor in laid and choices[g.name].join is None:
            choices[g.name] = replace(choices[g.name], layout=laid[g.main.tensor])
    for name in streamed(found, temps, choices, machine):
        choices[name] = replace(choices[name], stream=True)
    if joined and not beside:
        choices = blocked(found, choices, lanes, machine)
    return Sketch(choices)


def _lanes(made: Kernel, group: Group, machine: Machine) -> int:
    """Elements of the widest type that the group touches in one vector."""
    names = (group.main.tensor, *(a.tensor for a in group.operands))
    return machine.lanes(max(made.tensors[name].dtype.itemsize for name in names))


def _held(group: Group, joined: Collection[Join]) -> int:
    """How many outer loops of a nest are needed as they are, for others are computed in them."""
    places = [group.outs.index(i) + 1 for name, i in joined if name == group.name]
    return max(places, default=0)


def _choose(
    group: Group, join: Join | None, temp: bool, held: int, lanes: int, machine: Machine
) -> Choice:
    if not group.work:
        return Choice(join=join)  # nothing is to be gained where nothing runs
    if group.fold is not None:
        return _combining(group, join, lanes, machine)
    merge = () if join or group.reds else _merge(group, group.outs[held:], lanes)
    if merge:
        return _walk(group, merge, lanes, machine)
    if group.solved and join is None:
        return Choice(outer=shared_loop(group, None, 1, machine), solved=group.solved)
    if join is None and not group.holes and not group.scatters and group.shares:
        found = contraction(group, lanes, machine)
        around = group.outs[:held]
        if found is not None and {found.vector, *(i for i, _ in found.tile)} & set(around):
            # The tile would take a loop in which others are computed inside of the rest.
            found = contraction(group, lanes, machine, around)
        if found is not None:
            return found
    merge = _merge(group, group.reds, lanes)
    vector = _vector(group, lanes, merge)
    if join is None and not temp and (pair := turning(group, vector, lanes)):
        return turned_tiles(group, *pair, lanes, machine)
    if vector is None:
        return Choice(outer=None if join else shared_loop(group, None, 1, machine), join=join)
    if merge and vector == merge[-1]:
        vector = "_".join(merge)
    else:
        merge = ()
    if join is not None:
        return Choice(vector=vector, merge=merge, join=join)
    outer, chunk = shared_loop(group, vector, lanes, machine), 0
    if outer is None and worth_threads(group, lanes, machine):
        outer, chunk = _shared_inside(group, vector, merge, lanes, machine)
    if not held and not chunk and (rows := neighbours(group, vector, machine)):
        return replace(rows, outer=outer)
    vectors = 0 if outer == vector else _part(group, vector, lanes, machine)
    return Choice(vector=vector, vectors=vectors, merge=merge, outer=outer, chunk=chunk)


def _part(group: Group, vector: str, lanes: int, machine: Machine) -> int:
    """Vectors of a part of a row of sums that is too long for registers: as many as those hold
    where each cell adds a few elements, else, one row of elements after the other, as many as the
    first cache holds (0: all of them)."""
    if not group.reds or vector not in group.outs:
        return 0
    extent = group.extents[vector]
    if extent <= machine.registers * lanes // 2:
        return 0
    if group.work <= FEW * group.cells:
        return PART
    near = machine.l1 // (2 * group.sizes[group.main.tensor] * lanes)
    return near if extent > near * lanes else 0


def _shared_inside(
    group: Group, vector: str, merge: tuple[str, ...], lanes: int, machine: Machine
) -> tuple[str | None, int]:
    """Blocks for threads where no loop outside of the vectors can be shared: of the one that runs
    in lanes, or of a sum, each block of which has a result of its own. Threads share short rows
    too where those results are more work than the sum."""
    rows = [i for i in group.reds if i not in merge and i != vector]
    shared = next((i for i in rows if group.extents[i] >= 2 * machine.threads), None)
    blocks = 4 * machine.threads
    private = shared is not None and group.work >= OWN * blocks * group.cells
    if vector in group.outs:
        extent = group.extents[vector]
        if not group.reds:
            return vector, chunk_of(extent, machine)
        part = -(-extent // machine.threads)
        if part >= (RUN if private else 1) * lanes:
            return vector, -(-part // lanes) * lanes
    if shared is not None and private:
        return shared, -(-group.extents[shared] // blocks)
    if vector in group.outs:
        return None, 0
    extent = math.prod(group.extents[i] for i in merge or (vector,))
    return vector, chunk_of(extent, machine)


def _rows(choice: Choice, index: str, group: Group, machine: Machine) -> Choice:
    """Blocks of rows for threads; at the start of each, rows of what slides are computed again."""
    rows = -(-group.extents[index] // (4 * machine.threads))
    return replace(choice, outer=index, chunk=min(ROWS, max(8, rows)))


def _combining(group: Group, join: Join | None, lanes: int, machine: Machine) -> Choice:
    """A fold keeps the order of its instances: lanes go along an index of its widest component."""
    own = [i for i in group.reds if Index(i) in group.main.lhs and group.extents[i] > 1]
    vector = own[-1] if own else None
    outer = None if join else shared_loop(group, None, lanes if own else 1, machine)
    return Choice(vector=vector, outer=outer, join=join)


def _merge(group: Group, indices: tuple[str, ...], lanes: int) -> tuple[str, ...]:
    """Innermost of the indices to make one loop of, so that short ones fill vectors."""
    merged = list(indices[-1:])
    extent = group.extents[merged[0]] if merged else 0
    for outer in reversed(indices[:-1]):
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


def _vector(group: Group, lanes: int, merge: tuple[str, ...]) -> str | None:
    """The index to run in lanes: the one whose accesses are cheapest for a vector of work.

    The last one of `merge` has the iterations of all of them.
    """

    def price(stride: int | None) -> float:
        if stride == 0:
            return 0.25
        return 1.0 if stride == 1 else float(lanes)

    best, cheapest = None, float("inf")
    for index in (*reversed(group.outs), *reversed(group.reds)):
        extent = group.extents[index]
        if index in merge:
            extent = math.prod(group.extents[i] for i in merge) if index == merge[-1] else 1
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
