"""Which reduction binds which index: the rule of DESIGN section 2, for text and traced code alike.

An index that is not on the left belongs to the innermost reducer that contains all its uses;
disjoint reducers bind theirs separately; `over=` binds exactly what it names. Front ends write a
reduction whose indices are still to be found as `Reduce` over `OPEN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .build import both
from .expr import Expr, Index, Range, Reduce, children, indices_of, rebuild

OPEN = ("*",)


class BindingError(Exception):
    """Why an index could not be bound; `name` is what the caller should point at."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(slots=True)
class Bound:
    """`rhs` with every reduction closed; `free` are the indices that no reduction binds.

    `ranges` and `conditions` are those of the given ones that belong to no reduction.
    """

    rhs: Expr
    free: tuple[str, ...]
    ranges: tuple[Range, ...]
    conditions: tuple[Expr, ...]


@dataclass(slots=True)
class _Given:
    """The ranges and conditions of an equation, and which of them found their reduction."""

    ranges: Mapping[str, Range]
    conditions: Sequence[Expr]
    left: frozenset[str]
    used: set[object] = field(default_factory=set)
    closed: dict[tuple[Reduce, frozenset[str]], Reduce] = field(default_factory=dict)


def bind(
    rhs: Expr,
    left: Iterable[str],
    ranges: Sequence[Range] = (),
    conditions: Sequence[Expr] = (),
    accumulates: bool = False,
) -> Bound:
    """Closes every open reduction of an equation's right side.

    `left` are the indices of the left side. Given `ranges` and `conditions` move into the
    reductions that bind their indices. An accumulating equation takes the indices that are used
    outside every reducer, and those that `over=` leaves out; otherwise these are an error.
    """
    direct, tops = _survey((rhs,))
    outside = [name for name in direct if name not in set(left)]
    for reduce in tops if accumulates else ():
        if reduce.indices != OPEN:
            outside += stays(reduce, {*left, *outside, *reduce.indices})
    if outside and not accumulates:
        name = outside[0]
        raise BindingError(
            f"index {name} is not on the left and is used outside any reducer; "
            f"put it on the left, or reduce over it: sum(...)",
            name,
        )
    taken = frozenset(left) | frozenset(outside)
    given = _Given({r.index: r for r in ranges}, conditions, taken)
    closed = {reduce: _close(reduce, taken, given) for reduce in tops}
    for r in ranges:
        if r.index not in taken and r not in given.used:
            if not accumulates:
                raise BindingError(f"index {r.index} has a range but is never used", r.index)
            outside.append(r.index)  # each of its values counts, as in n += 1 where k in 0:K
    taken = frozenset(left) | frozenset(outside)
    rest = tuple(r for r in ranges if r.index in taken)
    keep: list[Expr] = []
    for condition in conditions:
        if condition in given.used:
            continue
        strange = [name for name in indices_of(condition) if name not in taken]
        if strange:
            raise BindingError(
                f"no reduction binds all indices of this condition: {', '.join(strange)}; "
                f"give it to the reducer as where=",
                strange[0],
            )
        keep.append(condition)
    return Bound(replace_reductions(rhs, closed), tuple(outside), rest, tuple(keep))


def _close(reduce: Reduce, taken: frozenset[str], given: _Given) -> Reduce:
    """`reduce` with its indices found, and everything inside it closed."""
    key = reduce, taken
    if key not in given.closed:
        given.closed[key] = _closed(reduce, taken, given)
    return given.closed[key]


def _closed(reduce: Reduce, taken: frozenset[str], given: _Given) -> Reduce:
    stay = stays(reduce, taken)
    own = tuple(stay) if reduce.indices == OPEN else reduce.indices
    for name in own:
        if name in given.left:
            raise BindingError(
                f"{reduce.reducer} reduces over {name}, which the equation itself runs over; "
                f"use another name",
                name,
            )
        if name in taken:
            raise BindingError(
                f"{reduce.reducer} reduces over {name}, which a reducer around it binds already; "
                f"use another name",
                name,
            )
    if reduce.indices == OPEN:
        if not own:
            raise BindingError(
                f"{reduce.reducer} reduces over nothing: its indices are on the left or belong to "
                f"another reducer; name its index with over=",
                str(reduce.reducer),
            )
    elif stay:
        raise BindingError(
            f"index {stay[0]} is not on the left, and {reduce.reducer} reduces over "
            f"({', '.join(own)}) only; add it to over=",
            stay[0],
        )
    inside = taken | frozenset(own)
    ranges = list(reduce.ranges)
    for name in own:
        extra = given.ranges.get(name)
        if extra is None:
            continue
        if any(r.index == name for r in ranges):
            raise BindingError(f"index {name} has two ranges", name)
        given.used.add(extra)
        ranges.append(extra)
    ranges.sort(key=lambda r: own.index(r.index))
    where = reduce.where
    for condition in given.conditions:
        named = indices_of(condition)
        if set(named) <= inside and any(name in own for name in named):
            given.used.add(condition)
            where = both(where, condition)
    _, tops = _survey(children(reduce))
    closed = {inner: _close(inner, inside, given) for inner in tops}
    body = replace_reductions(reduce.body, closed)
    limits = tuple(replace_reductions(r, closed) for r in ranges)
    guard = None if where is None else replace_reductions(where, closed)
    return Reduce(reduce.reducer, own, body, limits, guard, reduce.dtype)  # type: ignore[arg-type]


