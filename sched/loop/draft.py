"""A schedule being built at bound sizes: primitives are tried, and those that do not fit left out.

Default schedules and the tuner's sketches are written with it. Every step is checked like a
user's, so what comes out is legal, and replays from its text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...algo.dtypes import DType
from ...algo.errors import ScheduleError
from ...algo.tensor_expr.check import check
from ...algo.tensor_expr.op import Kernel, Op
from ...algo.tensor_expr.stages import kernel
from .initial import initial
from .names import copies
from .nest import Nest
from .primitive import Primitive
from .reorder import Reorder
from .schedule import Schedule
from .tree import in_order, named


def laid_out(op: Op, dtypes: Mapping[str, DType] | None, sizes: Mapping[str, int]) -> Kernel | None:
    """The kernel with dynamic sizes at the most that they can be, for which loops are laid out.

    Where a condition on sizes decides for these which stages there are, little less than the most
    is taken; None where that is no better.
    """
    checked = check(op)
    made = kernel(checked, dtypes or {}, sizes)
    dynamic = op.maxima.keys() - sizes.keys()
    stages = [stage.name for stage in made.stages]
    for less in range(3 if dynamic else 0):
        most = {name: max(1, size - less * n) for n, (name, size) in enumerate(op.maxima.items())}
        made = kernel(checked, dtypes or {}, {**most, **sizes})
        if [stage.name for stage in made.stages] == stages:
            return made
    return None if dynamic else made


class Draft:
    """Primitives applied so far, and the nest they make."""

    def __init__(
        self, op: Op, dtypes: Mapping[str, DType] | None, sizes: Mapping[str, int]
    ) -> None:
        self.op, self.dtypes, self.sizes = op, dtypes, sizes
        self.kernel: Kernel = kernel(check(op), dtypes or {}, sizes)
        self.nest: Nest = initial(self.kernel)
        self.primitives: tuple[Primitive, ...] = ()

    @property
    def schedule(self) -> Schedule:
        """What has been built."""
        return Schedule(self.op, self.primitives).with_nest(self.nest, self.dtypes, self.sizes)

    def attempt(self, *steps: Primitive) -> bool:
        """Applies the steps if all of them are legal, else none."""
        nest = self.nest
        try:
            for step in steps:
                nest = step.step(nest)
        except ScheduleError:
            return False
        self.nest, self.primitives = nest, (*self.primitives, *steps)
        return True

    def order(self, nest: str, prefix: str, order: list[str]) -> None:
        """Puts loops of a nest in this order if they are in another; `prefix` goes before names."""
        wanted = [f"{nest}.{name}" for name in order]
        now = in_order(self.nest.tree, wanted)
        if now != wanted:
            self.attempt(Reorder(tuple(prefix + name for name in order)))

    def has(self, loop: str) -> bool:
        """Is there a loop of this full name?"""
        return named(self.nest.tree, loop) is not None

    def copies(self, loop: str) -> Iterator[str]:
        """The full names of a loop and of the copies that distribution made of it."""
        return iter([item.name for item in copies(self.nest, loop)])
