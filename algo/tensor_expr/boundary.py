"""Accesses that are total: what reading beyond a tensor's ends gives, as ordinary expressions.

`x.edge[i-1]` is `x[min(max(i-1, 0), N-1)]` and `x.zero[i-1]` is `where(0 <= i-1 < N, x[i-1], 0)`,
so nothing after `check` knows of boundaries. They are named as in NumPy's `pad`:

    edge       the nearest element
    zero       0, in a tensor of truth values False
    fill(v)    the number v
    reflect    the mirror image about the end element; where that is outside too, the nearest
    wrap       the element a whole number of extents away; a remainder is affine by numbers only
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import NeedsSizes, OpError
from .affine import normalize
from .build import both, compare, const, maximum, minimum, mod, mul, sub
from .expr import Access, Boundary, Call, Const, Expr, sizes_of, transform, walk
from .printer import print_expr

KINDS = ("edge", "zero", "reflect", "wrap", "fill")
GUARDED = ("zero", "fill")
"""Those that give a value of no element, which no index can be."""

Extent = Callable[[str, int], Expr | None]
Holds = Callable[[Expr, int], bool]


def totals(expr: Expr) -> list[Access]:
    """The accesses of an expression that have a boundary, inner ones first."""
    return [e for e in walk(expr) if isinstance(e, Access) and e.boundary is not None]


def desugared(expr: Expr, extent: Extent, holds: Holds, position: bool = False) -> Expr:
    """`expr` without boundaries; `position` says that it stands in an index position.

    `holds` says of a condition that it always holds for sizes of at least so many, so that nothing
    is clamped that cannot occur.

    Raises `OpError` for a boundary that its place or its tensor's extent does not allow.
    """
    found = totals(expr)
    if not found:
        return expr
    inside = [a for outer in walk(expr) if isinstance(outer, Access) for a in outer.indices]
    for access in (a for index in [*inside, *([expr] if position else [])] for a in totals(index)):
        assert access.boundary is not None
        if access.boundary.kind in GUARDED:
            raise OpError(
                f"{print_expr(access)} stands in an index position, where 0 or another number is "
                f"no element; choose an element with .edge, .reflect or .wrap"
            )

    def rule(item: Expr) -> Expr:
        if isinstance(item, Access) and item.boundary is not None:
            return _total(item, item.boundary, extent, holds)
        return item

    return transform(expr, rule)


def _total(access: Access, boundary: Boundary, extent: Extent, holds: Holds) -> Expr:
    tensor, kind = access.tensor, boundary.kind
    ends: list[Expr] = []
    for dim in range(len(access.indices)):
        end = extent(tensor, dim)
        if end is None:
            raise OpError(
                f"{print_expr(access)} reads the tensor that is being defined, whose extents are "
                f"not known yet; write the reads beyond its ends as where(c, a, b)"
            )
        ends.append(end)
    if kind in GUARDED:
        inside: Expr | None = None
        for index, end in zip(access.indices, ends, strict=True):
            for claim in (compare("ge", index, const(0)), compare("lt", index, end)):
                inside = inside if holds(claim, 0) else both(inside, claim)
        plain = Access(tensor, access.indices)
        outside = const(False) if boundary.value is None else boundary.value  # False adapts
        return plain if inside is None else Call("where", (inside, plain, outside))
    indices: list[Expr] = []
    for dim, (index, end) in enumerate(zip(access.indices, ends, strict=True)):
        starts = holds(compare("le", const(0), index), 1)
        stops = holds(compare("lt", index, end), 1)
        nothing = end is const(0) and holds(compare("lt", end, end), 0)  # is evaluated
        if (starts and stops) or nothing:
            indices.append(index)
            continue
        if end is const(0):
            raise OpError(
                f"{print_expr(access)} has no element to give: dim {dim} of {tensor} has extent 0"
            )
        if kind == "wrap":
            if not isinstance(end, Const):
                raise NeedsSizes(
                    f"{print_expr(access)} needs the extent of dim {dim} of {tensor} as a number, "
                    f"because a remainder by {print_expr(end)} is not affine",
                    sizes_of([end]),
                )
            indices.append(mod(index, end))
            continue
        last = normalize(sub(end, const(1)))
        if kind == "reflect":
            # Mirrored at 0 alone it is positive, at the last alone not beyond it.
            image = index if stops else minimum(index, sub(mul(const(2), last), index))
            index = image if starts else maximum(image, sub(const(0), index))
            starts, stops = stops, starts
        index = index if starts else maximum(index, const(0))
        indices.append(index if stops else minimum(index, last))
    return Access(tensor, tuple(indices))
