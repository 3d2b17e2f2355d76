"""Proofs that every access of an equation stays inside its tensor, for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..errors import OpError
from ..isl import Answer
from .affine import is_affine, normalize
from .build import compare, const
from .coverage import at_sizes
from .domains import closure, counterexample, within
from .expr import Expr, Index, Range, Size, indices_of, substitute
from .op import Equation
from .printer import print_expr
from .uses import Use

Extent = Callable[[str, int], Expr]
"""The extent of a dimension of a tensor."""

Fail = Callable[[str], OpError]
"""The error about the equation, with a message."""


def check_bounds(
    equation: Equation, uses: Sequence[Use], ranges: Mapping[str, Range], extent: Extent, fail: Fail
) -> None:
    """Raises `OpError` with an instance where a use is outside, or where no proof is found."""
    groups: dict[tuple[tuple[str, ...], tuple[Expr, ...]], list[Use]] = {}
    for use in uses:
        if not _runs_over(use, ranges, extent):
            groups.setdefault((use.scope, use.guards), []).append(use)
    for (scope, guards), group in groups.items():
        dims = [r.index for r in equation.ranges] + list(scope)
        given = [*within(ranges[d] for d in dims), *guards]
        claims = [c for use in group for c in claims_of(use, extent(use.tensor, use.dim))]
        if counterexample(dims, given, claims) is None:
            continue
        for use in group:  # one of them fails: which?
            _blame(use, dims, given, extent, fail)


def stays_inside(
    written: Mapping[str, Range], use: Use, extent: Callable[[str, int], Expr | None]
) -> bool:
    """Do the ranges that are written and the conditions keep it inside, whatever the sizes are?"""
    end = extent(use.tensor, use.dim)
    if end is None or not all(is_affine(e) for r in written.values() for e in (r.lo, r.hi)):
        return False
    named = dict.fromkeys(i for e in (use.expr, *use.guards) for i in indices_of(e))
    around = closure(named, written)
    given = [*within(written[d] for d in around), *use.guards]
    dims = tuple(dict.fromkeys([*around, *named]))
    return counterexample(dims, given, claims_of(use, end), 0) is None


def _runs_over(use: Use, ranges: Mapping[str, Range], extent: Extent) -> bool:
    """Is it an index that by its range runs over the dimension?"""
    if not isinstance(use.expr, Index):
        return False
    r = ranges[use.expr.name]
    return r.lo is const(0) and r.hi is extent(use.tensor, use.dim)


def claims_of(use: Use, end: Expr) -> list[Expr]:
    """That an index is inside of a dimension that ends there."""
    return [compare("le", const(0), use.expr), compare("lt", use.expr, end)]


def _blame(
    use: Use, dims: Sequence[str], given: Sequence[Expr], extent: Extent, fail: Fail
) -> None:
    point = counterexample(dims, given, claims_of(use, extent(use.tensor, use.dim)))
    if point is None:
        return
    verb = "writes" if use.write else "reads"
    access, index = print_expr(use.access), print_expr(use.expr)
    end = extent(use.tensor, use.dim)
    if point is Answer.UNKNOWN or not isinstance(point, dict):
        raise fail(
            f"could not prove that {access} stays inside {use.tensor}: that "
            f"0 <= {index} < {print_expr(end)}"
        )
    values: dict[Expr, Expr] = {
        (Index(d) if d in dims else Size(d)): const(v) for d, v in point.items()
    }
    at = ", ".join(f"{d}={point[d]}" for d in dims if d in point)
    got = print_expr(normalize(substitute(use.expr, values)))
    size = print_expr(normalize(substitute(end, values)))
    raise fail(
        f"{access} {verb} outside {use.tensor}{f' at {at}' if at else ''}"
        f"{at_sizes(point, dims)}: {index} is {got}, and dim {use.dim} of {use.tensor} has "
        f"extent {print_expr(end)}{'' if size == print_expr(end) else f' = {size}'}"
    )
