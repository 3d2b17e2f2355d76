"""Expressions as isl objects: sets and maps over named dims, made without a detour by text.

isl's parser takes milliseconds for the domain of a statement, because it intersects condition by
condition. Here every expression becomes an isl function once for a frame (a list of dims and
sizes), and a conjunction becomes constraints of one basic set. Sets are made outside of any quota
and remembered, so that what a question costs does not depend on what was asked before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any

from .. import isl
from ..isl import raw
from .build import conjuncts, negation
from .canonical import constant
from .expr import Call, Const, Expr, Index, Size, walk
from .isl_text import not_affine

_Function = Any
"""isl's `Aff` where that is enough, `PwAff` where there are minima."""


def points(
    dims: Sequence[str], conditions: Iterable[Expr] = (), sizes: Sequence[str] = (), space: str = ""
) -> raw.Set:
    """`[sizes] -> { space[dims] : conditions }`; `OpError` where one is not quasi-affine."""
    with isl.building():
        found = _points(tuple(dims), tuple(dict.fromkeys(conditions)), tuple(sizes))
        return found.set_tuple_name(isl.ident(space)) if space else found


def mapping(
    dims: Sequence[str],
    images: Sequence[Expr],
    conditions: Iterable[Expr] = (),
    sizes: Sequence[str] = (),
    spaces: tuple[str, str] = ("", ""),
) -> raw.Map:
    """`[sizes] -> { a[dims] -> b[images] : conditions }`."""
    with isl.building():
        distinct = tuple(dict.fromkeys(conditions))
        return _named(_mapping(tuple(dims), tuple(images), distinct, tuple(sizes)), spaces)


def pairing(
    dims: Sequence[str],
    others: Sequence[str],
    conditions: Iterable[Expr] = (),
    sizes: Sequence[str] = (),
    spaces: tuple[str, str] = ("", ""),
) -> raw.Map:
    """`[sizes] -> { a[dims] -> b[others] : conditions }`, the names of all dims being distinct."""
    with isl.building():
        both = raw.Map.from_range(points([*dims, *others], conditions, sizes))
        return _named(both.move_dims(raw.dim_type.in_, 0, raw.dim_type.out, 0, len(dims)), spaces)


def _named(found: raw.Map, spaces: tuple[str, str]) -> raw.Map:
    for kind, space in zip((raw.dim_type.in_, raw.dim_type.out), spaces, strict=True):
        found = found.set_tuple_name(kind, isl.ident(space)) if space else found
    return found


@lru_cache(maxsize=4096)
def _points(dims: tuple[str, ...], conditions: tuple[Expr, ...], sizes: tuple[str, ...]) -> raw.Set:
    frame = _frame(dims, sizes)
    convex = raw.BasicSet.universe(frame.space)
    rest: list[raw.Set] = []
    for condition in conditions:
        for part in conjuncts(condition):
            constraint = frame.constraint(part)
            if constraint is None:
                rest.append(frame.value(part))
            else:
                convex = convex.add_constraint(constraint)
    return reduce(raw.Set.intersect, rest, raw.Set.from_basic_set(convex))


@lru_cache(maxsize=4096)
def _mapping(
    dims: tuple[str, ...],
    images: tuple[Expr, ...],
    conditions: tuple[Expr, ...],
    sizes: tuple[str, ...],
) -> raw.Map:
    return _function(dims, images, sizes).intersect_domain(_points(dims, conditions, sizes))


@lru_cache(maxsize=4096)
def _function(dims: tuple[str, ...], images: tuple[Expr, ...], sizes: tuple[str, ...]) -> raw.Map:
    frame = _frame(dims, sizes)
    values = [frame.value(image) for image in images]
    space = frame.space.from_domain().add_dims(raw.dim_type.out, len(values))
    if all(isinstance(value, raw.Aff) for value in values):
        affs = raw.AffList.alloc(raw.DEFAULT_CONTEXT, len(values))
        return raw.Map.from_multi_aff(raw.MultiAff.from_aff_list(space, reduce(_add, values, affs)))
    pieces = raw.PwAffList.alloc(raw.DEFAULT_CONTEXT, len(values))
    pieces = reduce(_add, map(_piecewise, values), pieces)
    return raw.MultiPwAff.from_pw_aff_list(space, pieces).as_map()


@lru_cache(maxsize=1024)
def _frame(dims: tuple[str, ...], sizes: tuple[str, ...]) -> _Frame:
    return _Frame(dims, sizes)


