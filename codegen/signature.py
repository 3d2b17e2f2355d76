"""What a kernel is made for: an operator at given types, and how its arrays lie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..algo.dtypes import DType
from ..algo.forked import cached_property
from ..algo.tensor_expr.affine import iterations
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.expr import Const, Expr, Range, Size, substitute, walk
from ..algo.tensor_expr.op import Equation, Op
from ..algo.tensor_expr.sizes import bind_sizes, shape_of
from ..algo.tensor_expr.types import infer
from ..sched.loop.machine import Machine
from .host import machine as host_machine

if TYPE_CHECKING:
    from ..sched.loop.nest import Nest
    from ..sched.loop.schedule import Schedule

TINY = 1 << 12  # instances up to which a call keeps the interpreter lock


@dataclass(frozen=True, eq=False)
class Signature:
    """An operator at given types: its sizes, and the shapes and types of its results."""

    op: Op
    types: tuple[tuple[DType, tuple[int, ...]], ...]

    @cached_property
    def dtypes(self) -> dict[str, DType]:
        """The element types of the inputs."""
        return {p.name: t for p, (t, _) in zip(self.op.params, self.types, strict=True)}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs."""
        return {p.name: s for p, (_, s) in zip(self.op.params, self.types, strict=True)}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The size symbols' values."""
        return dict(bind_sizes(check(self.op), self.shapes))

    @cached_property
    def returned(self) -> tuple[DType, ...]:
        """The element type of each returned tensor."""
        dtypes = infer(check(self.op), self.dtypes)
        return tuple(dtypes[name] for name in self.op.returns)

    @cached_property
    def bound(self) -> dict[str, int]:
        """The sizes that are numbers in the code. A dynamic size is none, unless it is 0."""
        maxima = self.op.maxima
        return {n: value for n, value in self.sizes.items() if n not in maxima or not value}

    @cached_property
    def dynamic(self) -> dict[str, int]:
        """The values of the sizes that are symbols in the code."""
        return {n: value for n, value in self.sizes.items() if n not in self.bound}

    @cached_property
    def largest(self) -> dict[str, int]:
        """The most that every size can be in a call of the same code."""
        return {**self.sizes, **{name: self.op.maxima[name] for name in self.dynamic}}

    @cached_property
    def results(self) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """Shape and NumPy type of each returned tensor."""
        checked = check(self.op)
        return tuple(
            (shape_of(checked, name, self.sizes), dtype.numpy)
            for name, dtype in zip(self.op.returns, self.returned, strict=True)
        )

    @cached_property
    def machine(self) -> Machine:
        """The machine that schedules and lowering are told of."""
        return host_machine()

    def nest(self, schedule: Schedule | None) -> Nest:
        """The loop nest under a schedule, or under the default one."""
        if schedule is None:
            from ..sched.loop.default import default  # what is on disk needs none

            schedule = default(self.op, self.dtypes, self.bound, self.machine)
        return schedule.nest(self.dtypes, self.bound)

    @property
    def tiny(self) -> bool:
        """Is a call certainly short?"""
        counts = (_instances(eq, self.largest) for eq in check(self.op).equations)
        return sum(counts) <= TINY


def _instances(eq: Equation, sizes: Mapping[str, int]) -> float:
    """The most instances that an equation can have; infinite where that is not known."""
    values: dict[Expr, Expr] = {Size(name): Const(size) for name, size in sizes.items()}
    parts = (part for root in (eq.rhs, *eq.ranges) for part in walk(root))
    ranges = [part for part in parts if isinstance(part, Range)]
    found = iterations(
        Range(r.index, substitute(r.lo, values), substitute(r.hi, values)) for r in ranges
    )
    return math.inf if found is None else math.prod(max(1, count) for count in found.values())


@dataclass(frozen=True, slots=True)
class Form:
    """What else a kernel is specialised on. Strides are in bytes, by tensor, of those not dense.

    `aligned`: every array starts at a multiple of its element's size. `separate`: no output is an
    input.
    """

    strides: tuple[tuple[str, tuple[int, ...]], ...] = ()
    aligned: bool = True
    separate: bool = True
