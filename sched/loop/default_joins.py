"""Where the default schedule computes temporaries: inside a loop of what reads them last."""

from __future__ import annotations

from collections.abc import Sequence

from ...algo.tensor_expr.affine import linear
from ...algo.tensor_expr.build import sub
from ...algo.tensor_expr.expr import Access, Index, accesses
from .access import Group

Join = tuple[str, str]
"""A nest, and the index of the loop of it inside of which another is computed."""


MOST = 16
"""How many temporaries one loop computes, at most: what checks and isl take grows by its square."""


def joins(
    found: Sequence[Group], temps: set[str], inner: int
) -> tuple[dict[str, Join], frozenset[str]]:
    """Which temporaries to compute inside a loop of their last consumer, without recomputation,
    and which of them slide.

    A temporary is joined at the deepest loop whose outer indices it and its consumer's reads
    share bare and in order, short of the `inner` innermost loops of the consumer, which are for
    vectors. One that is read at neighbouring places of the outermost loop slides along that: the
    values of earlier iterations are kept, as many as are read again.
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
    for n in range(len(found) - 2, -1, -1):
        group = found[n]
        if len(made) == MOST:
            break
        if group.main.tensor.removesuffix(".acc") != group.name or group.name not in temps:
            continue
        if group.main.carries:
            continue  # its loops are those of a recurrence
        readers = [found[at] for at in positions.get(group.name, ()) if at > n]
        if not all(r is last or r.name in made for r in readers):
            continue
        depth = min((_shared(group, r) for r in readers), default=0)
        around = [last.outs.index(made[r.name][1]) + 1 for r in readers if r.name in made]
        depth = min([depth, len(last.outs) - inner, *around])
        if depth > 0 and last.extents[last.outs[depth - 1]] > 1:
            made[group.name] = (last.name, last.outs[depth - 1])
        elif depth == 0 and readers == [last] and len(last.outs) > inner and _slides(group, last):
            made[group.name] = (last.name, last.outs[0])
            slide.add(group.name)
    return made, frozenset(slide)


def reads_of(group: Group) -> list[Access]:
    """All reads of a group's stages."""
    return [a for stage in group.stages for a in accesses(stage.value)]


def _shared(producer: Group, consumer: Group) -> int:
    """How many leading axes every read uses with the consumer's own leading loops."""
    depth = len(producer.outs)
    for access in reads_of(consumer):
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


def _slides(producer: Group, consumer: Group) -> bool:
    """Is every read a fixed number of rows from where the consumer is, and no rows are skipped?"""
    row = Index(consumer.outs[0])
    for access in reads_of(consumer):
        if access.tensor == producer.name:
            form = linear(sub(access.indices[0], row)) if access.indices else None
            if form is None or form.terms:
                return False
    return bool(producer.outs) and not producer.reds
