"""Bounds of loop variables from the loops around: what `affine.bounds` and `normalize` ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..algo.tensor_expr.affine import Interval, bounds
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
