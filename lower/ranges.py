"""Bounds of loop variables from the loops around: what `affine.bounds` and `normalize` ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from ..algo.tensor_expr.affine import Interval, bounds, linear, normalize
from ..algo.tensor_expr.build import const, minimum, sub
from ..algo.tensor_expr.expr import Call, Const, Expr, Index, substitute
from .ir import For, Let, Stmt


def values_of(loop: For, known: Mapping[str, Interval]) -> Interval:
    """The least and largest value of a loop's variable while its body runs."""
    low, high = bounds(loop.lo, known)[0], bounds(loop.hi, known)[1]
    return low, None if high is None else high - 1


def inside(stmt: Stmt, known: Mapping[str, Interval]) -> Mapping[str, Interval]:
    """What is known of variables inside a statement: of the one that it binds, too."""
    match stmt:
        case For(var=var):
            return {**known, var: values_of(stmt, known)}
        case Let(var, value, _):
            return {**known, var: bounds(value, known)}
    return known


def known_of(loops: Iterable[For]) -> dict[str, Interval]:
    """The bounds of the variables of nested loops, outermost first."""
    known: dict[str, Interval] = {}
    for loop in loops:
        known[loop.var] = values_of(loop, known)
    return known


def span(loop: For) -> Expr:
    """`hi - lo`, with a minimum in `hi` and a maximum in `lo` taken apart.

    In `16*io .. min(16*io + 16, 50)` it is min(16, 50 - 16*io), which shows that 16 is the most.
    """
    whole = normalize(sub(loop.hi, loop.lo))
    if isinstance(whole, Const):
        return whole
    parts = [sub(hi, lo) for hi in parts_of("min", loop.hi) for lo in parts_of("max", loop.lo)]
    return reduce(minimum, parts)


def span_of(loop: For, known: Mapping[str, Interval]) -> Interval:
    """The least and largest value of `hi - lo`."""
    return bounds(span(loop), known)


def most_iterations(loop: For, known: Mapping[str, Interval]) -> int | None:
    """An upper bound of a loop's iterations, or None where there is no constant one."""
    most = span_of(loop, known)[1]
    return None if most is None else max(0, -(-most // loop.step))


def parts_of(op: str, expr: Expr) -> list[Expr]:
    """The arguments of nested minima (`op` min) or maxima."""
    found: list[Expr] = []
    stack = [expr]
    while stack:
        item = stack.pop()
        if isinstance(item, Call) and item.op == op:
            stack.extend(reversed(item.args))
        else:
            found.append(item)
    return found


def least(expr: Expr, loops: Sequence[For], known: Mapping[str, Interval]) -> int | None:
    """A lower bound of an expression inside of nested loops, given outermost first.

    Variables give way to the ends of their loops, innermost first, so that what loops have in
    common counts: 505 - 96*io - 8*ii is at least 1 where ii ends at min(64 - 12*io, 12).
    """
    if not loops:
        return bounds(expr, known)[0]
    form, loop = linear(expr), loops[-1]
    step = 0 if form is None else form.of(Index(loop.var))
    ends: list[Expr] = [Index(loop.var)]
    if step < 0:
        ends = [sub(end, const(1)) for end in parts_of("min", loop.hi)]
    elif step > 0:
        ends = parts_of("max", loop.lo)
    found = [
        least(normalize(substitute(expr, {Index(loop.var): end})), loops[:-1], known)
        for end in ends
    ]
    return max((low for low in found if low is not None), default=None)
