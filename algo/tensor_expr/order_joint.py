"""Joint reductions in recurrences: all equations of one run in the loops that they have in common.

For an order they are one equation over the indices that all of them have, which needs what any of
them needs and gives what any gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .. import isl
from .expr import indices_of
from .op import Equation, Step

Needs = Mapping[tuple[int, int], isl.raw.Map]
"""From instances of one equation to those of another (or of itself) that it needs."""


def whole(equations: Sequence[Equation]) -> Equation:
    """Equations that are computed together as one, of the component with the fewest indices."""
    if len(equations) == 1:
        return equations[0]
    eq = min(equations, key=lambda each: len(each.ranges))
    shared = tuple(r for r in eq.ranges if all(r in other.ranges for other in equations))
    names = {r.index for r in shared}
    lhs = tuple(e for e in eq.lhs if names.issuperset(indices_of(e)))
    return Equation(eq.tensor, lhs, eq.rhs, shared)


def in_common(eq: Equation, common: Equation) -> Equation:
    """The equation with the indices first that all have which are computed with it."""
    own = tuple(r for r in eq.ranges if r not in common.ranges)
    return Equation(eq.tensor, eq.lhs, eq.rhs, (*common.ranges, *own), eq.where, eq.reducer)


def joint_needs(
    needs: Needs, equations: Mapping[int, Equation], members: Mapping[int, Sequence[int]]
) -> Needs:
    """What those need of each other that are computed together: of `members`, by the first."""
    first = {n: m for m, group in members.items() for n in group}
    shared = {
        m: [r for r in equations[m].ranges if all(r in equations[n].ranges for n in group)]
        for m, group in members.items()
    }
    found: dict[tuple[int, int], isl.raw.Map] = {}
    for (a, b), need in needs.items():
        for side, n in ((isl.raw.dim_type.in_, a), (isl.raw.dim_type.out, b)):
            kept = len(shared[first[n]])
            need = need.project_out(side, kept, len(equations[n].ranges) - kept)
        pair = first[a], first[b]
        found[pair] = found[pair].union(need) if pair in found else need
    return {pair: need.coalesce() for pair, need in found.items()}


def of_members(step: Step, group: Sequence[int]) -> list[Step]:
    """The steps of all equations of a group, for that of the group."""
    inside = len(step.carries)
    return [step, *(replace(step, equation=n, joined=inside) for n in group[1:])]
