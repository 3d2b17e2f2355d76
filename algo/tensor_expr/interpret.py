"""The oracle: an operator computed by NumPy, straight from its equations.

It uses no schedule and no code generator. Every equation is evaluated over its whole box of
instances at once; a recurrence runs its outer indices one by one, as few as its own reads allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..dtypes import DType, as_bits, bf16, from_numpy
from ..errors import InternalError, ShapeError, counted
from . import types
from .check import check
from .evaluate import UFUNCS, Array, Box, Evaluator, Typed, Unwritten
from .expr import Access, Index, Range, walk
from .located import located
from .op import Checked, Equation, Op
from .reducers import REDUCERS
from .sizes import bind_sizes, evaluate


def interpret(
    op: Op, *arrays: Any, sizes: Mapping[str, int] | None = None, exact: bool = False
) -> Any:
    """The result of `op` on arrays, one a parameter; a tuple of arrays if it returns several.

    Integers and booleans come out exactly as compiled code gives them, floats with the same types
    and accumulators. With `exact`, all float work is done in float64 and floats come out as
    float64: the reference to compare others with. `sizes` binds size symbols that no shape binds.
    A bf16 result is its bits, as uint16.
    """
    checked = check(op)
    given = dict(zip((p.name for p in op.params), map(np.asarray, arrays), strict=False))
    if len(given) != len(op.params) or len(arrays) != len(op.params):
        names = ", ".join(p.name for p in op.params) or "none"
        raise ShapeError(
            f"{op.name} takes {counted(len(op.params), 'array')} ({names}), {len(arrays)} given"
        )
    dtypes = {p.name: from_numpy(given[p.name].dtype, p.type.dtype) for p in op.params}
    bound = {**(sizes or {}), **bind_sizes(checked, {n: a.shape for n, a in given.items()})}
    run = _Run(checked, types.infer(checked, dtypes), bound, exact)
    for name, array in given.items():
        if dtypes[name] is bf16:
            array = (as_bits(array).astype(np.uint32) << np.uint32(16)).view(np.float32)
        run.tensors[name] = Typed(run.convert(array, dtypes[name]), dtypes[name])
    for n, eq in enumerate(checked.equations):
        try:
            run.equation(eq)
        except ShapeError as error:
            raise ShapeError(f"{op.name}: {error}{located(op, n)}") from None
    run.finish()
    results = tuple(run.result(name) for name in op.returns)
    return results[0] if len(results) == 1 else results


class _Run(Evaluator):
    """One interpretation."""

    def __init__(
        self, checked: Checked, dtypes: Mapping[str, DType], sizes: Mapping[str, int], exact: bool
    ) -> None:
        super().__init__(sizes, exact)
        self.checked = checked
        self.dtypes = dtypes

    def result(self, name: str) -> Array:
        """A returned tensor, in its own type (floats in float64 if exact)."""
        array, dtype = self.tensors[name]
        if dtype is bf16 and not self.exact:
            return (array.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return array

    def equation(self, eq: Equation) -> None:
        """Computes all elements that the equation defines."""
        self.finish(eq.tensor)
        typed = _typed(eq, self.dtypes)
        if eq.reducer is not None:
            self._accumulate(typed, eq.reducer)
            return
        target = self._target(eq.tensor)
        reads = any(isinstance(item, Access) and item.tensor == eq.tensor for item in walk(eq.rhs))
        if reads:
            self._recurrence(typed, target)
            return
        for box in self.parts(Box({}, ()), typed.ranges):
            self._assign(typed, box, target)

    def finish(self, still: str | None = None) -> None:
        """All tensors but `still` are defined now, every element."""
        for name in [name for name in self.unwritten if name != still]:
            if self.unwritten.pop(name).any():
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
        return box if eq.where is None else box.masked(self.evaluate(eq.where, box).array)

    def _positions(self, eq: Equation, box: Box) -> list[Array] | None:
        positions = [self.evaluate(e, box).array for e in eq.lhs]
        return self.inside(Access(eq.tensor, eq.lhs), self._shape(eq.tensor), positions, box)

    def _assign(self, eq: Equation, box: Box, target: Array) -> None:
        box = self._guarded(eq, box)
        if not all(box.shape) or (box.mask is not None and not box.mask.any()):
            return
        dtype = self.dtypes[eq.tensor]
        value = self.convert(self.evaluate(eq.rhs, box).array, dtype)
        positions = self._positions(eq, box)
        if positions is None:
            return
        at, values = _active(positions, value, box)
        target[at] = values
        self.unwritten[eq.tensor][at] = False

    def _recurrence(self, eq: Equation, target: Array) -> None:
        """Runs the outermost index in order and the others at once; if an element is read before
        it is written, the two outermost in order, and so on: the order of the ranges is legal."""
        before = target.copy(), self.unwritten[eq.tensor].copy()
        for depth in range(1, len(eq.ranges) + 1):
            try:
                for box in self._sequence(Box({}, ()), eq.ranges, depth):
                    self._assign(eq, box, target)
                return
            except Unwritten:
                target[...], self.unwritten[eq.tensor][...] = before
        raise InternalError(f"{eq.tensor} is read before it is written, in every order tried")

    def _sequence(self, box: Box, ranges: tuple[Range, ...], depth: int) -> Iterator[Box]:
        """Boxes in which the first `depth` indices have one value each."""
        if depth == 0:
            yield self.extend(box, ranges)
            return
        lo, hi = (int(self.evaluate(e, box).array) for e in (ranges[0].lo, ranges[0].hi))
        for at in range(lo, hi):
            grid = {**box.grid, ranges[0].index: np.asarray(at, np.int64)}
            yield from self._sequence(Box(grid, ()), ranges[1:], depth - 1)

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
                    ufunc.at(target, where, values)
        self.tensors[eq.tensor] = Typed(self.convert(target, dtype), dtype)


def _typed(eq: Equation, env: Mapping[str, DType]) -> Equation:
    """The equation with every conversion explicit."""
    return Equation(
        eq.tensor,
        tuple(types.elaborate_index(e, env) for e in eq.lhs),
        types.elaborate(eq.rhs, env),
        eq.ranges,
        None if eq.where is None else types.elaborate_condition(eq.where, env),
        eq.reducer,
    )


def _active(positions: list[Array], value: Array, box: Box) -> tuple[tuple[Array, ...], Array]:
    """Positions and values of the instances that exist."""
    if box.mask is None:
        return tuple(positions), value
    mask = np.broadcast_to(box.mask, box.shape)
    at = tuple(np.broadcast_to(p, box.shape)[mask] for p in positions)
    return at, np.broadcast_to(value, box.shape)[mask]
