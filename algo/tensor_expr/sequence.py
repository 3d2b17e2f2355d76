"""Recurrences for the interpreter: which instances of an equation run at a value of a loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .evaluate import Array, Box, Evaluator
from .expr import Call, Expr, Index, Range
from .op import Equation, Step


@dataclass(frozen=True, slots=True)
class Pending:
    """The instances of an equation that are left to run inside some values of outer loops, or of
    all equations of a `joint` reduction, of which `equation` has the indices in common.

    Those are indices in `limits`, or where a loop is skewed the `points` with that value, `count`
    of them: the indices of each, along one axis. (The one instance without indices is a point.)
    """

    run: Evaluator
    step: Step
    equation: Equation
    joint: bool = False
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    points: Mapping[str, Array] | None = None
    count: int = 0

    @property
    def joined(self) -> int:
        """How many loops it shares with what comes before."""
        return self.step.joined

    def boxes(self) -> Iterator[Box]:
        """All instances, in no particular order."""
        if self.points is None:
            yield self.run.extend(Box({}, ()), self.equation.ranges, self.limits)
        else:
            yield Box(dict(self.points), (self.count,))

    def over(self, ranges: Sequence[Range]) -> tuple[Box, list[str]]:
        """All instances of an equation with these ranges, which are those here and further ones,
        and the names of its axes."""
        if self.points is None:
            box = self.run.extend(Box({}, ()), ranges, self.limits)
            return box, [r.index for r in ranges]
        (box,) = self.boxes()
        further = [r for r in ranges if r.index not in self.points]
        return self.run.extend(box, further), [*(r.index for r in further), "instance"]

    def values(self, level: int) -> set[int]:
        """The values that the loop of that level takes."""
        (box,) = self.boxes()
        if not all(box.shape):
            return set()
        value = self.run.evaluate(self._loop(level), box).array
        return set(map(int, np.unique(value)))

    def at(self, level: int, value: int) -> Pending:
        """The instances at which the loop of that level has a value."""
        loop = self._loop(level)
        if self.points is None:
            match loop:
                case Index(name) if name not in self.limits:
                    return replace(self, limits={**self.limits, name: (value, value + 1)})
                case Call("neg", (Index(name),)) if name not in self.limits:
                    return replace(self, limits={**self.limits, name: (-value, 1 - value)})
        item = self._pointwise() if self.points is None else self
        (box,) = item.boxes()
        values = np.broadcast_to(self.run.evaluate(loop, box).array, box.shape)
        here = values == value
        points = {i: grid[here] for i, grid in box.grid.items()}
        return replace(item, points=points, count=int(here.sum()))

    def _loop(self, level: int) -> Expr:
        loops = self.step.loops
        return loops[level] if loops else Index(self.equation.ranges[level].index)

    def _pointwise(self) -> Pending:
        """The same with every instance by itself."""
        (box,) = self.boxes()
        exists = np.broadcast_to(True if box.mask is None else box.mask, box.shape)
        points = {i: np.broadcast_to(grid, box.shape)[exists] for i, grid in box.grid.items()}
        return replace(self, points=points, count=int(exists.sum()))
