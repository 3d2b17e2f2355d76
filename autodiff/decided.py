"""Choices that the ranges of their indices decide are neither printed nor computed.

At the first step of a recurrence `where(t - 1 >= 0, h[t-1], 0)` is nothing, at the others h[t-1].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..algo.dtypes import bool_
from ..algo.tensor_expr.affine import bounds, is_affine, linear, normalize
from ..algo.tensor_expr.build import both, compare, conjuncts, sub
from ..algo.tensor_expr.canonical import Interval
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    substitute,
    transform,
    walk,
)
from ..algo.tensor_expr.op import Equation

NOTHING = Access("%nothing", ())
"""What a choice gives that leaves a sum."""


@dataclass(frozen=True, slots=True)
class Known:
    """What ranges say of their indices: of one that has several, nothing."""

    ranges: tuple[Range, ...] = ()
    numbers: Mapping[str, Interval] = field(default_factory=dict)


def known(ranges: Iterable[Range]) -> Known:
    """What `ranges` say: their ends, and the least and greatest values that are numbers."""
    ends: dict[str, Range] = {}
    numbers: dict[str, Interval] = {}
    for r in dict.fromkeys(ranges):
        if r.index in numbers:
            ends.pop(r.index, None)
            numbers[r.index] = (None, None)
            continue
        last = bounds(r.hi, {})[1]
        ends[r.index] = r
        numbers[r.index] = (bounds(r.lo, {})[0], None if last is None else last - 1)
    return Known(tuple(ends.values()), numbers)


def verdict(condition: Expr, of: Known) -> bool | None:
    """Whether a condition holds wherever indices are in their ranges, for sizes of 0 too, None if
    that depends."""
    found = normalize(condition, of.numbers)
    match found:
        case Const(value, _):
            return bool(value)
        case Call("lt" | "le" | "gt" | "ge" as op, (a, b)) if of.ranges and is_affine(found):
            for holds in (True, False):
                end = _end(sub(a, b), of, 1 if (op in ("lt", "le")) is holds else -1)
                if normalize(compare(op, end, Const(0)), of.numbers) is Const(holds, bool_):
                    return holds
    return None


def _end(value: Expr, of: Known, sign: int) -> Expr:
    """A formula that is nowhere less than `value` (for `sign` -1, greater): each index is put at
    an end of its range, inner ones first."""
    for r in reversed(of.ranges):
        index = Index(r.index)
        form = linear(value)
        if form is not None and form.of(index) and not form.inside(r.index):
            last = form.of(index) * sign > 0
            value = substitute(value, {index: sub(r.hi, Const(1)) if last else r.lo})
    return value


def decided(eq: Equation, partial: bool) -> Equation:
    """The equation without choices that are the same at all of its instances.

    In one of several equations of its tensor (`partial`) what is nothing here leaves sums, with all
    that it is multiplied by: the others say the type.
    """
    of = known([*eq.ranges, *(r for r in walk(eq.rhs) if isinstance(r, Range))])
    value = transform(eq.rhs, lambda e: _chosen(e, of))
    less = transform(value, lambda e: _without(e, of)) if partial else value
    if less is NOTHING:
        value = Const(0)
    elif NOTHING not in walk(less):
        value = less
    return Equation(eq.tensor, eq.lhs, value, eq.ranges, eq.where, eq.reducer)


def _chosen(item: Expr, of: Known) -> Expr:
    """A choice between a value and a number under those of its conditions that are open."""
    match item:
        case Call("where", (condition, yes, Const(bool() | int(), None) as no)):
            left: Expr | None = None
            for part in conjuncts(condition):
                left = left if verdict(part, of) else both(left, part)
            return yes if left is None else Call("where", (left, yes, no))
    return item


def _without(item: Expr, of: Known) -> Expr:
    """A choice that gives 0, and a product with one, as nothing; a sum without it."""
    match item:
        case Call("where", (condition, _, Const(bool() | int() as no, None))) if not no and any(
            verdict(part, of) is False for part in conjuncts(condition)
        ):
            return NOTHING
        case Call("mul", (a, b)) if NOTHING in (a, b):
            return NOTHING
        case Call("div" | "neg", (a, *_)) | Reduce("sum", _, a) if a is NOTHING:
            return NOTHING
        case Call("add", (a, b)) if NOTHING in (a, b):
            return a if b is NOTHING else b
        case Call("sub", (a, b)) if NOTHING in (a, b):
            return a if b is NOTHING else Call("neg", (b,))
    return item
