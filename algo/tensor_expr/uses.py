"""How an equation uses tensors: every access with the scope and the guards it stands under."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from .affine import is_affine
from .binding import map_reductions
from .expr import (
    Access,
    Call,
    Expr,
    Index,
    Range,
    Reduce,
    children,
    indices_of,
    rebuild,
    transform,
    walk,
)
from .op import Equation


@dataclass(frozen=True, slots=True)
class Use:
    """One dimension of one access: `expr` has to be an index into dimension `dim` of `tensor`.

    `scope` lists the reduction indices around it, outermost first; the equation's own indices are
    in scope everywhere. `guards` are affine conditions that hold where the access happens.
    `guarded` says that the condition of some `where(c, a, b)` around it restricts its indices, so
    that it constrains none of them; it is proved under its guards all the same (a condition on
    data restricts no index). `write` marks the left side.
    """

    access: Access
    dim: int
    scope: tuple[str, ...]
    guards: tuple[Expr, ...]
    guarded: bool
    write: bool = False

    @property
    def expr(self) -> Expr:
        return self.access.indices[self.dim]

    @property
    def tensor(self) -> str:
        return self.access.tensor


class Read(NamedTuple):
    """One access that is read, with the reduction indices and the guards it stands under: see
    `Use`. A tensor without dimensions is read too, though nothing indexes it."""

    access: Access
    scope: tuple[str, ...]
    guards: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an expression stands. `branches` are the guards that come from where(c, a, b)."""

    scope: tuple[str, ...] = ()
    guards: tuple[Expr, ...] = ()
    branches: tuple[Expr, ...] = ()

    def branch(self, conditions: tuple[Expr, ...]) -> _Place:
        return _Place(self.scope, self.guards + conditions, self.branches + conditions)

    def inside(self, indices: tuple[str, ...], where: Expr | None) -> _Place:
        return _Place(self.scope + indices, self.guards + _assume(where, True), self.branches)


@lru_cache(maxsize=1 << 12)
def uses(eq: Equation) -> tuple[Use, ...]:
    """Every use of an equation in reading order, the left side first.

    Dimensions whose index depends on data are left out: only a check at run time can tell.
    """
    written = (Access(eq.tensor, eq.lhs), _Place((), _assume(eq.where, True)))
    every = [
        Use(access, dim, place.scope, place.guards, _is_guarded(index, place), write)
        for write, found in ((True, [written]), (False, _placed(eq)))
        for access, place in found
        for dim, index in enumerate(access.indices)
        if not depends_on_data(index)
    ]
    return tuple(_without_total(eq, every) if any(u.access.boundary for u in every) else every)


def reads_of(eq: Equation) -> tuple[Read, ...]:
    """Every read of an equation in reading order, those of tensors without dimensions too."""
    return tuple(dict.fromkeys(Read(a, place.scope, place.guards) for a, place in _placed(eq)))


@lru_cache(maxsize=1 << 12)
def _placed(eq: Equation) -> tuple[tuple[Access, _Place], ...]:
    """Every read of an equation with where it stands, in reading order."""
    held = _Place((), _assume(eq.where, True))
    found: dict[tuple[Access, _Place], None] = {}
    seen: set[tuple[Expr, _Place]] = set()
    stack: list[tuple[Expr, _Place]] = [(eq.rhs, held)]
    stack += [] if eq.where is None else [(eq.where, held)]
    stack += [(e, held) for r in eq.ranges for e in (r.hi, r.lo)]
    stack += [(e, held) for e in reversed(eq.lhs)]
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        expr, place = item
        match expr:
            case Access():
                found.setdefault((expr, place))
                stack += [(e, place) for e in reversed(expr.indices)]
            case Reduce(_, indices, body, ranges, where, _):
                stack.append((body, place.inside(indices, where)))
                if where is not None:
                    stack.append((where, place.inside(indices, where)))
                stack += [(r, place) for r in ranges]
            case Call("where", (cond, yes, no)):
                stack.append((no, place.branch(_assume(cond, False))))
                stack.append((yes, place.branch(_assume(cond, True))))
                stack.append((cond, place))
            case _:
                stack += [(e, place) for e in reversed(children(expr))]
    return tuple(found)


def _without_total(eq: Equation, every: list[Use]) -> list[Use]:
    """The uses that say something of their index.

    A total access allows an index every value, so it says nothing; but where nothing else says how
    far `i` goes, `x.edge[i]` means all of `x`.
    """
    roots = (eq.rhs, *eq.ranges)
    told = {r.index for root in roots for r in walk(root) if isinstance(r, Range)}
    for use in every:
        if use.access.boundary is None and not use.guarded and not use.write:
            told.update(indices_of(use.expr))
    return [
        u
        for u in every
        if u.access.boundary is None or (isinstance(u.expr, Index) and u.expr.name not in told)
    ]


def _is_guarded(index: Expr, place: _Place) -> bool:
    mine = set(indices_of(index))
    return any(not mine.isdisjoint(indices_of(guard)) for guard in place.branches)


