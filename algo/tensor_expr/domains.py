"""Iteration domains as isl sets, and proofs about them that hold for all sizes of at least 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from .. import isl
from ..isl import Answer
from . import affine
from .affine import to_isl
from .build import compare
from .expr import Call, Const, Expr, Index, Range, Size, indices_of, sizes_of
from .points import points


def within(ranges: Iterable[Range]) -> list[Expr]:
    """lo <= index < hi for every range, as conditions."""
    out: list[Expr] = []
    for r in ranges:
        out += [compare("le", r.lo, Index(r.index)), compare("lt", Index(r.index), r.hi)]
    return out


def closure(indices: Iterable[str], ranges: Mapping[str, Range]) -> list[str]:
    """The indices and those that their ranges mention, in the order of `ranges`."""
    wanted: set[str] = set()
    todo = list(indices)
    while todo:
        index = todo.pop()
        if index not in wanted and index in ranges:
            wanted.add(index)
            todo += indices_of(ranges[index].lo) + indices_of(ranges[index].hi)
    return [index for index in ranges if index in wanted]


def domain(dims: Sequence[str], conditions: Sequence[Expr], space: str = "") -> isl.raw.Set:
    """The points of `dims` that satisfy the conditions; every size in them is at least 1."""
    return isl.make_set(dims, _texts(conditions), sizes_of(conditions), space)


def relation(
    dims: Sequence[str],
    images: Sequence[Expr],
    conditions: Sequence[Expr],
    spaces: tuple[str, str] = ("", ""),
) -> isl.raw.Map:
    """The map from points of `dims` that satisfy the conditions to `images`."""
    sizes = sizes_of((*conditions, *images))
    return isl.make_map(dims, [to_isl(e) for e in images], _texts(conditions, sizes), sizes, spaces)


def _texts(conditions: Sequence[Expr], sizes: Iterable[str] | None = None) -> list[str]:
    symbols = sizes_of(conditions) if sizes is None else sizes
    return [f"{isl.ident(s)} >= 1" for s in symbols] + [to_isl(c) for c in conditions]


def counterexample(
    dims: Sequence[str], given: Sequence[Expr], claim: Sequence[Expr], least: int = 1
) -> dict[str, int] | Answer | None:
    """A point where `given` holds and `claim` does not, sizes being at least `least`; None if
    proved, UNKNOWN if out of quota."""
    return _counterexample(tuple(dims), tuple(given), tuple(claim), least) if claim else None


@lru_cache(maxsize=1 << 14)
def _counterexample(
    dims: tuple[str, ...], given: tuple[Expr, ...], claim: tuple[Expr, ...], least: int
) -> dict[str, int] | Answer | None:
    sizes = sizes_of((*given, *claim))
    positive = [compare("ge", Size(name), Const(least)) for name in sizes]
    held, claimed = points(dims, [*positive, *given], sizes), points(dims, claim, sizes)
    try:
        with isl.quota():
            bad = held.subtract(claimed)
        return isl.first_point(bad)
    except isl.Exhausted:
        return Answer.UNKNOWN


def always(claim: Expr) -> bool:
    """Does a condition over sizes hold for all of them? (False also where unproved.)"""
    return counterexample((), (), (claim,)) is None


def interval(values: isl.raw.Set) -> tuple[list[Expr], list[Expr]] | None:
    """Lower and (inclusive) upper bounds of a set of one dimension, as formulas over sizes.

    The set is all integers between the largest lower and the smallest upper bound; either list
    may be empty. None where the set is not of this form.
    """
    values = values.coalesce().remove_redundancies()
    parts = values.get_basic_sets()
    if len(parts) != 1 or _has_holes(parts[0]):
        return None
    lows: list[Expr] = []
    highs: list[Expr] = []
    for constraint in parts[0].get_constraints():
        if not constraint.involves_dims(isl.raw.dim_type.set, 0, 1):
            continue
        bound = constraint.get_bound(isl.raw.dim_type.set, 0)
        both = constraint.is_equality()
        if both or constraint.is_lower_bound(isl.raw.dim_type.set, 0):
            lows.append(formula(bound.ceil()))
        if both or constraint.is_upper_bound(isl.raw.dim_type.set, 0):
            highs.append(formula(bound.floor()))
    return lows, highs


def _has_holes(part: isl.raw.BasicSet) -> bool:
    """Does a floor in its constraints involve the dimension itself?"""
    return any(
        c.involves_dims(isl.raw.dim_type.set, 0, 1)
        and c.involves_dims(isl.raw.dim_type.div, 0, part.dim(isl.raw.dim_type.div))
        for c in part.get_constraints()
    )


def formula(value: isl.raw.Aff) -> Expr:
    """A quasi-affine function of the sizes as an expression."""
    pw = isl.raw.PwAff.from_aff(value.project_domain_on_params())
    build = isl.raw.AstBuild.from_context(pw.domain())
    return _gathered(affine.normalize(affine.from_isl(build.expr_from_pw_aff(pw), Size)))


def _gathered(expr: Expr) -> Expr:
    """(N + K)//2 - K as (N - K)//2: sizes that a quotient holds are not left outside of it."""
    form = affine.linear(expr)
    quotients = [] if form is None else [a for a in form.terms if isinstance(a, Call)]
    if form is None or len(quotients) != 1 or form.of(quotients[0]) != 1:
        return expr
    match quotients[0]:
        case Call("floordiv", (inner, Const(int() as by, _))):
            held = affine.linear(inner)
        case _:
            return expr
    moved = {a: c for a, c in form.terms.items() if held is not None and a in held.terms}
    if not moved or held is None:
        return expr
    total = dict(held.terms)
    for atom, c in moved.items():
        total[atom] += by * c
    if not all(total.values()):
        return expr
    rest = {a: c for a, c in form.terms.items() if a not in moved and a is not quotients[0]}
    quotient = Call("floordiv", (affine.Linear(total, held.const).expr, Const(by)))
    return affine.Linear({quotient: 1, **rest}, form.const).expr


def largest(dims: Sequence[str], expr: Expr, conditions: Sequence[Expr]) -> Expr | None:
    """The largest value of an expression over a domain as a formula, None where it is not one."""
    with isl.quota():
        pieces = relation(dims, [expr], conditions).range().dim_max(0).coalesce().get_pieces()
        return formula(pieces[0][1]) if len(pieces) == 1 else None
