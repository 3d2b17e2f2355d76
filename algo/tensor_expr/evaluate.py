"""Typed expressions on NumPy arrays, over a whole box of instances at once.

A box is a set of indices, each an integer grid along an axis of its own, and a mask of the
instances that exist. New axes come in front, so that what was computed for fewer indices
broadcasts. Where an instance is masked off nothing faults: positions are clipped.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import DType, bf16, bool_, f32, f64, i64, integers, promote
from ..errors import InternalError, ShapeError
from .affine import in_turn
from .contraction import contract
from .elaborate import GREATEST
from .expr import (
    Access,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    Size,
    accesses,
    indices_of,
    transform,
)
from .folds import Part
from .operations import OPERATIONS
from .reducers import EXTREMES, REDUCERS, Reducer

Array = np.ndarray[Any, Any]
LIMIT = 1 << 22  # instances evaluated at once

UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "or": np.logical_or, "and": np.logical_and,
}  # fmt: skip


class Typed(NamedTuple):
    """An array and what its elements mean; bf16 is held in float32, rounded."""

    array: Array
    dtype: DType


class Unwritten(Exception):
    """An element is read before it is written: the order of a recurrence is too coarse."""


@dataclass(slots=True)
class Box:
    """`grid` has an int64 array an index; `shape` is that of the whole box; `mask` None is all."""

    grid: dict[str, Array]
    shape: tuple[int, ...]
    mask: Array | None = None
    outer: Box | None = None
    memo: dict[Expr, Typed] = field(default_factory=dict)

    def masked(self, condition: Array, memo: bool = True) -> Box:
        """The instances that also satisfy `condition`."""
        mask = condition if self.mask is None else np.logical_and(self.mask, condition)
        return Box(self.grid, self.shape, mask, self if memo else None)

    def find(self, expr: Expr) -> Typed | None:
        """What is known of `expr` here, or on a larger set of instances."""
        box: Box | None = self
        while box is not None:
            found = box.memo.get(expr)
            if found is not None:
                return found
            box = box.outer
        return None


Steps = Generator[tuple[Expr, Box], Typed, Typed]


class Evaluator:
    """Evaluates over given tensors. With `exact`, floats of every type are computed in float64.

    `unwritten` marks the elements of a tensor that is being defined and may not be read yet.
    """

    def __init__(self, sizes: Mapping[str, int], exact: bool) -> None:
        self.sizes = sizes
        self.exact = exact
        self.tensors: dict[str, Typed] = {}
        self.unwritten: dict[str, Array] = {}

    # -- types

    def storage(self, dtype: DType) -> np.dtype[Any]:
        """The NumPy type that holds a value of type `dtype` while computing."""
        if dtype.is_float and (self.exact or dtype is bf16):
            return np.dtype(np.float64 if self.exact else np.float32)
        return dtype.numpy

    def convert(self, value: Array, dtype: DType) -> Array:
        """`value` rounded or wrapped to `dtype`; floats to integers truncate and saturate."""
        value, storage = np.asarray(value), self.storage(dtype)
        if value.dtype == storage and dtype is not bf16:
            return value
        with np.errstate(all="ignore"):
            cut = value.dtype.kind == "f" and storage.kind in "iu"
            out = integers(value, storage) if cut else value.astype(storage, copy=False)
        return round_bf16(out) if dtype is bf16 and not self.exact else out

    # -- boxes

    def extend(
        self, box: Box, ranges: Iterable[Range], limits: Mapping[str, tuple[int, int]] | None = None
    ) -> Box:
        """`box` with further indices in front; `limits` narrows some of them to a part."""
        ranges = tuple(ranges)
        rank = len(box.shape)
        fresh = Box(dict(box.grid), box.shape, box.mask)
        extents: list[int] = []
        for axis, r in enumerate(ranges):
            around = Box(fresh.grid, (), fresh.mask)
            lo, hi = (self.evaluate(e, around).array for e in (r.lo, r.hi))
            first, end = (int(lo.min()), int(hi.max())) if lo.size and hi.size else (0, 0)
            if limits is not None and r.index in limits:
                first, end = max(first, limits[r.index][0]), min(end, limits[r.index][1])
            extents.append(max(0, end - first))
            shape = [1] * (len(ranges) + rank)
            shape[axis] = extents[-1]
            grid = np.arange(first, first + extents[-1], dtype=np.int64).reshape(shape)
            fresh.grid[r.index] = grid
            if lo.size > 1 or hi.size > 1:
                fresh = fresh.masked(np.logical_and(lo <= grid, grid < hi), memo=False)
        return Box(fresh.grid, (*extents, *box.shape), fresh.mask)

    def parts(self, box: Box, ranges: tuple[Range, ...]) -> Iterator[Box]:
        """`extend`, in several boxes cut along the longest of the new axes if it would be large."""
        whole = self.extend(box, ranges)
        count = math.prod(whole.shape)
        if count <= LIMIT or not ranges:
            yield whole
            return
        axis = max(range(len(ranges)), key=lambda n: whole.shape[n])
        name, extent = ranges[axis].index, whole.shape[axis]
        start, step = int(whole.grid[name].flat[0]), max(1, extent * LIMIT // count)
        for at in range(start, start + extent, step):
            yield self.extend(box, ranges, {name: (at, at + step)})

    # -- expressions

    def evaluate(self, expr: Expr, box: Box) -> Typed:
        """The value of `expr`, broadcastable to the box; a stack of its own, so depth is free."""
        stack: list[Steps] = []
        request: tuple[Expr, Box] | None = (expr, box)
        value: Typed | None = None
        while True:
            if request is not None:
                value = request[1].find(request[0])
                if value is None:
                    stack.append(self._steps(*request))
            if not stack:
                assert value is not None
                return value
            try:
                request = stack[-1].send(value)  # type: ignore[arg-type]
            except StopIteration as stop:
                stack.pop()
                request, value = None, stop.value

    def _steps(self, expr: Expr, box: Box) -> Steps:
        value = yield from self._value(expr, box)
        box.memo[expr] = value
        return value

    def _value(self, expr: Expr, box: Box) -> Steps:
        match expr:
            case Const(number, None):
                return self._literal(number)
            case Const(number, dtype) if dtype is not None:
                return Typed(self.convert(np.asarray(number), dtype), dtype)
            case Index(name):
                return Typed(box.grid[name], i64)
            case Size(name):
                return Typed(np.asarray(self.sizes[name], np.int64), i64)
            case Cast(dtype, arg):
                inner = yield arg, box
                return Typed(self.convert(inner.array, dtype), dtype)
            case Access(tensor, indices):
                positions = []
                for index in indices:
                    position = yield index, box
                    positions.append(position.array)
                return self.read(expr, tensor, positions, box)
            case Call("where", (condition, a, b)):
                chosen = (yield condition, box).array.astype(bool, copy=False)
                yes = yield a, box.masked(chosen)
                no = yield b, box.masked(np.logical_not(chosen))
                dtype = _common(yes.dtype, no.dtype)
                both = (self.convert(side.array, dtype) for side in (yes, no))
                return Typed(np.where(chosen, *both), dtype)
            case Call(op, args):
                values = []
                for arg in args:
                    values.append((yield arg, box))
                return self._call(str(op), values)
            case Reduce():
                return (yield from self._reduce(expr, box))
        raise InternalError(f"the interpreter met {expr!r}")

    def _literal(self, number: bool | int | float) -> Typed:
        if isinstance(number, bool):
            return Typed(np.asarray(number), bool_)
        if isinstance(number, int):
            return Typed(np.asarray(number, np.int64), i64)
        return Typed(np.asarray(number, np.float64), f64)

    def _call(self, op: str, values: list[Typed]) -> Typed:
        dtype = values[0].dtype
        for value in values[1:]:
            dtype = _common(dtype, value.dtype)
        operation = OPERATIONS[op]
        result = operation.numpy(*(self.convert(value.array, dtype) for value in values))
        if operation.result == "bool":
            dtype = bool_
        return Typed(self.convert(result, dtype), dtype)

    # -- tensors

    def read(self, expr: Expr, tensor: str, positions: list[Array], box: Box) -> Typed:
        """`tensor[positions]`. An active instance outside the tensor is an error."""
        array, dtype = self.tensors[tensor]
        inside = self.inside(expr, array.shape, positions, box)
        if inside is None:
            shape = np.broadcast_shapes(*(p.shape for p in positions))
            return Typed(np.zeros(shape, array.dtype), dtype)
        early = self.unwritten.get(tensor)
        if early is not None:
            bad = early[tuple(inside)]
            if np.any(bad if box.mask is None else np.logical_and(bad, box.mask)):
                raise Unwritten(tensor)
        return Typed(np.asarray(array[tuple(inside)]), dtype)

    def inside(
        self, expr: Expr, shape: tuple[int, ...], positions: list[Array], box: Box
    ) -> list[Array] | None:
        """`positions`, clipped where no instance is active; None if the tensor is empty."""
        out: list[Array] = []
        for dim, (position, extent) in enumerate(zip(positions, shape, strict=True)):
            if position.size and (position.min() < 0 or position.max() >= extent):
                bad = np.logical_or(position < 0, position >= extent)
                wrong = bad if box.mask is None else np.logical_and(bad, box.mask)
                if wrong.any() and 0 not in box.shape:
                    self._outside(expr, dim, extent, position, wrong, box)
                if extent == 0:
                    return None
                position = np.clip(position, 0, extent - 1)
            out.append(position)
        return out

    def _outside(
        self, expr: Expr, dim: int, extent: int, position: Array, wrong: Array, box: Box
    ) -> None:
        from .printer import print_expr

        shape = np.broadcast_shapes(position.shape, wrong.shape)
        first = tuple(np.argwhere(np.broadcast_to(wrong, shape))[0])
        value = int(np.broadcast_to(position, shape)[first])
        assert isinstance(expr, Access)
        plain = transform(expr, _as_written)
        assert isinstance(plain, Access)
        index = plain.indices[dim]
        if isinstance(index, Access):  # of u64 it may be more than i64 holds
            exact = self.evaluate(index, box).array
            value = int(np.broadcast_to(exact, shape)[first])
        message = f"{print_expr(plain)} is outside {expr.tensor}: dim {dim} has extent {extent}"
        if not accesses(index):
            raise InternalError(f"{message}, the index is {value}, though it was proved inside")
        used = [name for name in indices_of(index) if name in box.grid]
        whole = tuple(np.broadcast_shapes(shape, *(box.grid[name].shape for name in used)))
        first = (0,) * (len(whole) - len(first)) + first
        at = {name: int(np.broadcast_to(box.grid[name], whole)[first]) for name in used}
        shown = ", ".join(f"{name}={n}" for name, n in at.items())
        where = f" at {shown}" if at else ""
        raise ShapeError(f"{message}, but {print_expr(index)} is {value}{where}")

    # -- reductions

    def _reduce(self, expr: Reduce, box: Box) -> Steps:
        if isinstance(expr.reducer, Part):
            from .evaluate_fold import fold  # which needs this file

            return fold(self, [expr], [box], [[]])[0]
        if expr.reducer in EXTREMES:
            return (yield from self._extreme(expr, REDUCERS[EXTREMES[expr.reducer]], box))
        reducer = REDUCERS[expr.reducer]
        given = {r.index: r for r in expr.ranges}
        ranges = tuple(given[name] for name in expr.indices)
        whole = self.extend(box, ranges)
        if expr.reducer == "sum" and expr.where is None and whole.mask is None:
            product = yield from self._contraction(expr, whole, len(ranges))
            if product is not None:
                return product
        total: Array | None = None
        result: DType | None = None
        for part in self.parts(box, ranges):
            for condition in in_turn(expr.where):
                part = part.masked((yield condition, part).array)
            body = yield expr.body, part
            kind = expr.dtype or reducer.accumulator(body.dtype)
            result = expr.dtype or reducer.result(body.dtype)
            values = self.masked(self.convert(body.array, kind), part, reducer.identity(kind))
            own = part.shape[: len(ranges)]
            values = _spread(values, own, len(part.shape))
            axes = tuple(range(len(ranges)))
            found = self.combine(reducer.combine, values, axes, kind)
            total = found if total is None else UFUNCS[reducer.combine](total, found)
        assert total is not None and result is not None
        return Typed(self.convert(total, result), result)

    def _extreme(self, expr: Reduce, rule: Reducer, box: Box) -> Steps:
        """The first index of the extreme value by `rule`, part by part."""
        better = np.greater if rule.name == "max" else np.less
        none = np.iinfo(np.int64).max
        found: tuple[Array, Array] | None = None
        for part in self.parts(box, expr.ranges):
            for condition in in_turn(expr.where):
                part = part.masked((yield condition, part).array)
            body = yield expr.body, part
            values = self.masked(body.array, part, rule.identity(body.dtype))
            values = np.broadcast_to(values, part.shape)
            best = self.combine(rule.combine, values, (0,), body.dtype)
            attains = np.logical_or(values == best, values != values)
            if part.mask is not None:
                attains = np.logical_and(attains, part.mask)
            grid = part.grid[expr.indices[0]]
            at = np.where(attains, grid, none).min(axis=0, initial=none)
            if found is not None:
                before, place = found
                nan, was_nan = best != best, before != before
                wins = np.logical_or(better(best, before), np.logical_and(nan, ~was_nan))
                ties = np.logical_or(best == before, np.logical_and(nan, was_nan))
                at = np.where(wins, at, np.where(ties, np.minimum(at, place), place))
                best = np.where(wins, best, before)
            found = best, at
        assert found is not None
        return Typed(found[1], i64)

    def _contraction(
        self, expr: Reduce, box: Box, own: int
    ) -> Generator[tuple[Expr, Box], Typed, Typed | None]:
        """The sum over a product of two floats of the accumulator's type, if that is what it is."""
        match expr.body:
            case Call("mul", (left, right)):
                pass
            case _:
                return None
        for factor in (left, right):
            if math.prod(box.grid[name].size for name in indices_of(factor)) > LIMIT:
                return None
        a = yield left, box
        b = yield right, box
        kind = expr.dtype or a.dtype
        if a.dtype is not kind or b.dtype is not kind or kind not in (f32, f64):
            return None
        found = contract(a.array, b.array, box.shape, own)
        return None if found is None else Typed(self.convert(found, kind), kind)

    def combine(self, combine: str, values: Array, axes: tuple[int, ...], kind: DType) -> Array:
        """`values` combined along `axes`, in the accumulator's type."""
        ufunc = UFUNCS[combine]
        with np.errstate(all="ignore"):
            if kind is bool_:
                return np.asarray(ufunc.reduce(values, axis=axes))
            identity = REDUCERS[_NAMES[combine]].identity(kind)
            return np.asarray(
                ufunc.reduce(values, axis=axes, dtype=self.storage(kind), initial=identity)
            )

    def masked(self, values: Array, box: Box, identity: bool | int | float) -> Array:
        """`values` with the identity where there is no instance."""
        if box.mask is None:
            return values
        return np.where(box.mask, values, np.asarray(identity).astype(values.dtype))


def _as_written(expr: Expr) -> Expr:
    """An index without what its type added."""
    match expr:
        case Cast(dtype, arg) if dtype is i64:
            return arg
        case Call("min", (index, greatest)) if greatest is GREATEST:
            return index
    return expr


_NAMES = {reducer.combine: name for name, reducer in REDUCERS.items()}


def _common(a: DType, b: DType) -> DType:
    return a if a is b else promote(a, b)


def _spread(values: Array, own: tuple[int, ...], rank: int) -> Array:
    """`values` with its leading axes, the reduced ones, at their full extents."""
    values = values.reshape((1,) * (rank - values.ndim) + values.shape)
    return np.broadcast_to(values, own + values.shape[len(own) :])


def round_bf16(value: Array) -> Array:
    """float32 values rounded to the nearest bf16, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32).reshape(np.shape(value))
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    quiet = bits | np.uint32(0x400000)
    kept = np.where(np.isnan(value), quiet, rounded) & np.uint32(0xFFFF0000)
    return np.asarray(kept, np.uint32).view(np.float32)
