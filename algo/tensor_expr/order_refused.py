"""Why tensors that need each other have no order: in words, with instances where such are found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .. import isl
from .affine import normalize
from .coverage import at_sizes
from .expr import Const, Expr, Index, Size, substitute
from .op import Equation
from .order_joint import Needs
from .printer import print_expr


def no_order(equations: Mapping[int, Equation], needs: Needs) -> tuple[int, str]:
    """The equation and the message, with instances that need each other where such are found."""
    n = min(a for a, _ in needs)
    circle = _circle(equations, needs)
    if circle is not None:
        return circle
    names = dict.fromkeys(r.index for eq in equations.values() for r in eq.ranges)
    tensors = dict.fromkeys(equations[a].tensor for a, _ in needs)
    what = "reads its own elements" if len(tensors) == 1 else "read each other's elements"
    return (
        n,
        f"{names_of(tensors)} {what} and no affine order of {', '.join(names)} was found that "
        f"computes each before it is read; several equations, one a region, may have one",
    )


def _circle(equations: Mapping[int, Equation], needs: Needs) -> tuple[int, str] | None:
    """An instance that needs itself, directly or by one other, in words."""
    for (a, b), need in needs.items():
        eq = equations[a]
        if a == b:
            same = isl.raw.Map.identity(need.get_space())
            point = isl.first_point(_named(need.intersect(same).domain(), eq))
            if point is not None:
                sizes = at_sizes(point, [r.index for r in eq.ranges])
                return a, f"{_element(eq, point)} needs itself{sizes}, so nothing can compute it"
        if (b, a) not in needs:
            continue
        both = need.intersect(needs[b, a].reverse())
        one = isl.first_point(_named(both.domain(), eq))
        if one is None:
            continue
        sizes = at_sizes(one, [r.index for r in eq.ranges])
        here = _named(both.domain(), eq)
        for at, r in enumerate(eq.ranges):
            here = here.fix_val(isl.raw.dim_type.set, at, isl.number(one[r.index]))
        two = isl.first_point(_named(here.apply(both), equations[b]))
        assert two is not None
        x, y = _element(eq, one), _element(equations[b], two)
        return a, f"{x} needs {y}, which needs {x}{sizes}, so no order computes them"
    return None


def _named(points: isl.raw.Set, eq: Equation) -> isl.raw.Set:
    return isl.named(points, [r.index for r in eq.ranges])


def _element(eq: Equation, point: Mapping[str, int]) -> str:
    known: dict[Expr, Expr] = {Index(r.index): Const(point[r.index]) for r in eq.ranges}
    known |= {Size(name): Const(n) for name, n in point.items()}
    cell = [print_expr(normalize(substitute(e, known))) for e in eq.lhs]
    return f"{eq.tensor}[{','.join(cell)}]"


def names_of(tensors: Iterable[str]) -> str:
    """Names in a row, as prose has them."""
    names = list(dict.fromkeys(tensors))
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
