"""The oracle: an operator computed by NumPy, straight from its equations.

It uses no schedule and no code generator. Every equation is evaluated over its whole box of
instances at once; recurrences run loop by loop in the order that `check` found (`sequence.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType, bf16, bf16_form, from_numpy, widened
from ..errors import InternalError, ShapeError, check_count
from . import types
from .affine import in_turn
from .check import check
from .evaluate import UFUNCS, Array, Box, Evaluator, Typed, Unwritten
from .evaluate_fold import fold
from .expr import Access, Expr, Index
from .folds import together, uncast
from .joined import parts
from .located import located
from .op import Checked, Equation, Op, Step
from .order_joint import whole
from .reducers import REDUCERS
from .sequence import Pending
from .settle import settled_on
from .sizes import bind_sizes, evaluate


def interpret(
    op: Op,
    *arrays: Any,
    sizes: Mapping[str, int] | None = None,
    exact: bool = False,
    dtypes: Sequence[DType] | None = None,
) -> Any:
    """The result of `op` on arrays, one a parameter; a tuple of arrays if it returns several.

    Integers and booleans come out exactly as compiled code gives them, floats with the same types
    and accumulators. With `exact`, all float work is done in float64 and floats come out as
    float64: the reference to compare others with. `sizes` binds size symbols that no shape binds.
    A bf16 result is bfloat16 where an array is, else its bits, as uint16; `dtypes` says of which
    arrays uint16 is bf16's bits, beside those of parameters that are declared so.
    """
    op = settled_on(op, arrays)
    checked = check(op)
    given = dict(zip((p.name for p in op.params), map(np.asarray, arrays), strict=False))
    check_count(op.name, [p.name for p in op.params], len(arrays))
    known: Sequence[DType | None] = dtypes or [None] * len(arrays)
    kinds = {
        p.name: from_numpy(given[p.name].dtype, p.type.dtype or dtype)
        for p, dtype in zip(op.params, known, strict=True)
    }
    bound = {**(sizes or {}), **bind_sizes(checked, {n: a.shape for n, a in given.items()})}
    run = _Run(checked, *_typed(checked, kinds), bound, exact)
    for name, array in given.items():
        if kinds[name] is bf16:
            array = widened(array)
        run.tensors[name] = Typed(run.convert(array, kinds[name]), kinds[name])
    for part in parts(checked.steps, 0):
        try:
            run.steps(part)
        except ShapeError as error:
            raise ShapeError(f"{op.name}: {error}{located(op, run.number)}") from None
    run.finish()
    form = bf16_form(given.values())
    results = tuple(run.result(name, form) for name in op.returns)
    return results[0] if len(results) == 1 else results


class _Run(Evaluator):
    """One interpretation."""

    def __init__(
        self,
        checked: Checked,
        dtypes: Mapping[str, DType],
        equations: Sequence[Equation],
        sizes: Mapping[str, int],
        exact: bool,
    ) -> None:
        super().__init__(sizes, exact)
        self.checked = checked
        self.dtypes = dtypes
        self.equations = equations
        self.number = 0  # of the equation that is being computed

    def read(self, expr: Expr, tensor: str, positions: list[Array], box: Box) -> Typed:
        """See `Evaluator`. What comes later in the order is read where no instance is active."""
        self._target(tensor)
        return super().read(expr, tensor, positions, box)

    def result(self, name: str, form: np.dtype[Any]) -> Array:
        """A returned tensor, in its own type (floats in float64 if exact), bf16 in that form."""
        array, dtype = self.tensors[name]
        if dtype is bf16 and not self.exact:
            return (array.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(form)
        return array

    def steps(self, part: Sequence[Step]) -> None:
        """Computes all elements that equations in common loops define."""
        self.number = part[0].equation
        for step in part if part[0].carries else ():
            self._target(self.equations[step.equation].tensor)
        groups = [(step, self._together(step)) for step in part]
        pending = [Pending(self, s, whole(group), len(group) > 1) for s, group in groups if group]
        if part[0].carries:
            self._sequence(pending, 0)
            return
        for item in pending:
            eq = self.equations[self.number]
            if item.joint:
                self._joint(item)
            elif eq.reducer is not None:
                self._accumulate(eq, eq.reducer)
            else:
                for box in self.parts(Box({}, ()), eq.ranges):
                    self._assign(eq, box)

    def _together(self, step: Step) -> list[Equation]:
        """The equations that a step computes."""
        found = together(step.equation, self.checked.equations)
        return [self.equations[n] for n in found]

    def _joint(self, item: Pending) -> None:
        """Computes the results of a joint reduction, for instances of the indices in common."""
        equations = self._together(item.step)
        every = [item.over(eq.ranges) for eq in equations]
        boxes, axes = [box for box, _ in every], [names for _, names in every]
        try:
            found = fold(self, [uncast(eq.rhs) for eq in equations], boxes, axes)
        except Unwritten as error:
            raise InternalError(f"an element of {error} is read before it is written") from None
        for eq, box, value in zip(equations, boxes, found, strict=True):
            self._target(eq.tensor)
            self._store(eq, box, self.convert(value.array, self.dtypes[eq.tensor]))

    def _sequence(self, pending: Sequence[Pending], level: int) -> None:
        """Runs what is left of equations in the order of their loops from `level` on."""
        for part in parts(pending, level):
            first = part[0]
            if level == len(first.step.carries):
                self.number = first.step.equation
                if first.joint:
                    self._joint(first)
                    continue
                for box in first.boxes():
                    self._assign(first.equation, box)
            elif not first.step.carries[level]:
                self._sequence(part, level + 1)
            else:
                for value in sorted(set().union(*(item.values(level) for item in part))):
                    self._sequence([item.at(level, value) for item in part], level + 1)

    def finish(self) -> None:
        """Every element of every tensor is defined now."""
        for name, unwritten in self.unwritten.items():
            if unwritten.any():
                raise InternalError(f"{name} was proved to be written, and is not everywhere")

    def _target(self, name: str) -> Array:
        """The array of a tensor, made when its first equation runs; nothing is written yet."""
        if name not in self.tensors:
            dtype = self.dtypes[name]
            array = np.zeros(self._shape(name), self.storage(dtype))
            self.tensors[name] = Typed(array, dtype)
            self.unwritten[name] = np.ones(array.shape, bool)
        return self.tensors[name].array

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(max(0, evaluate(e, self.sizes)) for e in self.checked.shapes[name])

    def _guarded(self, eq: Equation, box: Box) -> Box:
        for condition in in_turn(eq.where):
            box = box.masked(self.evaluate(condition, box).array)
        return box

    def _positions(self, eq: Equation, box: Box) -> list[Array] | None:
        positions = [self.evaluate(e, box).array for e in eq.lhs]
        return self.inside(Access(eq.tensor, eq.lhs), self._shape(eq.tensor), positions, box)

    def _assign(self, eq: Equation, box: Box) -> None:
        self._target(eq.tensor)
        box = self._guarded(eq, box)
        if not all(box.shape) or (box.mask is not None and not box.mask.any()):
            return
        dtype = self.dtypes[eq.tensor]
        try:
            value = self.convert(self.evaluate(eq.rhs, box).array, dtype)
        except Unwritten as error:
            raise InternalError(f"an element of {error} is read before it is written") from None
        self._store(eq, box, value)

    def _store(self, eq: Equation, box: Box, value: Array) -> None:
        """Writes what the instances of an equation define."""
        target = self._target(eq.tensor)
        positions = self._positions(eq, box) if all(box.shape) else None
        if positions is None:
            return
        places, values = _active(positions, value, box)
        at: tuple[Any, ...] = (*places, ...)  # one of no dimensions takes a value of an axis too
        target[at] = values
        self.unwritten[eq.tensor][at] = False

    def _accumulate(self, eq: Equation, name: str) -> None:
        """`T[f(i)] += e`: along the axes that the left side does not name, then by scattering."""
        reducer, dtype = REDUCERS[name], self.dtypes[eq.tensor]
        kind = reducer.accumulator(types.dtype_of(eq.rhs, self.dtypes))
        ufunc = UFUNCS[reducer.combine]
        identity = reducer.identity(kind)
        target = np.full(self._shape(eq.tensor), identity, self.storage(kind))
        named = [e.name for e in eq.lhs if isinstance(e, Index)]
        plain = len(set(named)) == len(eq.lhs)
        rest = tuple(axis for axis, r in enumerate(eq.ranges) if r.index not in named)
        for box in self.parts(Box({}, ()), eq.ranges):
            box = self._guarded(eq, box)
            if not all(box.shape):
                continue
            value = self.convert(self.evaluate(eq.rhs, box).array, kind)
            value = np.broadcast_to(self.masked(value, box, identity), box.shape)
            positions = self._positions(eq, box)
            if positions is None:
                continue
            with np.errstate(all="ignore"):
                if plain:
                    part = self.combine(reducer.combine, value, rest, kind)
                    part = np.expand_dims(part, rest)
                    at = tuple(positions)
                    target[at] = ufunc(target[at], part)
                else:
                    where, values = _active(positions, value, box)
                    # NumPy broadcasts values to positions, not these to those.
                    ufunc.at(target, tuple(np.broadcast_to(p, values.shape) for p in where), values)
        self.tensors[eq.tensor] = Typed(self.convert(target, dtype), dtype)
        self.unwritten.pop(eq.tensor, None)


def _typed(
    checked: Checked, kinds: Mapping[str, DType]
) -> tuple[dict[str, DType], tuple[Equation, ...]]:
    """The types of all tensors for those of the inputs, and the equations with them put in."""

    def make() -> tuple[dict[str, DType], tuple[Equation, ...]]:
        env = types.infer(checked, kinds)
        return env, tuple(_explicit(eq, env) for eq in checked.equations)

    found: tuple[dict[str, DType], tuple[Equation, ...]]
    found = checked.op.memo(f"typed for {', '.join(map(str, kinds.values()))}", make)
    return found


def _explicit(eq: Equation, env: Mapping[str, DType]) -> Equation:
    """The equation with every conversion explicit."""
    return Equation(
        eq.tensor,
        tuple(types.elaborate_index(e, env) for e in eq.lhs),
        types.typed_rhs(eq, env),
        eq.ranges,
        None if eq.where is None else types.elaborate_condition(eq.where, env),
        eq.reducer,
    )


def _active(positions: list[Array], value: Array, box: Box) -> tuple[tuple[Array, ...], Array]:
    """Positions and values of the instances that exist."""
    at = tuple(np.broadcast_to(p, box.shape) for p in positions)
    if box.mask is None:
        return at, value
    mask = np.broadcast_to(box.mask, box.shape)
    return tuple(p[mask] for p in at), np.broadcast_to(value, box.shape)[mask]
