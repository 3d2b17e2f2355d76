"""Users' reducers on NumPy arrays: instance by instance in order, all results at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from .affine import in_turn
from .evaluate import Array, Box, Evaluator, Typed
from .expr import Access, Range, Reduce
from .fold_types import identity, typed_combine
from .folds import Part


def fold(
    run: Evaluator,
    parts: Sequence[Reduce],
    boxes: Sequence[Box],
    axes: Sequence[Sequence[str]],
) -> list[Typed]:
    """The typed components of one reduction, each over a box of its own with these indices.

    The instances are combined in ascending lexicographic order of the reduction's indices.
    """
    reducers = [item.reducer for item in parts if isinstance(item.reducer, Part)]
    accs = tuple(item.dtype for item in parts if item.dtype is not None)
    combine = typed_combine(reducers[0].fold, accs)
    names = list(zip(reducers[0].fold.left, reducers[0].fold.right, strict=True))
    state: list[Array] = []
    for part, acc, box in zip(reducers, accs, boxes, strict=True):
        start = run.convert(np.asarray(identity(part, acc).value), acc)
        state.append(np.broadcast_to(start, box.shape))
    for here in _instances(run, boxes, parts[0].ranges, parts[0]):
        bodies = [run.evaluate(item.body, box).array for item, box in zip(parts, here, strict=True)]
        fresh: list[Array] = []
        for n, box in enumerate(here):
            known = Box({}, box.shape)
            for m in (n, *reducers[n].fold.needs(n)):
                for name, values in zip(names[m], (state[m], bodies[m]), strict=True):
                    value = _spread(values, boxes[m], axes[m], axes[n]) if m != n else values
                    known.memo[Access(name, ())] = Typed(run.convert(value, accs[m]), accs[m])
            new = run.convert(run.evaluate(combine[n], known).array, accs[n])
            if box.mask is not None:
                new = np.where(box.mask, new, state[n])
            fresh.append(np.broadcast_to(new, box.shape))
        state = fresh
    return [Typed(array, acc) for array, acc in zip(state, accs, strict=True)]


def _instances(
    run: Evaluator, boxes: Sequence[Box], ranges: Sequence[Range], reduce: Reduce
) -> Iterator[list[Box]]:
    """The boxes with the reduction's indices at one instance, which exists for some of them."""
    if not ranges:
        for condition in in_turn(reduce.where):
            boxes = [box.masked(run.evaluate(condition, box).array) for box in boxes]
        if any(box.mask is None or box.mask.any() for box in boxes):
            yield list(boxes)
        return
    limits: list[tuple[Array, Array]] = []
    for box in boxes:
        lo, hi = (run.evaluate(e, box).array for e in (ranges[0].lo, ranges[0].hi))
        limits.append((lo, hi))
    first = min((int(lo.min()) for lo, _ in limits if lo.size), default=0)
    end = max((int(hi.max()) for _, hi in limits if hi.size), default=0)
    for at in range(first, end):
        inside: list[Box] = []
        for box, (lo, hi) in zip(boxes, limits, strict=True):
            grid = {**box.grid, ranges[0].index: np.asarray(at, np.int64)}
            fresh = Box(grid, box.shape, box.mask)
            if lo.size > 1 or hi.size > 1:
                fresh = fresh.masked(np.logical_and(lo <= at, at < hi), memo=False)
            inside.append(fresh)
        yield from _instances(run, inside, ranges[1:], reduce)


def _spread(values: Array, box: Box, own: Sequence[str], axes: Sequence[str]) -> Array:
    """`values`, over indices `own`, along the axes of more indices."""
    whole = np.broadcast_to(values, box.shape)
    present = [name for name in axes if name in own]
    moved = np.transpose(whole, [own.index(name) for name in present])
    extents: Mapping[str, int] = dict(zip(present, moved.shape, strict=True))
    return moved.reshape([extents.get(name, 1) for name in axes])
