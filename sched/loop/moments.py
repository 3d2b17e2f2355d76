"""Moments: in which iteration of some loops an element is touched first or last, as expressions.

A window that slides over a tensor touches a new element in each iteration. isl gives the first
one exactly, in pieces: row y of T[y], T[y+1], T[y+2] is touched first in iteration y-2, but rows 0
and 1 in iteration 0. One piece that is never too late serves for all elements: y-2, the loop then
starting two iterations earlier (a warm-up, of which other statements know nothing). So domains
stay convex, and no loop needs a guard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...algo import isl
from ...algo.errors import ScheduleError
from ...algo.isl import raw
from ...algo.tensor_expr.affine import Linear, linear, normalize
from ...algo.tensor_expr.build import add, compare, const, floordiv, mul, sub
from ...algo.tensor_expr.expr import Call, Const, Expr
from ...algo.tensor_expr.points import mapping
from .nest import Loop, Stmt
from .regions import function_of
from .relations import positive, primed, same_element, second, symbols


@dataclass(frozen=True)
class Tie:
    """The element `cell` of a statement is what `other` touches at `theirs`."""

    cell: tuple[Expr, ...]
    other: Stmt
    theirs: tuple[Expr, ...]


def moment(
    stmt: Stmt,
    ties: Sequence[Tie],
    fixed: Sequence[tuple[Expr, Loop]],
    free: Sequence[Loop],
    who: str,
    *,
    last: bool = False,
) -> tuple[Expr, ...] | None:
    """Values of the loops `free`, over the statement's dims, no later than any tied instance.

    With `last`, no earlier than any. `fixed` loops have the given values for the statement, and
    only instances in the same iteration of them count. Sizes that are symbols are at least 1.
    None where no expression does it.
    """
    sizes = symbols(stmt, *(tie.other for tie in ties))
    try:
        with isl.quota():
            touched: raw.Map | None = None
            for tie in ties:
                one = _touched(stmt, tie, fixed, free, sizes)
                touched = one if touched is None else touched.union(one)
            assert touched is not None
            if touched.is_empty():
                return (Const(0),) * len(free)
            touched = touched.coalesce()
            best: tuple[tuple[float, ...], raw.MultiAff] | None = None
            for candidate in _pieces(touched, last):
                spread = _spread(touched, candidate, last)
                if spread is not None and (best is None or spread < best[0]):
                    best = spread, candidate
            if best is None:
                return None
            found = best[1]
            return tuple(
                _shorter(function_of(raw.PwAff.from_aff(found.get_aff(n)), stmt.dims))
                for n in range(len(free))
            )
    except isl.Exhausted:
        raise ScheduleError(
            f"{who}: could not compute which iteration touches an element of {stmt.buffer} "
            f"{'last' if last else 'first'}; sizes that are given may help"
        ) from None


def _touched(
    stmt: Stmt,
    tie: Tie,
    fixed: Sequence[tuple[Expr, Loop]],
    free: Sequence[Loop],
    sizes: Sequence[str],
) -> raw.Map:
    """{ [dims of the statement] -> [values of `free`] } of the tied instances."""
    other = tie.other
    conditions = [*stmt.domain, *same_element(tie.cell, tie.theirs, other.dims), *positive(sizes)]
    conditions += [second(condition, other.dims) for condition in other.domain]
    for value, loop in fixed:
        conditions.append(compare("eq", value, second(loop.values[other.name], other.dims)))
    images = [second(loop.values[other.name], other.dims) for loop in free]
    both = mapping([*stmt.dims, *primed(other.dims)], images, conditions, sizes)
    return both.project_out(raw.dim_type.in_, len(stmt.dims), len(other.dims))


def _pieces(touched: raw.Map, last: bool) -> Iterator[raw.MultiAff]:
    found: list[raw.MultiAff] = []
    ends = touched.lexmax_pw_multi_aff() if last else touched.lexmin_pw_multi_aff()
    ends.foreach_piece(lambda _, piece: found.append(piece))
    seen: set[str] = set()
    for piece in found:
        if str(piece) not in seen:
            seen.add(str(piece))
            yield piece


def _spread(touched: raw.Map, candidate: raw.MultiAff, last: bool) -> tuple[float, ...] | None:
    """How far apart candidate and touching iterations are, loop by loop; None if it is wrong."""
    both = touched.range_product(raw.Map.from_multi_aff(candidate)).range().unwrap()
    space = both.get_space().domain()
    wrong = raw.Map.lex_gt(space) if last else raw.Map.lex_lt(space)
    if not both.is_disjoint(wrong):
        return None
    return tuple(reach(both.deltas(), n) for n in range(both.dim(raw.dim_type.out)))


def reach(distances: raw.Set, dim: int) -> float:
    """The largest distance in one dimension, in either direction; infinite where sizes decide."""
    if distances.is_empty():
        return 0
    ends = distances.dim_min_val(dim), distances.dim_max_val(dim)
    return max(abs(end.to_python()) if end.is_int() else math.inf for end in ends)


def _shorter(value: Expr) -> Expr:
    """y - (7*y + 1)//8 - 1, which is how isl writes (y - 2)//8, as that."""
    form = linear(value)
    if form is None:
        return value
    quotients = [atom for atom in form.terms if isinstance(atom, Call)]
    match quotients:
        case [Call("floordiv", (above, Const(int() as by))) as quotient]:
            times = form.of(quotient)
            rest = sub(value, mul(quotient, const(times)))
            if times < 0:
                above = sub(const(by - 1), above)
            above = add(above, mul(rest, const(by)))
            whole = linear(above)
            if abs(times) == 1 and whole is not None and _weight(whole) < _weight(form):
                return floordiv(normalize(above), const(by))
    return value


def _weight(form: Linear) -> int:
    return sum(abs(n) for n in form.terms.values())
