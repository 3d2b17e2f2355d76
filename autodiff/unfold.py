"""Reductions by users' reducers as equations that can be differentiated.

A reducer with a lift is its lift over all instances at once. Any other is a recurrence over the
prefixes of its instances, in their order: `P[0]` is the identity, `P[j+1]` combines `P[j]` with
instance j, or stays where instance j is none. Of several reduced indices the innermost is reduced
by a recurrence for each value of those around it, and what that gives is combined in turn: by
associativity the same. Source: reduction as a left fold, and the third homomorphism theorem
(Gibbons, "The third homomorphism theorem", 1996), by which a lift may replace it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..algo.dtypes import DType
from ..algo.tensor_expr.affine import normalize
from ..algo.tensor_expr.build import add, both, compare, sub
from ..algo.tensor_expr.domains import always, counterexample
from ..algo.tensor_expr.elaborate import typed_value
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    accesses,
    indices_of,
    substitute,
)
from ..algo.tensor_expr.fold_types import accumulator, identity
from ..algo.tensor_expr.folds import Fold, Part, part_of
from ..algo.tensor_expr.op import Equation
from .naming import fresh_name


@dataclass(frozen=True, slots=True)
class Component:
    """One component: its tensor, its own indices (those that not all have), what is combined.

    `dtype` is the type of its tensor and `acc` that in which it is combined, where they are known.
    """

    tensor: str
    own: tuple[Range, ...]
    lhs: tuple[Expr, ...]
    body: Expr
    dtype: DType | None

    @property
    def acc(self) -> DType | None:
        return None if self.dtype is None else accumulator(self.dtype)


@dataclass(frozen=True, slots=True)
class Folded:
    """A reduction by a fold: for all of `shared`, over those `reduced` where `where`.

    Every range is over sizes alone and counts from 0.
    """

    fold: Fold
    components: tuple[Component, ...]
    shared: tuple[Range, ...]
    reduced: tuple[Range, ...]
    where: Expr | None


@dataclass(frozen=True, slots=True)
class Unfolded:
    """The equations that define the results, and those of the tensors `inside` that they need."""

    inside: Mapping[str, tuple[Expr, ...]]
    equations: tuple[Equation, ...]


def is_plain(equation: Equation) -> bool:
    """Is it a component of a fold for all elements of its tensor, named by bare indices?"""
    if part_of(equation.rhs) is None or equation.reducer is not None or equation.where is not None:
        return False
    names = [e.name for e in equation.lhs if isinstance(e, Index)]
    boxes = all(r.lo is Const(0) and not indices_of(r.hi) for r in equation.ranges)
    return boxes and len(names) == len(equation.lhs) == len(set(names))


def folded(
    equations: Sequence[Equation],
    bodies: Sequence[Expr],
    reduced: Sequence[Range],
    where: Sequence[Expr],
    types: Mapping[str, DType],
) -> Folded:
    """The reduction that the plain equations of a fold are, over ranges that sizes alone bound."""
    shifts: dict[Expr, Expr] = {
        Index(r.index): add(Index(r.index), r.lo) for r in reduced if r.lo is not Const(0)
    }

    def shifted(expr: Expr) -> Expr:
        return normalize(substitute(expr, shifts)) if shifts else expr

    shared = tuple(r for r in equations[0].ranges if all(r in eq.ranges for eq in equations))
    part = part_of(equations[0].rhs)
    assert part is not None
    condition: Expr | None = None
    for c in where:
        condition = both(condition, shifted(c))
    components = []
    for eq, body in zip(equations, bodies, strict=True):
        own = tuple(r for r in eq.ranges if r not in shared)
        dtype = types.get(eq.tensor)
        made = Component(eq.tensor, own, eq.lhs, shifted(body), dtype)
        if made.acc is not None and _is_narrower(eq, made.acc, types):
            made = replace(made, body=Cast(made.acc, made.body))
        components.append(made)
    ranges = tuple(Range(r.index, Const(0), normalize(sub(r.hi, r.lo))) for r in reduced)
    return Folded(part.fold, tuple(components), shared, ranges, condition)


def _is_narrower(eq: Equation, acc: DType, types: Mapping[str, DType]) -> bool:
    """Is what a component reduces known to have another type than it is combined in?"""
    assert isinstance(eq.rhs, Reduce)
    if any(access.tensor not in types for access in accesses(eq.rhs.body)):
        return False
    kind = typed_value(eq.rhs.body, types).type
    return isinstance(kind, DType) and kind is not acc


def prefixes(reduction: Folded, taken: Collection[str]) -> Unfolded:
    """The recurrences over prefixes, in tensors whose names are not `taken`."""
    inside: dict[str, tuple[Expr, ...]] = {}
    equations: list[Equation] = []
    values = [c.body for c in reduction.components]
    where = reduction.where
    for level in reversed(range(len(reduction.reduced))):
        used = {*taken, *inside}
        names = [fresh_name(f"{c.tensor}_prefix", used) for c in reduction.components]
        step = _Level(reduction, level, names)
        inside |= step.shapes()
        equations += step.equations(values, where)
        values, where = step.results(), None
    for c, value in zip(reduction.components, values, strict=True):
        result = value if c.acc is c.dtype or c.dtype is None else Cast(c.dtype, value)
        equations.append(Equation(c.tensor, c.lhs, result, (*reduction.shared, *c.own)))
    return Unfolded(inside, tuple(equations))


@dataclass(frozen=True, slots=True)
class _Level:
    """The recurrence over one reduced index, for each value of those around it."""

    reduction: Folded
    level: int
    names: Sequence[str]

    @property
    def _around(self) -> tuple[Range, ...]:
        return (*self.reduction.shared, *self.reduction.reduced[: self.level])

    @property
    def _along(self) -> Range:
        return self.reduction.reduced[self.level]

    @property
    def _exists(self) -> Expr | None:
        """That the reduction is over no negative number of instances, None where that is so for
        all sizes, 0 too; of 0:N-1 there is no state at N = 0."""
        exists = compare("ge", self._along.hi, Const(0))
        return None if counterexample((), (), (exists,), least=0) is None else exists

    def _prefix(self, n: int, position: Expr) -> Access:
        """The state of component `n` after so many instances."""
        around, own = (
            tuple(Index(r.index) for r in ranges)
            for ranges in (self._around, self.reduction.components[n].own)
        )
        return Access(self.names[n], (*around, position, *own))

    def shapes(self) -> dict[str, tuple[Expr, ...]]:
        """The extents of the states."""
        states = normalize(add(self._along.hi, Const(1)))
        return {
            name: (*(r.hi for r in self._around), states, *(r.hi for r in c.own))
            for name, c in zip(self.names, self.reduction.components, strict=True)
        }

    def equations(self, values: Sequence[Expr], where: Expr | None) -> list[Equation]:
        """The recurrence that combines `values`, each where `where`."""
        fold, at = self.reduction.fold, Index(self._along.index)
        after = normalize(add(at, Const(1)))
        scalars: dict[Expr, Expr] = {}
        for n, (left, right) in enumerate(zip(fold.left, fold.right, strict=True)):
            scalars |= {Access(left, ()): self._prefix(n, at), Access(right, ()): values[n]}
        exists = self._exists
        # Where it fails at a size of 1, extents are inferred so that there is a first state.
        begins = exists if exists is not None and always(exists) else None
        out: list[Equation] = []
        for n, c in enumerate(self.reduction.components):
            first, then = self._prefix(n, Const(0)), self._prefix(n, after)
            start = _identity(fold, n, c.acc)
            ranges = (*self._around, *c.own)
            out.append(Equation(first.tensor, first.indices, start, ranges, begins))
            known: dict[Expr, Expr] = {
                fold.combine[m]: self._prefix(m, after) for m in self._reused(n)
            }
            value = substitute(substitute(fold.combine[n], known), scalars)
            if where is not None:
                value = Call("where", (where, value, self._prefix(n, at)))
            ranges = (*self._around, self._along, *c.own)
            out.append(Equation(then.tensor, then.indices, value, ranges))
        return out

    def _reused(self, n: int) -> list[int]:
        """The components whose new state says a part of what component `n` is combined to."""
        fold = self.reduction.fold
        return [
            m
            for m in fold.needs(n)
            if isinstance(fold.combine[m], Call) and fold.combine[m] is not fold.combine[n]
        ]

    def results(self) -> list[Expr]:
        """What all instances are combined to."""
        whole = [self._prefix(n, self._along.hi) for n in range(len(self.names))]
        exists = self._exists
        if exists is None:
            return list(whole)
        return [
            Call("where", (exists, state, _identity(self.reduction.fold, n, c.acc)))
            for n, (state, c) in enumerate(zip(whole, self.reduction.components, strict=True))
        ]


def _identity(fold: Fold, n: int, acc: DType | None) -> Const:
    """The identity of a component; a number of no type where that of the component is a float's."""
    if acc is None or acc.is_float:
        return Const(fold.identity[n].value)
    return identity(Part(fold, n), acc)
