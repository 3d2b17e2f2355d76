"""Skewed loops of recurrences: isl's scheduler finds their values, as sums over the indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from .. import isl
from ..errors import InternalError
from . import affine
from .affine import from_isl
from .coverage import writes
from .expr import Expr, Index, Range, Size, indices_of
from .op import Equation


def skewed(
    equations: Mapping[int, Equation], needs: Mapping[tuple[int, int], isl.raw.Map]
) -> dict[int, Expr] | None:
    """A loop value for each equation such that no instance needs one of a later value.

    The value carries something: some instance needs one of an earlier value. Call it in a quota.
    """
    domain = isl.parse_union_set("{ }")
    for n, eq in equations.items():
        domain = domain.union(writes(eq).domain().set_tuple_name(_space(n)).to_union_set())
    first = isl.parse_union_map("{ }")
    for (a, b), need in needs.items():
        need = need.set_tuple_name(isl.raw.dim_type.in_, _space(a))
        first = first.union(
            need.set_tuple_name(isl.raw.dim_type.out, _space(b)).reverse().to_union_map()
        )
    constraints = isl.raw.ScheduleConstraints.on_domain(domain).set_validity(first)
    try:
        schedule = constraints.set_proximity(first).compute_schedule()
    except isl.raw.Error as error:
        if "unable to carry dependences" in str(error):
            return None
        raise
    node = schedule.get_root().child(0)
    # A band inside of one that carries nothing serves all instances alike.
    while node.get_type() == isl.raw.schedule_node_type.band:
        band = node.band_get_partial_schedule()
        for row in range(band.dim(isl.raw.dim_type.out)):
            values = isl.raw.UnionMap.from_union_pw_aff(band.get_at(row))
            if not _carries(values, first):
                continue
            found = {n: _value(values, n, eq) for n, eq in equations.items()}
            kept = {n: v for n, v in found.items() if v is not None}
            return kept if all(found.values()) else None
        node = node.child(0)
    return None


def _space(n: int) -> str:
    return f"S{n}"


def _carries(values: isl.raw.UnionMap, first: isl.raw.UnionMap) -> bool:
    return not first.is_subset(values.apply_range(values.reverse()))


def _value(values: isl.raw.UnionMap, n: int, eq: Equation) -> Expr | None:
    """The row of one equation as an expression over its indices."""
    mine = values.intersect_domain(writes(eq).domain().set_tuple_name(_space(n)).to_union_set())
    parts = isl.raw.PwMultiAff.from_map(isl.raw.Map.from_union_map(mine)).get_at(0).get_pieces()
    if len(parts) != 1:
        return None
    aff = parts[0][1]
    names = [r.index for r in eq.ranges]
    inputs = isl.raw.dim_type.in_
    value = isl.raw.PwAff.from_aff(aff)
    for at, name in enumerate(names):
        value = value.set_dim_id(inputs, at, isl.raw.Id(isl.ident(name)))
    flat = value.move_dims(isl.raw.dim_type.param, 0, inputs, 0, len(names))
    build = isl.raw.AstBuild.from_context(isl.parse_set("{ : }"))
    own = set(names)
    return affine.normalize(
        from_isl(
            build.expr_from_pw_aff(flat.project_domain_on_params()),
            lambda name: Index(name) if name in own else Size(name),
        )
    )


def completed(rows: Sequence[Expr], ranges: Sequence[Range]) -> tuple[Expr, ...]:
    """`rows` and then those of the indices, in their order, that the rows before leave open."""
    out = list(rows)
    rest = list(ranges)
    if all(len(indices_of(row)) == 1 for row in rows):
        rest = _settled([i for row in rows for i in indices_of(row)], ranges)
    for r in rest:
        if _rank([*out, Index(r.index)]) > _rank(out):
            out.append(Index(r.index))
    if _rank(out) < len(ranges):
        raise InternalError(f"the loops {out!r} do not tell all instances apart")
    return tuple(out)


def _settled(used: Iterable[str], ranges: Sequence[Range]) -> list[Range]:
    """The ranges of the indices that are left, each after those that it mentions."""
    known, left, out = set(used), [r for r in ranges if r.index not in set(used)], []
    while left:
        r = next((r for r in left if set(indices_of(r.lo) + indices_of(r.hi)) <= known), left[0])
        left.remove(r)
        known.add(r.index)
        out.append(r)
    return out


def _rank(rows: Sequence[Expr]) -> int:
    """How many rows follow from no others. (Known of sums; each one with quotients counts.)

    A row without indices, the one iteration in which a border is computed, takes no part.
    """
    rows = [row for row in rows if indices_of(row)]
    forms = [affine.linear(row) for row in rows]
    atoms = list(dict.fromkeys(a for f in forms if f is not None for a in f.terms))
    left = [
        [Fraction(f.of(a)) for a in atoms if not isinstance(a, Size)]
        for f in forms
        if f is not None
    ]
    rank = 0
    for column in range(len(left[0]) if left else 0):
        pivot = next((row for row in left if row[column]), None)
        if pivot is None:
            continue
        rank += 1
        left = [
            [x - row[column] / pivot[column] * y for x, y in zip(row, pivot, strict=True)]
            for row in left
            if row is not pivot
        ]
    return rank + forms.count(None)


def loop_names(ranges: Sequence[Range], loops: Sequence[Expr]) -> list[str]:
    """What loops are called: a value of one index by it, a skewed one by an index that is left.

    A loop of one iteration, whose value has no index, may be left without: it is called `once`.
    """
    single = [indices_of(v)[0] if len(indices_of(v)) == 1 else None for v in loops]
    left = [r.index for r in ranges if r.index not in single]
    return [name or (left.pop(0) if left else "once") for name in single]