class _Frame:
    """Dims and sizes, and what expressions over them are in isl."""

    def __init__(self, dims: tuple[str, ...], sizes: tuple[str, ...]) -> None:
        self.space: raw.Space = raw.Space.create_from_names(
            raw.DEFAULT_CONTEXT, set=[*map(isl.ident, dims)], params=[*map(isl.ident, sizes)]
        )
        self._local = raw.LocalSpace.from_space(self.space)
        self._places = {Size(name): (raw.dim_type.param, n) for n, name in enumerate(sizes)} | {
            Index(name): (raw.dim_type.set, n) for n, name in enumerate(dims)
        }
        self._values: dict[Expr, Any] = {}
        self._constraints: dict[Expr, raw.Constraint | None] = {}

    def value(self, expr: Expr) -> Any:
        """An arithmetic expression as a function, a condition as a set."""
        found = self._values.get(expr)
        if found is None:
            for item in walk(expr):
                if item not in self._values:
                    self._values[item] = self._make(item)
            found = self._values[expr]
        return found

    def constraint(self, expr: Expr) -> raw.Constraint | None:
        """A comparison of affine functions as one constraint; None for what is not one."""
        if expr not in self._constraints:
            self._constraints[expr] = self._constraint(expr)
        return self._constraints[expr]

    def _constraint(self, expr: Expr) -> raw.Constraint | None:
        match expr:
            case Call("lt" | "le" | "gt" | "ge" | "eq" as op, (left, right)):
                a, b = self.value(left), self.value(right)
                if not (isinstance(a, raw.Aff) and isinstance(b, raw.Aff)):
                    return None
                if op == "eq":
                    return raw.Constraint.equality_from_aff(a.sub(b))
                more = b.sub(a) if op in ("lt", "le") else a.sub(b)
                if op in ("lt", "gt"):
                    more = more.add_constant_val(raw.Val(-1))
                return raw.Constraint.inequality_from_aff(more)
        return None

    def _make(self, item: Expr) -> Any:
        match item:
            case Index() | Size() if item in self._places:
                return raw.Aff.var_on_domain(self._local, *self._places[item])
            case Const(bool() as value, _):
                return raw.Set.universe(self.space) if value else raw.Set.empty(self.space)
            case Const(int() as value, _):
                return raw.Aff.val_on_domain(self._local, isl.number(value))
            case Call("and", (a, b)):
                return self._values[a].intersect(self._values[b])
            case Call("or", (a, b)):
                return self._values[a].union(self._values[b])
            case Call("not", (a,)) if (opposite := negation(a)) is not item:
                return self.value(opposite)
            case Call("neg", (a,)):
                return self._values[a].neg()
            case Call("mul", (a, b)):
                x, y = constant(a), constant(b)
                if x is not None:
                    return self._values[b].scale_val(isl.number(x))
                if y is not None:
                    return self._values[a].scale_val(isl.number(y))
            case Call("floordiv" | "mod" as op, (a, b)) if (by := constant(b)) is not None:
                return self._division(op, self._values[a], by)
            case Call(op, (a, b)) if op in _ON_FUNCTIONS:
                return _apply(op, self._values[a], self._values[b])
        raise not_affine(item)

    def _division(self, op: str, value: _Function, by: int) -> _Function:
        if by == 0:
            return raw.Aff.zero_on_domain(self._local)
        value, step = value if by > 0 else value.neg(), isl.number(abs(by))
        if op == "floordiv":
            return value.scale_down_val(step).floor()
        return value.mod_val(step) if by > 0 else value.mod_val(step).neg()


_ON_FUNCTIONS = {
    "add": "add", "sub": "sub", "min": "min", "max": "max",
    "lt": "lt_set", "le": "le_set", "gt": "gt_set", "ge": "ge_set", "eq": "eq_set", "ne": "ne_set",
}  # fmt: skip


def _apply(op: str, a: _Function, b: _Function) -> Any:
    plain = isinstance(a, raw.Aff) and isinstance(b, raw.Aff) and op not in ("min", "max")
    method = _ON_FUNCTIONS[op]
    return getattr(a, method)(b) if plain else getattr(_piecewise(a), method)(_piecewise(b))


def _piecewise(value: _Function) -> raw.PwAff:
    return raw.PwAff.from_aff(value) if isinstance(value, raw.Aff) else value


def _add(items: Any, item: Any) -> Any:
    return items.add(item)
