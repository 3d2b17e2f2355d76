"""Regions: which elements of a tensor the iterations of a loop touch, computed by isl.

A region is a set over one dim for each loop down to the one in question, then one for each
dimension of the tensor. It becomes the domain of statements that copy or recompute the elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...algo import isl
from ...algo.errors import ScheduleError
from ...algo.isl import raw
from ...algo.tensor_expr.affine import from_isl
from ...algo.tensor_expr.build import compare, conjuncts, const, floordiv, mul, sub
from ...algo.tensor_expr.domains import within
from ...algo.tensor_expr.expr import Call, Const, Expr, Index, Range, Size, sizes_of
from ...algo.tensor_expr.points import points
from .nest import Loop, Nest, Stmt
from .relations import from_data, positive, symbols

Cell = tuple[Expr, ...]


@dataclass(frozen=True)
class Region:
    """`conditions` over `outer` (one name a loop) and `coordinates`.

    `exact` if they hold for no other elements, at sizes of at least 1.
    """

    outer: tuple[str, ...]
    coordinates: tuple[str, ...]
    conditions: tuple[Expr, ...]
    exact: bool


def region(
    nest: Nest,
    tensor: str,
    touched: Sequence[tuple[Stmt, Cell]],
    around: Sequence[Loop],
    names: tuple[tuple[str, ...], tuple[str, ...]],
    who: str,
    without: Sequence[tuple[Stmt, Cell]] = (),
    *,
    border: bool = False,
) -> Region:
    """The elements that `touched` accesses reach in one iteration of the loops `around`.

    `names` are the dims of the result: one a loop, one a dimension of the tensor. A coordinate
    that depends on data may be any. Elements that accesses `without` reach are left out. Where
    the elements are no convex set, their hull is taken, within the tensor, or with a `border`.
    """
    with _computing(tensor, who):
        total, frame = _reached(nest, tensor, touched, around, names, without, border=border)
        found, exact = _hull(total.coalesce(), frame.inside)
        if not exact:
            total = total.intersect_params(frame.usual).coalesce()
            found, exact = _bounded(total, frame, len(around))
            found = found.gist_params(frame.usual)
        return _region(found, exact, names)


def pieces(
    nest: Nest,
    tensor: str,
    touched: Sequence[tuple[Stmt, Cell]],
    around: Sequence[Loop],
    names: tuple[tuple[str, ...], tuple[str, ...]],
    who: str,
    without: Sequence[tuple[Stmt, Cell]] = (),
) -> list[Region]:
    """The same elements as convex regions, which may have some in common."""
    with _computing(tensor, who):
        total, frame = _reached(nest, tensor, touched, around, names, without)
        parts = total.intersect_params(frame.usual).coalesce().get_basic_set_list()
        hulls = [
            _hull(raw.Set.from_basic_set(parts.get_at(n)), frame.inside)
            for n in range(parts.n_basic_set())
        ]
        return [_region(hull.gist_params(frame.usual), exact, names) for hull, exact in hulls]


@dataclass(frozen=True)
class _Frame:
    """What a hull must not leave, and that sizes are at least 1."""

    inside: raw.Set
    usual: raw.Set


@contextmanager
def _computing(tensor: str, who: str) -> Iterator[None]:
    try:
        with isl.quota():
            yield
    except isl.Exhausted:
        raise ScheduleError(
            f"{who}: could not compute which elements of {tensor} are needed; "
            "a loop further in or out may help"
        ) from None


def _reached(
    nest: Nest,
    tensor: str,
    touched: Sequence[tuple[Stmt, Cell]],
    around: Sequence[Loop],
    names: tuple[tuple[str, ...], tuple[str, ...]],
    without: Sequence[tuple[Stmt, Cell]],
    *,
    border: bool = False,
) -> tuple[raw.Set, _Frame]:
    """The elements themselves, and the frame for their hull."""
    shape = nest.kernel.tensors[tensor].shape
    sizes = list(dict.fromkeys([*symbols(*(s for s, _ in touched)), *sizes_of(shape)]))
    total: raw.Set | None = None
    for stmt, cell in touched:
        one = _touched(stmt, cell, around, names, shape, sizes)
        total = one if total is None else total.union(one)
    assert total is not None
    for stmt, cell in without:
        total = total.subtract(_touched(stmt, cell, around, names, shape, sizes))
    usual = points((), positive(sizes), sizes).params()
    return total, _Frame(_inside(around, names, () if border else shape, sizes), usual)


def _region(found: raw.Set, exact: bool, names: tuple[tuple[str, ...], tuple[str, ...]]) -> Region:
    outer, coordinates = names
    return Region(outer, coordinates, _conditions(found, [*outer, *coordinates]), exact)


def _bounded(reached: raw.Set, frame: _Frame, outer: int) -> tuple[raw.Set, bool]:
    """A convex set around points, bounded for any sizes, and whether it has no others.

    isl's simple hull has the constraints of the parts, moved by numbers as far as the other parts
    need. One that would be moved by a size is left out: of j and N-1-j for a block of j nothing
    is left that ends the blocks. Then the box around the points does.
    """
    found, exact = _hull(reached, frame.inside)
    if not found.is_bounded():
        found, exact = _hull(reached, frame.inside.intersect(_box(reached, outer)))
    return found, exact


def _box(found: raw.Set, outer: int) -> raw.Set:
    """What bounds each dim by itself, and the `outer` ones by those before them.

    Over one dim and sizes a convex hull costs little. It is bounded, for sizes are not negative:
    of d < N and d < M it makes d < N + M.
    """
    rank = found.dim(raw.dim_type.set)
    box = raw.Set.universe(found.get_space())
    for n in range(rank):
        before = found.eliminate(raw.dim_type.set, n + 1, rank - n - 1)
        alone = before.eliminate(raw.dim_type.set, 0, n).remove_divs().coalesce()
        box = box.intersect(raw.Set.from_basic_set(alone.polyhedral_hull()))
        if 0 < n < outer:
            box = _hull(before.coalesce(), box)[0]
    return box


def _hull(found: raw.Set, inside: raw.Set) -> tuple[raw.Set, bool]:
    """A convex set around the points within the tensor, and whether it has no others."""
    hull = found if _is_plain(found) else raw.Set.from_basic_set(found.simple_hull())
    if not _is_plain(hull):
        hull = hull.remove_divs()
    hull = hull.intersect(inside).coalesce()
    return hull, hull.is_equal(found)


def _touched(
    stmt: Stmt,
    cell: Cell,
    around: Sequence[Loop],
    names: tuple[tuple[str, ...], tuple[str, ...]],
    shape: Sequence[Expr],
    sizes: Sequence[str],
) -> raw.Set:
    """The elements of one access: its instances with the dims of the result, those projected on."""
    outer, coordinates = names
    conditions = list(stmt.domain)
    blocks: dict[Expr, Expr] = {}
    for loop, dim in zip(around, outer, strict=True):
        value = loop.values[stmt.name]
        conditions.append(compare("eq", Index(dim + "@"), _of_blocks(value, blocks)))
        if isinstance(value, Call) and value.op == "floordiv":
            blocks[value] = Index(dim + "@")
    for part, dim, size in zip(cell, coordinates, shape, strict=True):
        if from_data(part):
            conditions += within([Range(dim + "@", const(0), size)])
        else:
            conditions.append(compare("eq", Index(dim + "@"), part))
    # Marked, for the statement may have dims of these names.
    result = [dim + "@" for dim in (*outer, *coordinates)]
    found = points([*stmt.dims, *result], conditions, sizes)
    found = found.project_out(raw.dim_type.set, 0, len(stmt.dims))
    return isl.named(found, (*outer, *coordinates))


def _of_blocks(value: Expr, blocks: Mapping[Expr, Expr]) -> Expr:
    """A loop's value, said by the loops around it over blocks of the same.

    i % 8 is i - 8*io: without a division isl finds that the block is convex.
    """
    match value:
        case Call("mod", (whole, by)) if floordiv(whole, by) in blocks:
            return sub(_of_blocks(whole, blocks), mul(by, blocks[floordiv(whole, by)]))
        case Call("floordiv", (whole, by)):
            return floordiv(_of_blocks(whole, blocks), by)
    return value


def _inside(
    around: Sequence[Loop],
    names: tuple[tuple[str, ...], tuple[str, ...]],
    shape: Sequence[Expr],
    sizes: Sequence[str],
) -> raw.Set:
    """What a hull must not leave: the tensor, and loops that have a constant extent."""
    outer, coordinates = names
    ranges = [Range(dim, const(0), size) for dim, size in zip(coordinates, shape, strict=False)]
    ranges += [
        Range(dim, const(0), const(loop.extent))
        for dim, loop in zip(outer, around, strict=True)
        if loop.extent is not None
    ]
    return points([*outer, *coordinates], within(ranges), sizes)


def function_of(
    value: raw.PwAff, names: Sequence[str], other: Callable[[str], Expr] = Size
) -> Expr:
    """isl's quasi-affine function of inputs called `names`, and of others, as an expression."""
    inputs = raw.dim_type.in_
    for n, name in enumerate(names):
        value = value.set_dim_id(inputs, n, raw.Id(isl.ident(name)))
    known = set(names)
    flat = value.move_dims(
        raw.dim_type.param, value.dim(raw.dim_type.param), inputs, 0, len(names)
    ).project_domain_on_params()
    ast = raw.AstBuild.from_context(isl.parse_set("{ : }")).expr_from_pw_aff(flat)
    return from_isl(ast, lambda name: Index(name) if name in known else other(name))


def _is_plain(found: raw.Set) -> bool:
    """Is it one convex set without divisions, which becomes simple loop bounds?"""
    return found.n_basic_set() <= 1 and not found.involves_locals()


def _conditions(found: raw.Set, dims: Sequence[str]) -> tuple[Expr, ...]:
    """The conditions of a set as expressions over its dims and sizes."""
    known = set(dims)
    flat = found.move_dims(
        raw.dim_type.param, found.dim(raw.dim_type.param), raw.dim_type.set, 0, len(dims)
    ).params()
    ast = raw.AstBuild.from_context(isl.parse_set("{ : }")).expr_from_set(flat)
    condition = from_isl(ast, lambda name: Index(name) if name in known else Size(name))
    if isinstance(condition, Const):  # isl's 0 and 1 for no points and for all
        return () if condition.value else (Const(False),)
    return tuple(conjuncts(condition))
