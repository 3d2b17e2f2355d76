"""Recurrences of which every k-th step is kept, and the steps between are computed again.

    h[k*q, ..] = h_kept[q, ..]
    h[k*q+r, ..] = the step, for r in 1:k

The tensors that need each other have one step (`clock.py`). Of those that carry it, as many steps
in a row are kept as the next one reads; what a step computes for itself alone is computed again in
all of them. Segments need nothing of each other, so they may be computed at once. Source: Chen et
al., "Training Deep Nets with Sublinear Memory Cost" (arXiv:1604.06174).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..algo.errors import GradientError
from ..algo.tensor_expr.affine import Interval, linear, normalize
from ..algo.tensor_expr.build import add, both, compare, floordiv, maximum, minimum, mul, sub
from ..algo.tensor_expr.components import cycles_of
from ..algo.tensor_expr.domains import always
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    Range,
    indices_of,
    substitute,
    transform,
    walk,
)
from ..algo.tensor_expr.folds import groups, part_of
from ..algo.tensor_expr.op import Equation
from .clock import Clock, Recurrence
from .cotangent import inside_of
from .naming import fresh_name
from .statements import Normal, reads
from .tidy import mapped


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What is kept of recurrences: the shape of each tensor `kept`, the equations that `keep`
    them, and those by which all steps of a tensor are computed `again`."""

    kept: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    keep: list[Equation] = field(default_factory=list)
    again: dict[str, tuple[Equation, ...]] = field(default_factory=dict)


def checkpoints(form: Normal, steps: Mapping[str, int], whole: Collection[str]) -> Checkpoints:
    """Keeps every so many steps of recurrences; tensors of `whole` are known.

    Raises `GradientError` where steps have no number, need what is not kept, or need more steps
    before them than are between those that are kept.
    """
    made = Checkpoints()
    needs = [(eq.tensor, {a.tensor for a in reads(eq)}.difference(whole)) for eq in form.equations]
    cycles = cycles_of(needs, groups(form.equations))
    for name, every in steps.items():
        if name not in cycles:
            known = [t for t in whole if name in form.cycles and t in _mates(form, name)]
            are = "is" if len(known) == 1 else "are"
            where = f" where {' and '.join(known)} {are} known" if known else ""
            raise _refusal({name: every}, f"it is no recurrence{where}; keep it whole")
        if name in made.again:
            continue
        mine = {n: k for n, k in steps.items() if cycles.get(n) == cycles[name]}
        equations = [eq for eq in form.equations if cycles.get(eq.tensor) == cycles[name]]
        recurrence = Recurrence(equations, form.shapes)
        segments = _Segments(equations, form, _clock(recurrence, mine), every)
        segments.run(made, list(mine))
    return made


def _mates(form: Normal, name: str) -> list[str]:
    """The tensors that a recurrence needs and that need it, with itself."""
    return [t for t, part in form.cycles.items() if part == form.cycles[name]]


def _refusal(steps: Mapping[str, int], why: str) -> GradientError:
    (every, *_), names = steps.values(), " and ".join(steps)
    return GradientError(f"keep every {every} steps of {names}: {why}")


def _clock(recurrence: Recurrence, steps: Mapping[str, int]) -> Clock:
    """In which step the elements are computed, where those of `steps` are kept."""
    (name, every), *others = steps.items()
    for other, more in others:
        if more != every:
            why = f"it needs {other}, of which every {more} are kept; keep as many of both"
            raise _refusal({name: every}, why)
    clock = recurrence.clock(steps)
    if clock is None:
        missing = recurrence.carrying(steps)
        if not missing:
            need = "in no dimension does each step need the same steps before it"
            raise _refusal(steps, f"{need}; keep {'it' if len(steps) == 1 else 'them'} whole")
        wanted = "{" + ", ".join(f'"{n}": {every}' for n in (*steps, *missing)) + "}"
        need = f"each step needs {' and '.join(missing)} of those before it"
        raise _refusal(steps, f"{need}, so keep={wanted}")
    if clock.depth >= every:
        them = "it" if len(steps) == 1 else "them"
        need = f"each step needs the {clock.depth} before it"
        raise _refusal(steps, f"{need}; keep every {clock.depth + 1} or more, or keep {them} whole")
    return clock