def _assume(cond: Expr | None, value: bool) -> tuple[Expr, ...]:
    """The affine conditions that hold where `cond` has that value."""
    found: list[Expr] = []
    stack = [] if cond is None else [(cond, value)]
    while stack:
        item, holds = stack.pop()
        match item, holds:
            case (Call("and", (a, b)), True):
                stack += [(b, True), (a, True)]
            case _ if is_affine(item):
                found.append(item if holds else Call("not", (item,)))
            case (Call("or", (a, b)), False):
                stack += [(b, False), (a, False)]
            case (Call("not", (c,)), _):
                stack.append((c, not holds))
    return tuple(found)


def depends_on_data(index: Expr) -> bool:
    """Does an index expression read a tensor?"""
    return any(isinstance(item, Access) for item in walk(index))


def free_indices(eq: Equation) -> list[str]:
    """The indices that the equation itself runs over: those on the left, then the others."""
    names = dict.fromkeys(i for e in eq.lhs for i in indices_of(e))
    names.update(dict.fromkeys(r.index for r in eq.ranges))
    for expr in (*eq.ranges, *(() if eq.where is None else (eq.where,)), eq.rhs):
        names.update(dict.fromkeys(indices_of(expr)))
    return list(names)


def with_unique_binders(
    eq: Equation, taken_elsewhere: Iterable[str] = ()
) -> tuple[Equation, dict[str, str]]:
    """The equation with no index bound twice, and the original name of each new one.

    The later of two disjoint binders is renamed (`k` to `k_1`); equal reductions stay one object.
    """
    return _with_unique_binders(eq, tuple(taken_elsewhere))


@lru_cache(maxsize=1 << 12)
def _with_unique_binders(
    eq: Equation, taken_elsewhere: tuple[str, ...]
) -> tuple[Equation, dict[str, str]]:
    reductions = [item for item in walk(eq.rhs) if isinstance(item, Reduce)]
    if not reductions:
        return eq, {}
    taken = {*free_indices(eq), *taken_elsewhere}
    names = taken | {i for r in reductions for i in r.indices}
    origins: dict[str, str] = {}
    done: dict[Expr, Expr] = {}

    def change(expr: Reduce) -> Expr:
        if expr not in done:
            fresh = _renamed(expr, taken, names, origins)
            taken.update(fresh.indices)
            inner = tuple(map_reductions(child, change) for child in children(fresh))
            done[expr] = rebuild(fresh, inner)
        return done[expr]

    return replace_rhs(eq, map_reductions(eq.rhs, change)), origins


def holding(expr: Expr) -> set[Expr]:
    """The parts of an expression, itself included, that are or contain a reduction."""
    out: set[Expr] = set()
    for item in walk(expr):
        if isinstance(item, Reduce) or any(child in out for child in children(item)):
            out.add(item)
    return out


def _renamed(expr: Reduce, taken: set[str], names: set[str], origins: dict[str, str]) -> Reduce:
    new: dict[str, str] = {}
    for index in expr.indices:
        if index in taken:
            n = 1
            while f"{index}_{n}" in names:
                n += 1
            new[index] = f"{index}_{n}"
            names.add(new[index])
            origins[new[index]] = index
    return rename_binders(expr, new)


def rename_binders(expr: Reduce, new: Mapping[str, str]) -> Reduce:
    """A reduction with its own indices renamed."""
    if not new:
        return expr
    return Reduce(
        expr.reducer,
        tuple(new.get(i, i) for i in expr.indices),
        rename_free(expr.body, new),
        tuple(
            Range(new.get(r.index, r.index), rename_free(r.lo, new), rename_free(r.hi, new))
            for r in expr.ranges
        ),
        None if expr.where is None else rename_free(expr.where, new),
        expr.dtype,
    )


def rename_free(expr: Expr, new: Mapping[str, str]) -> Expr:
    """Renames free indices; what a reduction inside binds keeps its meaning."""
    if not new:
        return expr

    def inside(reduce: Reduce) -> Expr:
        free = {old: name for old, name in new.items() if old not in reduce.indices}
        return rebuild(reduce, tuple(rename_free(part, free) for part in children(reduce)))

    def rule(item: Expr) -> Expr:
        return Index(new.get(item.name, item.name)) if isinstance(item, Index) else item

    return map_reductions(expr, inside, rule)


def map_exprs(eq: Equation, rule: Callable[[Expr], Expr]) -> Equation:
    """Applies a function, which keeps ranges ranges, to every expression of an equation."""
    ranges: tuple[Range, ...] = tuple(rule(r) for r in eq.ranges)  # type: ignore[misc]
    where = None if eq.where is None else rule(eq.where)
    return Equation(eq.tensor, tuple(map(rule, eq.lhs)), rule(eq.rhs), ranges, where, eq.reducer)


def with_ranges(eq: Equation, order: Iterable[str], ranges: Mapping[str, Range]) -> Equation:
    """The equation with the range of every index, on itself or on the reduction that binds it."""

    def fill(item: Expr) -> Expr:
        if isinstance(item, Reduce):
            full = tuple(ranges[i] for i in item.indices)
            return Reduce(item.reducer, item.indices, item.body, full, item.where, item.dtype)
        return item

    filled = replace_rhs(eq, transform(eq.rhs, fill))
    return Equation(
        eq.tensor, eq.lhs, filled.rhs, tuple(ranges[i] for i in order), eq.where, eq.reducer
    )


def replace_rhs(eq: Equation, rhs: Expr) -> Equation:
    """The equation with another right side."""
    return Equation(eq.tensor, eq.lhs, rhs, eq.ranges, eq.where, eq.reducer)
