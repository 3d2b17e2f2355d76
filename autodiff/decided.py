"""Choices that the ranges of their indices decide are neither printed nor computed.

At the first step of a recurrence `where(t - 1 >= 0, h[t-1], 0)` is nothing, at the others h[t-1].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..algo.tensor_expr.affine import bounds, normalize
from ..algo.tensor_expr.build import both, conjuncts
from ..algo.tensor_expr.canonical import Interval
from ..algo.tensor_expr.expr import Access, Call, Const, Expr, Range, Reduce, transform, walk
from ..algo.tensor_expr.op import Equation

NOTHING = Access("%nothing", ())
"""What a choice gives that leaves a sum."""


def intervals(ranges: Iterable[Range]) -> dict[str, Interval]:
    """The least and greatest values of indices, as far as the ends of their ranges say them; of
    one that has several ranges nothing is known."""
    known: dict[str, Interval] = {}
    for r in dict.fromkeys(ranges):
        last = bounds(r.hi, {})[1]
        here = (bounds(r.lo, {})[0], None if last is None else last - 1)
        known[r.index] = (None, None) if r.index in known else here
    return known


def verdict(condition: Expr, known: Mapping[str, Interval]) -> bool | None:
    """Whether a condition holds wherever indices are within bounds, None if that depends."""
    found = normalize(condition, known)
    return bool(found.value) if isinstance(found, Const) else None


def decided(eq: Equation, partial: bool) -> Equation:
    """The equation without choices that are the same at all of its instances.

    In one of several equations of its tensor (`partial`) what is nothing here leaves sums, with all
    that it is multiplied by: the others say the type.
    """
    known = intervals([*eq.ranges, *(r for r in walk(eq.rhs) if isinstance(r, Range))])
    value = transform(eq.rhs, lambda e: _chosen(e, known))
    less = transform(value, lambda e: _without(e, known)) if partial else value
    if less is NOTHING:
        value = Const(0)
    elif NOTHING not in walk(less):
        value = less
    return Equation(eq.tensor, eq.lhs, value, eq.ranges, eq.where, eq.reducer)


def _chosen(item: Expr, known: Mapping[str, Interval]) -> Expr:
    """A choice between a value and a number under those of its conditions that are open."""
    match item:
        case Call("where", (condition, yes, Const(bool() | int(), None) as no)):
            left: Expr | None = None
            for part in conjuncts(condition):
                left = left if verdict(part, known) else both(left, part)
            return yes if left is None else Call("where", (left, yes, no))
    return item


def _without(item: Expr, known: Mapping[str, Interval]) -> Expr:
    """A choice that gives 0, and a product with one, as nothing; a sum without it."""
    match item:
        case Call("where", (condition, _, Const(bool() | int() as no, None))) if not no and any(
            verdict(part, known) is False for part in conjuncts(condition)
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