class _Segments:
    """The equations of a recurrence from one kept step to the next."""

    def __init__(
        self, equations: Sequence[Equation], form: Normal, clock: Clock, every: int
    ) -> None:
        self.equations, self.form, self.clock, self.every = equations, form, clock, every

    def run(self, made: Checkpoints, names: Sequence[str]) -> None:
        """Adds what is kept of `names`, and how all is computed again."""
        again: list[Equation] = []
        for name in names:
            for row in range(self.clock.depths[name]):
                again.append(self._kept(made, name, row))
        for group in groups(self.equations):  # of a joint reduction the parts stay together
            parts = [self._split(self.equations[n]) for n in group]
            again += [eq for part in zip(*parts, strict=True) for eq in part]
        made.again.update(dict.fromkeys((eq.tensor for eq in again), tuple(again)))

    def _first(self, name: str) -> int:
        """The first step of a segment that is not computed in the one before."""
        return self.clock.depth - self.clock.depths[name]

    def _count(self, name: str, first: int) -> Expr:
        """How many of the steps of a tensor are `first`, or so many segments later."""
        end = self.clock.end(name, self.form.shapes[name][self.clock.dims[name]])
        return normalize(floordiv(add(end, Const(self.every - 1 - first)), Const(self.every)))

    def _kept(self, made: Checkpoints, name: str, row: int) -> Equation:
        """Keeps one step in each segment, and gives the equation that reads it."""
        shape, dim = self.form.shapes[name], self.clock.dims[name]
        first = self._first(name) + row
        kept = fresh_name(f"{name}_kept", {*self.form.shapes, *made.kept})
        made.kept[kept] = (*shape[:dim], self._count(name, first), *shape[dim + 1 :])
        at = _places([eq for eq in self.equations if eq.tensor == name], len(shape))
        step = add(mul(Const(self.every), at[dim]), Const(first))
        whole = (*at[:dim], self.clock.place(name, step), *at[dim + 1 :])
        ranges = tuple(
            Range(place.name, Const(0), extent)
            for place, extent in zip(at, made.kept[kept], strict=True)
        )
        made.keep.append(Equation(kept, at, Access(name, whole), ranges))
        return Equation(name, whole, Access(kept, at), ranges)

    def _split(self, eq: Equation) -> list[Equation]:
        """The equation at the steps before the first segment, and at those in segments."""
        return [*self._before(eq), *self._within(eq)]

    def _before(self, eq: Equation) -> list[Equation]:
        """The equation at the steps that come before all that is known."""
        run = self._run(eq)
        first = Const(self._first(eq.tensor))
        if _surely("ge", run.lower, first):
            return []
        if _surely("le", run.upper, first):
            return [eq]
        if run.along is None:
            return [_where(eq, compare("lt", run.step, first))]
        index, lo, hi = run.along.index, run.along.lo, run.along.hi
        end = run.at(first)
        start = lo if run.rises else normalize(add(end, Const(1)))
        stop = end if run.rises else hi
        part = _most(start, lo), _least(stop, hi)
        inside = inside_of(Index(index), part, (lo, hi))
        if part_of(eq.rhs) is not None and inside is not None:  # it would be the reduction's
            part, inside = (maximum(start, lo), minimum(stop, hi)), None
        ranges = tuple(Range(index, *part) if r is run.along else r for r in eq.ranges)
        return [Equation(eq.tensor, eq.lhs, eq.rhs, ranges, both(eq.where, inside))]

    def _within(self, eq: Equation) -> list[Equation]:
        """The equation at the steps of segments that are not kept."""
        run, depth, first = self._run(eq), self.clock.depth, self._first(eq.tensor)
        if run.along is None and isinstance(run.step, Const):
            since = int(run.step.value) - first
            is_known = since < 0 or since % self.every < self.clock.depths[eq.tensor]
            return [] if is_known else [eq]
        if _surely("le", run.upper, Const(depth)):
            return []
        taken = {r.index for root in eq.roots for r in walk(root) if isinstance(r, Range)}
        name = "t" if run.along is None else run.along.index
        outer, inner = (fresh_name(f"{name}{end}", taken) for end in "oi")
        step = normalize(add(mul(Const(self.every), Index(outer)), Index(inner)))
        within: dict[str, Interval] = {outer: (0, None), inner: (depth, first + self.every - 1)}
        loops = [
            Range(outer, Const(0), self._count(eq.tensor, depth)),
            Range(inner, Const(depth), Const(first + self.every)),
        ]
        if run.along is None:
            dim = self.clock.dims[eq.tensor]
            at = (*eq.lhs[:dim], self.clock.place(eq.tensor, step), *eq.lhs[dim + 1 :])
            fresh = Equation(eq.tensor, at, eq.rhs, (*loops, *eq.ranges), eq.where)
            return [_where(fresh, compare("eq", step, run.step))]
        new: dict[Expr, Expr] = {Index(name): run.at(step)}

        def moved(expr: Expr) -> Expr:
            return transform(normalize(substitute(expr, new), within), _chosen)

        fresh = mapped(eq, moved)
        ends: Expr | None = None
        if part_of(eq.rhs) is not None:  # a condition would be that of the reduction
            before = mul(Const(self.every), Index(outer))
            lo, hi = (normalize(sub(end, before)) for end in (run.lower, run.upper))
            loops[1] = Range(inner, _most(lo, loops[1].lo), _least(loops[1].hi, hi))
        else:
            if not _surely("le", run.lower, Const(depth)):
                ends = compare("ge", step, run.lower)
            ends = both(ends, compare("lt", step, run.upper))
        ranges: list[Range] = []
        for r in eq.ranges:
            ranges += loops if r is run.along else [Range(r.index, moved(r.lo), moved(r.hi))]
        return [Equation(eq.tensor, fresh.lhs, fresh.rhs, tuple(ranges), both(fresh.where, ends))]

    def _run(self, eq: Equation) -> _Run:
        step = self.clock.step(eq.tensor, eq.lhs[self.clock.dims[eq.tensor]])
        index = next(iter(indices_of(step)), None)
        along = next((r for r in eq.ranges if r.index == index), None)
        return _Run(step, along)


