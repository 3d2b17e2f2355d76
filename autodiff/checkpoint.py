"""Recurrences of which every k-th step is kept, and the steps between are computed again.

    h[k*q, ..] = h_kept[q, ..]
    h[k*q+r, ..] = the step, for r in 1:k

Segments need nothing of each other, so they may be computed at once. A step that needs several
before it has as many kept in a row. Source: Chen et al., "Training Deep Nets with Sublinear Memory
Cost" (arXiv:1604.06174).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..algo.errors import GradientError
from ..algo.tensor_expr.affine import normalize
from ..algo.tensor_expr.build import add, both, compare, floordiv, mul, sub
from ..algo.tensor_expr.expr import Access, Const, Expr, Index, Range, substitute, walk
from ..algo.tensor_expr.op import Equation
from .naming import fresh_name
from .statements import Normal, reads
from .tidy import mapped


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What is kept of a recurrence: the shape of each tensor `kept`, the equations that `keep`
    them, and those by which all steps are computed `again`."""

    kept: dict[str, tuple[Expr, ...]]
    keep: tuple[Equation, ...]
    again: tuple[Equation, ...]


def checkpoints(form: Normal, name: str, every: int) -> Checkpoints:
    """Keeps every so many steps of the recurrence `name`; the first dimension of which each step
    needs earlier ones alone, as many as are constant, counts the steps.

    Raises `GradientError` where there is none, or where it needs more steps than are between.
    """
    equations = [eq for eq in form.equations if eq.tensor == name]
    cycles = form.cycles
    together = [t for t in cycles if t != name and cycles.get(name) == cycles[t]]
    if name not in cycles or together:
        why = f"it needs {together[0]}, which needs it" if together else "it is no recurrence"
        raise GradientError(f"keep every {every} steps of {name}: {why}; keep it whole")
    found = _steps(name, equations)
    if found is None or not 0 < found[1] < every:
        need, more = "in no dimension does each step need the same steps before it", ""
        if found and found[1] > 0:
            need = f"each step needs the {found[1]} before it"
            more = f"every {found[1] + 1} or more, or keep "
        raise GradientError(f"keep every {every} steps of {name}: {need}; keep {more}it whole")
    dim, depth = found
    shape = form.shapes[name]
    taken = set(form.shapes)
    kept: dict[str, tuple[Expr, ...]] = {}
    keep: list[Equation] = []
    again: list[Equation] = []
    for start in range(depth):
        kept_name = fresh_name(f"{name}_kept", {*taken, *kept})
        count = _count(shape[dim], start, every)
        kept[kept_name] = (*shape[:dim], count, *shape[dim + 1 :])
        places = _places(equations, len(shape))
        step = normalize(add(mul(Const(every), places[dim]), Const(start)))
        whole = (*places[:dim], step, *places[dim + 1 :])
        ranges = tuple(
            Range(at.name, Const(0), extent)
            for at, extent in zip(places, kept[kept_name], strict=True)
        )
        keep.append(Equation(kept_name, places, Access(name, whole), ranges))
        again.append(Equation(name, whole, Access(kept_name, places), ranges))
    for eq in equations:
        again += _between(eq, dim, depth, every, shape[dim])
    return Checkpoints(kept, tuple(keep), tuple(again))


def _places(equations: Sequence[Equation], rank: int) -> tuple[Index, ...]:
    """An index a dimension, called as one of the equations calls it where that is plain."""
    names: list[str] = []
    for n in range(rank):
        plain = [eq.lhs[n] for eq in equations]
        wanted = next((e.name for e in plain if isinstance(e, Index)), f"i{n}")
        names.append(fresh_name(wanted, names))
    return tuple(map(Index, names))


def _count(extent: Expr, start: int, every: int) -> Expr:
    """How many of the numbers below `extent` are `start` modulo `every`."""
    return normalize(floordiv(add(extent, Const(every - 1 - start)), Const(every)))


def _steps(name: str, equations: Sequence[Equation]) -> tuple[int, int] | None:
    """The dimension that counts steps, and how many earlier ones a step needs."""
    for dim in range(len(equations[0].lhs)):
        back: list[int] = []
        for eq in equations:
            at = eq.lhs[dim]
            own = [a for a in reads(eq) if a.tensor == name]
            distance = [normalize(sub(at, a.indices[dim])) for a in own]
            if not isinstance(at, (Index, Const)) or not all(
                isinstance(d, Const) and type(d.value) is int and d.value > 0 for d in distance
            ):
                break
            back += [int(d.value) for d in distance if isinstance(d, Const)]
        else:
            return dim, max(back)
    return None


def _between(eq: Equation, dim: int, depth: int, every: int, extent: Expr) -> list[Equation]:
    """The equation at those steps that are not kept."""
    at = eq.lhs[dim]
    if isinstance(at, Const):
        return [] if at.value % every < depth else [eq]
    assert isinstance(at, Index)
    taken = {r.index for root in eq.roots for r in walk(root) if isinstance(r, Range)}
    outer, inner = (fresh_name(f"{at.name}{end}", taken) for end in "oi")
    step = normalize(add(mul(Const(every), Index(outer)), Index(inner)))
    fresh = mapped(eq, lambda e: normalize(substitute(e, {at: step})))
    where = fresh.where
    ranges: list[Range] = []
    for r in eq.ranges:
        if r.index != at.name:
            ranges.append(r)
            continue
        ranges.append(Range(outer, Const(0), _count(extent, 0, every)))
        ranges.append(Range(inner, Const(depth), Const(every)))
        if not (isinstance(r.lo, Const) and r.lo.value <= depth):
            where = both(where, compare("ge", step, r.lo))
        where = both(where, compare("lt", step, r.hi))
    return [Equation(eq.tensor, fresh.lhs, fresh.rhs, tuple(ranges), where)]
