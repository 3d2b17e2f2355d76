"""Bounds of loop variables from the loops around: what `affine.bounds` and `normalize` ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..algo.tensor_expr.affine import Interval, bounds
from ..algo.tensor_expr.build import sub
from ..algo.tensor_expr.expr import Call, Expr
from .ir import For


def values_of(loop: For, known: Mapping[str, Interval]) -> Interval:
    """The least and largest value of a loop's variable while its body runs."""
    low, high = bounds(loop.lo, known)[0], bounds(loop.hi, known)[1]
    return low, None if high is None else high - 1


def known_of(loops: Iterable[For]) -> dict[str, Interval]:
    """The bounds of the variables of nested loops, outermost first."""
    known: dict[str, Interval] = {}
    for loop in loops:
        known[loop.var] = values_of(loop, known)
    return known


def most_iterations(loop: For, known: Mapping[str, Interval]) -> int | None:
    """An upper bound of a loop's iterations, or None where there is no constant one.

    A minimum in `hi` is taken apart: in `16*io .. min(16*io + 16, 50)` there are 16.
    """
    limits = [bounds(sub(hi, loop.lo), known)[1] for hi in _minima(loop.hi)]
    found = [limit for limit in limits if limit is not None]
    return -(-max(0, min(found)) // loop.step) if found else None


def _minima(expr: Expr) -> list[Expr]:
    if isinstance(expr, Call) and expr.op == "min":
        return [part for arg in expr.args for part in _minima(arg)]
    return [expr]