@dataclass(frozen=True, slots=True)
class _Run:
    """The steps of an equation: one, or one for each value of the index `along` which they go."""

    step: Expr
    along: Range | None

    @property
    def rises(self) -> bool:
        form = linear(self.step)
        assert form is not None
        return self.along is None or form.of(Index(self.along.index)) > 0

    @property
    def lower(self) -> Expr:
        """The first step."""
        return self._ends[0]

    @property
    def upper(self) -> Expr:
        """The step after the last one."""
        return normalize(add(self._ends[1], Const(1)))

    @property
    def _ends(self) -> tuple[Expr, Expr]:
        if self.along is None:
            return self.step, self.step
        ends = (self.along.lo, sub(self.along.hi, Const(1)))
        one, other = (self._with(end) for end in ends)
        return (one, other) if self.rises else (other, one)

    def _with(self, value: Expr) -> Expr:
        assert self.along is not None
        return normalize(substitute(self.step, {Index(self.along.index): value}))

    def at(self, step: Expr) -> Expr:
        """The value of the index in a step."""
        start = self._with(Const(0))
        return normalize(sub(step, start) if self.rises else sub(start, step))


def _places(equations: Sequence[Equation], rank: int) -> tuple[Index, ...]:
    """An index a dimension, called as one of the equations calls it where that is plain."""
    names: list[str] = []
    for n in range(rank):
        plain = [eq.lhs[n] for eq in equations]
        wanted = next((e.name for e in plain if isinstance(e, Index)), None)
        inside = (i for e in plain for i in indices_of(e))
        names.append(fresh_name(wanted or next(inside, f"i{n}"), names))
    return tuple(map(Index, names))


def _where(eq: Equation, condition: Expr) -> Equation:
    return Equation(eq.tensor, eq.lhs, eq.rhs, eq.ranges, both(eq.where, condition))


def _surely(op: str, one: Expr, other: Expr) -> bool:
    """Does a comparison hold for all sizes and indices?"""
    condition = normalize(compare(op, one, other))
    if isinstance(condition, Const):
        return bool(condition.value)
    return not indices_of(condition) and always(condition)


def _least(one: Expr, other: Expr) -> Expr:
    """The lesser of two formulas, one of them where it always is."""
    if _surely("le", one, other):
        return one
    return other if _surely("le", other, one) else minimum(one, other)


def _most(one: Expr, other: Expr) -> Expr:
    """The greater of two formulas, one of them where it always is."""
    if _surely("ge", one, other):
        return one
    return other if _surely("ge", other, one) else maximum(one, other)


def _chosen(item: Expr) -> Expr:
    """A choice that is decided, where what is left out has no type to give."""
    match item:
        case Call("where", (Const(True), yes, Const(_, None))):
            return yes
    return item
