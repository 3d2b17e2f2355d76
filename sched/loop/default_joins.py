"""Where the default schedule computes temporaries: inside a loop of what reads them last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...algo.tensor_expr.affine import linear
from ...algo.tensor_expr.build import sub
from ...algo.tensor_expr.expr import Access, Index, accesses
from .access import Group
from .machine import Machine

Join = tuple[str, str]
"""A nest, and the index of the loop of it inside of which another is computed."""

LONG = 256
"""Instances of a sum beside which it costs nothing to store its element and to load it again."""


MOST = 16
"""How many temporaries one loop computes, at most: what checks and isl take grows by its square."""


def joins(
    found: Sequence[Group],
    temps: set[str],
    rows: Mapping[str, int],
    beside: Mapping[str, tuple[str, ...]],
    machine: Machine,
) -> tuple[dict[str, Join], frozenset[str]]:
    """Which temporaries to compute inside a loop of another nest, without recomputation, and which
    of them slide.

    That is the last nest, or one of a result before it, if it alone reads the temporary; `rows`
    says how many loops of each may hold others. The nests `beside` have the loops of the last, over
    these indices. A temporary is joined at the deepest of these whose outer indices it and its
    consumer's reads share bare and in order. One that is read at
    neighbouring places of the outermost loop slides along that: the values of earlier iterations
    are kept, as many as are read again.
    """
    made: dict[str, Join] = {}
    slide = set()
    if not found or found[-1].main.carries:
        return made, frozenset()
    last = found[-1]
    positions: dict[str, dict[int, None]] = {}  # of those that read a tensor
    for n, group in enumerate(found):
        for access in reads_of(group):
            positions.setdefault(access.tensor, {})[n] = None
    order = {group.name: n for n, group in enumerate(found)}
    for n in range(len(found) - 2, -1, -1):
        group = found[n]
        if len(made) == MOST:
            break
        if group.main.tensor.removesuffix(".acc") != group.name or group.name not in temps:
            continue
        if group.main.carries:
            continue  # its loops are those of a recurrence
        readers = [found[at] for at in positions.get(group.name, ()) if at > n]
        homes = {made[r.name][0] if r.name in made else r.name for r in readers}
        homes = {last.name if name in beside else name for name in homes}
        if len(homes) != 1:
            continue  # it is computed before all that read it
        host = found[order[homes.pop()]]
        if host is not last and not _holds(host, temps):
            continue
        depth = min(_shared(group, r, beside.get(r.name, r.outs)) for r in readers)
        loops = beside.get(host.name, host.outs)
        around = [loops.index(made[r.name][1]) + 1 for r in readers if r.name in made]
        depth = min([depth, rows[host.name], *around])
        if depth > 0 and host.extents[loops[depth - 1]] > 1:
            made[group.name] = (host.name, loops[depth - 1])
        elif depth == 0 and readers == [last] and rows[last.name] and _slides(group, last):
            made[group.name] = (last.name, last.outs[0])
            slide.add(group.name)
    for group in found:
        if group.name in made and group.name not in slide and _alone(group, made, machine):
            del made[group.name]
    return made, frozenset(slide)


def _holds(host: Group, temps: set[str]) -> bool:
    """May a nest before the last hold others? A plain one of a result."""
    plain = host.is_plain and not host.solved and not host.shares
    return plain and host.main.tensor.removesuffix(".acc") not in temps


def _alone(group: Group, made: Mapping[str, Join], machine: Machine) -> bool:
    """Is a contraction better off as a nest of its own, with panels and blocks for all of it?

    So it is if nothing that it reads is joined and its result costs little to keep: it fits the
    second cache, or each element is a long sum. What it reads once may serve its consumer, too.
    """
    if any(math.prod(group.shapes[a.tensor]) == group.work for a in group.reads):
        return False
    if not group.shares or group.holes or any(a.tensor in made for a in reads_of(group)):
        return False
    kept = math.prod(group.shapes[group.name]) * group.sizes[group.name]
    long = math.prod(group.extents[i] for i in group.reds) >= LONG
    return long or 2 * kept <= machine.l2


def reads_of(group: Group) -> list[Access]:
    """All reads of a group's stages."""
    return [a for stage in group.stages for a in accesses(stage.value)]


def _shared(producer: Group, consumer: Group, loops: Sequence[str]) -> int:
    """How many leading axes every read uses with the consumer's own leading loops."""
    depth = len(producer.outs)
    for access in reads_of(consumer):
        if access.tensor != producer.name:
            continue
        same = 0
        pairs = zip(access.indices, loops, strict=False)
        for expr, index in pairs:
            if expr is not Index(index):
                break
            same += 1
        depth = min(depth, same)
    return depth


def _slides(producer: Group, consumer: Group) -> bool:
    """Is every read a fixed number of rows from where the consumer is, and no rows are skipped?"""
    row = Index(consumer.outs[0])
    for access in reads_of(consumer):
        if access.tensor == producer.name:
            form = linear(sub(access.indices[0], row)) if access.indices else None
            if form is None or form.terms:
                return False
    return bool(producer.outs) and not producer.reds


def in_its_lanes(producer: Group, consumer: Group, vector: str) -> bool:
    """Is a temporary that slides read only in the lanes that make it?

    Then one loop does both, and the newest row is used from registers.
    """
    lanes = tuple(map(Index, consumer.outs[1:]))
    rows = [a.indices[1:] for a in reads_of(consumer) if a.tensor == producer.name]
    own = len(producer.outs) == len(consumer.outs) and not consumer.reds
    return own and consumer.outs[-1] == vector and all(row == lanes for row in rows)