def stays(reduce: Reduce, taken: Iterable[str]) -> list[str]:
    """The indices, but those taken, that belong to a reduction and to none inside it."""
    known = frozenset(taken)
    names = [name for name in indices_of(reduce) if name not in known]
    return [name for name in names if not _sinks(name, reduce)]


def _sinks(name: str, reduce: Reduce) -> bool:
    """Does an open reduction inside `reduce` contain all uses that `reduce` has of `name`?"""
    direct, tops = _survey(children(reduce))
    if name in direct:
        return False
    holders = [(inner, count) for inner, count in tops.items() if name in indices_of(inner)]
    if len(holders) != 1 or holders[0][1] > 1:
        return False
    inner = holders[0][0]
    return inner.indices == OPEN or _sinks(name, inner)


def _survey(roots: Iterable[Expr]) -> tuple[list[str], dict[Reduce, int]]:
    """The indices used outside every reduction, and the outermost reductions, each with the number
    of places in which it stands (2 for more)."""
    direct: dict[str, None] = {}
    tops: dict[Reduce, int] = {}
    roots = tuple(roots)
    uses: dict[Expr, int] = {}
    inner_first: list[Expr] = []
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        item, done = stack.pop()
        if done:
            inner_first.append(item)
        elif item not in uses:
            uses[item] = 0
            if isinstance(item, Index):
                direct.setdefault(item.name)
            elif isinstance(item, Reduce):
                tops[item] = 0
            else:
                stack.append((item, True))
                stack.extend((child, False) for child in reversed(children(item)))
    for root in roots:
        uses[root] += 1
    for item in reversed(inner_first):  # in how many places it stands, of which more than 1 is many
        for child in children(item):
            uses[child] = min(uses[child] + uses[item], 2)
    return list(direct), {reduce: uses[reduce] for reduce in tops}


def replace_reductions(expr: Expr, by: Mapping[Reduce, Reduce]) -> Expr:
    """`expr` with its outermost reductions replaced; does not look inside them."""
    return map_reductions(expr, lambda reduce: by.get(reduce, reduce)) if by else expr


def map_reductions(
    expr: Expr, change: Callable[[Reduce], Expr], rule: Callable[[Expr], Expr] = lambda e: e
) -> Expr:
    """`expr` with `change` applied to each outermost reduction, in order, and `rule` to each part
    outside of them after its own parts."""
    return map_outermost(expr, lambda item: isinstance(item, Reduce), change, rule)


def map_outermost(
    expr: Expr,
    chosen: Callable[[Expr], bool],
    change: Callable[[Any], Expr],
    rule: Callable[[Expr], Expr] = lambda e: e,
) -> Expr:
    """`expr` with `change` applied to each outermost part that is `chosen`, in order, and `rule` to
    each part outside of them after its own parts."""
    done: dict[Expr, Expr] = {}
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        item, ready = stack.pop()
        if ready:
            done[item] = rule(rebuild(item, tuple(done[child] for child in children(item))))
        elif item in done:
            continue
        elif chosen(item):
            done[item] = change(item)
        else:
            stack.append((item, True))
            stack.extend((child, False) for child in reversed(children(item)))
    return done[expr]


def reopen(expr: Expr, keep: frozenset[Reduce] = frozenset()) -> Expr:
    """Every reduction open again except those in `keep`: what text without `over=` would say."""

    def change(reduce: Reduce) -> Expr:
        inner = tuple(map_reductions(child, change) for child in children(reduce))
        fresh = rebuild(reduce, inner)
        assert isinstance(fresh, Reduce)
        own = reduce.indices if reduce in keep else OPEN
        return Reduce(fresh.reducer, own, fresh.body, fresh.ranges, fresh.where, fresh.dtype)

    return map_reductions(expr, change)
