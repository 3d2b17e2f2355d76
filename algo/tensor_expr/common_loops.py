"""Stages of equations in common loops: where the temporaries of a recurrence are computed.

A temporary that reads what the loops compute is computed inside them, just before its equation;
one that does not is whole before they start. All temporaries of other equations are, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .domains import closure
from .expr import Access, Expr, Index, Range, indices_of, walk
from .op import Stage, Step
from .skew import completed


@dataclass(slots=True)
class Common:
    """The stages of equations that run in common loops, or of one alone.

    `inside` are the tensors that need elements of themselves, which the loops compute in order.
    """

    inside: set[str]
    before: list[Stage] = field(default_factory=list)
    loop: list[Stage] = field(default_factory=list)
    step: Step = field(default_factory=lambda: Step(0))
    ranges: tuple[Range, ...] = ()
    alone_below: int = 0

    @property
    def stages(self) -> list[Stage]:
        """All of them in program order."""
        return [*self.before, *self.loop]

    def enter(self, step: Step, ranges: tuple[Range, ...], next_joined: int) -> None:
        """The equation whose stages come now; the one after it shares `next_joined` loops."""
        self.step, self.ranges = step, ranges
        self.alone_below = max(step.joined, next_joined)

    def around(
        self, free: Sequence[str], scope: Mapping[str, Range], exprs: Iterable[Expr]
    ) -> list[str]:
        """The indices over which a temporary runs that depends on the `free` ones of a scope.

        Inside a recurrence its outermost ones are loops of its equation: all that carry anything,
        or fewer where those alone say which elements it has.
        """
        if not self.step.carries or not self._reads_inside(exprs):
            return list(free)
        values: Sequence[Expr] = self.step.loops or [Index(r.index) for r in self.ranges]
        depth = len(self.step.carries)
        skewed = any(len(indices_of(value)) > 1 for value in values)
        if skewed:
            depth = len(values)  # all indices together have its values
        names = list(dict.fromkeys(i for value in values[:depth] for i in indices_of(value)))
        mine = list(free)
        if (
            not skewed
            and self.alone_below <= len(mine) < depth
            and mine == names[: len(mine)] != []
        ):
            return mine
        return closure([*(i for i in names if i in scope), *free], scope)

    def own(self, tensor: str) -> None:
        """Notes an accumulator of the equation itself."""
        if self.step.carries:
            self.inside.add(tensor)

    def temporary(self, tensor: str, exprs: Iterable[Expr]) -> None:
        """Notes a temporary that is made of expressions."""
        if self._reads_inside(exprs):
            self.inside.add(tensor)

    def beside(self, tensor: str, other: str) -> None:
        """Notes a temporary that is computed with another tensor."""
        if other in self.inside:
            self.inside.add(tensor)

    def _reads_inside(self, exprs: Iterable[Expr]) -> bool:
        return any(
            isinstance(item, Access) and item.tensor in self.inside
            for expr in exprs
            for item in walk(expr)
        )

    def loops(self, ranges: Sequence[Range]) -> tuple[Expr, ...]:
        """The loops of a stage of the equation, none where they are the indices of its ranges."""
        if not self.step.loops:
            return ()
        names = {r.index for r in ranges}
        return completed([v for v in self.step.loops if names.issuperset(indices_of(v))], ranges)

    def leave(self, stages: Sequence[Stage]) -> None:
        """Puts the stages of the equation where they are computed."""
        if not self.step.carries:
            self.loop += stages
            return
        self.before += [s for s in stages if s.tensor not in self.inside]
        blocks: list[list[Stage]] = []
        for stage in stages:
            if stage.tensor not in self.inside:
                continue
            if stage.joined:
                blocks[-1].append(stage)
            else:
                blocks.append([stage])
        blocks.sort(key=self._depth)
        depth = self.step.joined
        for block in blocks:
            mine = self._depth(block)
            first = replace(block[0], joined=min(depth, mine))
            carries = self.step.carries[:mine]
            self.loop += [replace(stage, carries=carries) for stage in (first, *block[1:])]
            depth = mine

    def _depth(self, block: Sequence[Stage]) -> int:
        """How many of the loops that carry anything a stage has."""
        values: Collection[Expr] = self.step.loops or [Index(r.index) for r in self.ranges]
        wanted = list(values)[: len(self.step.carries)]
        count = 0
        for mine, other in zip(block[0].values, wanted, strict=False):
            if mine is not other:
                break
            count += 1
        return count
