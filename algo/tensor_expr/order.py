"""An order for a recurrence: an equation that reads elements of its own tensor.

Signed permutations of the written indices are tried, the written order first, then as few
reversals as possible. The order found becomes the order of the equation's ranges; a reversed index
t over lo:hi is replaced by lo+hi-1-t, so that all loops run upwards for everybody downstream.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from .. import isl
from . import affine
from .affine import is_affine
from .build import add, const, sub
from .coverage import at_sizes, writes
from .domains import relation, within
from .expr import Access, Expr, Index, Range, indices_of, substitute
from .op import Equation
from .printer import print_expr
from .uses import Use, map_exprs

Fail = Callable[[int, str], Exception]
_MOST = 5  # written indices of which all signed permutations are tried


def is_recurrence(eq: Equation, uses: Sequence[Use]) -> bool:
    """Does the equation read its own tensor?"""
    return any(u.tensor == eq.tensor and not u.write for u in uses)


def ordered(
    equations: Mapping[int, Equation],
    uses: Mapping[int, Sequence[Use]],
    ranges: Mapping[int, Mapping[str, Range]],
    fail: Fail,
) -> dict[int, Equation]:
    """The equations of one tensor, each with a legal order of its loops.

    Equations run one after the other as written, so one may read what earlier ones wrote, and of
    its own elements those whose instances come before in its order.
    """
    out: dict[int, Equation] = {}
    written: dict[int, isl.raw.Map] = {}
    for n, eq in equations.items():
        out[n] = eq
        reads = list(
            dict.fromkeys(
                (u.access, u.scope, u.guards)
                for u in uses[n]
                if u.tensor == eq.tensor and not u.write
            )
        )
        if not reads:
            continue
        try:
            with isl.quota():
                written = written or {m: writes(e) for m, e in equations.items()}
                needs = [_before(n, eq, read, ranges[n], written, fail) for read in reads]
                union = needs[0]
                for need in needs[1:]:
                    union = union.union(need)
                out[n] = _arranged(n, eq, union.coalesce(), fail)
        except isl.Exhausted:
            raise fail(n, f"could not find an order in which {eq.tensor} can be computed") from None
    return out


def _before(
    n: int,
    eq: Equation,
    read: tuple[Access, tuple[str, ...], tuple[Expr, ...]],
    ranges: Mapping[str, Range],
    written: Mapping[int, isl.raw.Map],
    fail: Fail,
) -> isl.raw.Map:
    """From every instance to the instances of the same equation that it needs."""
    access, scope, guards = read
    if not all(map(is_affine, access.indices)):
        raise fail(n, f"{print_expr(access)} reads its own tensor where data says")
    outer = [r.index for r in eq.ranges]
    dims = [*outer, *scope]
    held = [*within(ranges[d] for d in dims), *guards]
    if eq.where is not None:
        held.append(eq.where)
    reads = relation(dims, access.indices, held)
    for m, other in written.items():
        if m > n:
            late = reads.intersect_range(other.range()).domain()
            point = isl.first_point(late)
            if point is not None:
                where = ", ".join(f"{d}={point[d]}" for d in dims)
                raise fail(
                    n,
                    f"{print_expr(access)} at {where}{at_sizes(point, dims)} is written by the "
                    f"later equation {m + 1}; write that one first",
                )
    needs = reads.apply_range(written[n].reverse())
    return needs.project_out(isl.raw.dim_type.in_, len(outer), len(scope))


def _arranged(n: int, eq: Equation, needs: isl.raw.Map, fail: Fail) -> Equation:
    names = [r.index for r in eq.ranges]
    for order in _signed_permutations(names):
        if _respects(order, eq.ranges) and _legal(order, names, needs):
            return _in_order(eq, order)
    raise fail(
        n,
        f"{eq.tensor} reads its own elements and no order of {', '.join(names)}, upwards or "
        f"downwards, computes each before it is read",
    )


def _signed_permutations(names: Sequence[str]) -> Iterator[list[tuple[str, int]]]:
    if len(names) > _MOST:
        yield [(name, 1) for name in names]
        return
    for signs in sorted(itertools.product((1, -1), repeat=len(names)), key=lambda s: s.count(-1)):
        for places in itertools.permutations(range(len(names))):
            yield [(names[p], signs[p]) for p in places]


def _respects(order: Sequence[tuple[str, int]], ranges: Sequence[Range]) -> bool:
    """Does every range mention earlier indices only?"""
    by_name = {r.index: r for r in ranges}
    seen: set[str] = set()
    for name, _ in order:
        r = by_name[name]
        if not (set(indices_of(r.lo)) | set(indices_of(r.hi))) <= seen:
            return False
        seen.add(name)
    return True


def _legal(order: Sequence[tuple[str, int]], names: Sequence[str], needs: isl.raw.Map) -> bool:
    """Is everything that an instance needs strictly before it?"""
    images = [isl.ident(name) if sign > 0 else f"-{isl.ident(name)}" for name, sign in order]
    place = isl.make_map(names, images)
    return bool(needs.intersect(place.lex_le_map(place)).is_empty())


def _in_order(eq: Equation, order: Sequence[tuple[str, int]]) -> Equation:
    by_name = {r.index: r for r in eq.ranges}
    eq = Equation(
        eq.tensor, eq.lhs, eq.rhs, tuple(by_name[name] for name, _ in order), eq.where, eq.reducer
    )
    for name, sign in order:
        if sign < 0:
            eq = reversed_index(eq, name)
    return eq


def reversed_index(eq: Equation, index: str) -> Equation:
    """The equation with `index`, over lo:hi, replaced by lo+hi-1-index: it runs the other way."""
    span = next(r for r in eq.ranges if r.index == index)
    mirror = affine.normalize(sub(sub(add(span.lo, span.hi), const(1)), Index(index)))
    turned = map_exprs(eq, lambda e: affine.normalize(substitute(e, {Index(index): mirror})))
    ranges = tuple(span if r.index == index else r for r in turned.ranges)
    return Equation(eq.tensor, turned.lhs, turned.rhs, ranges, turned.where, eq.reducer)
