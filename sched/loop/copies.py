"""How a tile is copied: the statements of `stage`, their domains, and the loops around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...algo import isl
from ...algo.errors import ScheduleError
from ...algo.tensor_expr.build import const
from ...algo.tensor_expr.domains import within
from ...algo.tensor_expr.expr import Access, Expr, Index, Range, indices_of, sizes_of
from ...algo.tensor_expr.points import points
from .layout import loop_names, loop_values
from .names import index_of, unlike
from .nest import Leaf, Loop, Nest, Stmt, Tree
from .regions import Cell, region
from .relations import agree, differ, primed, second
from .storage import in_coordinates
from .tree import around_stmt

Inner = tuple[str, Expr, str, int | None]
"""A loop of the copy's own: last component of its name, value, kind, extent."""


@dataclass(frozen=True)
class Shape:
    """The loops of a copy.

    `own` names a dim for each loop around that must be repeated; `values` gives every loop
    around its value over these dims and the coordinates; `inner` are the loops of the copy.
    """

    own: Mapping[str, str]
    values: Mapping[str, Expr]
    inner: tuple[Inner, ...]


def own_dims(around: Sequence[Loop], used: Collection[str]) -> dict[str, str]:
    """A dim for each loop, named like it and unlike all that are used."""
    taken = set(used)
    found: dict[str, str] = {}
    for loop in around:
        name = unlike(index_of(loop.name), taken)
        taken.add(name)
        found[loop.name] = name
    return found


def plain(around: Sequence[Loop], names: Sequence[str], layout: tuple[Expr, ...] | None) -> Shape:
    """Repeated for every loop around; inside, a loop a dimension or a storage axis."""
    own = own_dims(around, names)
    values: dict[str, Expr] = {loop: Index(name) for loop, name in own.items()}
    axes: list[tuple[str, Expr]] = [(name, Index(name)) for name in names]
    if layout is not None:
        axes = list(zip(loop_names(layout, names), loop_values(layout, names), strict=True))
    return Shape(own, values, tuple((name, value, "serial", None) for name, value in axes))


def mirrored(
    nest: Nest,
    writer: Stmt,
    depth: int,
    names: Sequence[str],
    touched: Sequence[tuple[Stmt, Cell]],
) -> Shape | None:
    """The writer's own loops, the outermost `depth` being those around the copy.

    Loops that the element's coordinates do not determine (those of the reduction) are repeated
    outside and left out inside. None where the rest would not tell all elements apart, or where
    an iteration touches elements that are another's by their coordinates.
    """
    if writer.lhs != tuple(map(Index, names)):
        return None
    chain = around_stmt(nest.tree, writer.name)

    def follows(loop: Loop) -> bool:
        return set(indices_of(loop.values[writer.name])) <= set(names)

    for loop in filter(follows, chain[:depth]):
        seen = {in_coordinates(loop.values[stmt.name], cell, stmt) for stmt, cell in touched}
        if len(seen) > 1 or None in seen:
            return None
    own = own_dims([loop for loop in chain[:depth] if not follows(loop)], names)
    values: dict[str, Expr] = {
        loop.name: Index(own[loop.name]) if loop.name in own else loop.values[writer.name]
        for loop in chain[:depth]
    }
    inner = tuple(
        (index_of(loop.name), loop.values[writer.name], loop.kind, loop.extent)
        for loop in chain[depth:]
        if follows(loop) and indices_of(loop.values[writer.name])
    )
    known = [values[loop.name] for loop in chain[:depth] if loop.name not in own]
    shape = nest.kernel.tensors[nest.buffers[writer.buffer].tensor].shape
    if not _tell_apart([*known, *(value for _, value, _, _ in inner)], names, shape):
        return None
    return Shape(own, values, inner)


def _tell_apart(values: Sequence[Expr], names: Sequence[str], shape: Sequence[Expr]) -> bool:
    """Do these values of loops differ for different elements?"""
    dims = tuple(names)
    inside = within(Range(dim, const(0), size) for dim, size in zip(dims, shape, strict=True))
    inside += [second(condition, dims) for condition in inside]
    apart = differ([Index(dim) for dim in dims], dims)
    both = [*dims, *primed(dims)]
    conditions = [*agree(values, dims), *inside, apart]
    return isl.is_empty(points(both, conditions, sizes_of([*values, *shape]))) is isl.Answer.YES


def copy(
    nest: Nest,
    label: str,
    buffers: tuple[str, str],
    touched: Sequence[tuple[Stmt, Cell]],
    around: Sequence[Loop],
    shape: Shape,
    names: tuple[str, ...],
    who: str,
    without: Sequence[tuple[Stmt, Cell]] = (),
) -> tuple[Stmt, Tree]:
    """The statement that copies the touched elements (but those `without`), and its loops.

    `buffers` are target and source, of which the tile's own is not in the nest yet. A copy out
    of the tile must not write more than was computed: the elements must form one convex block.
    """
    target, source = buffers
    tensor = next(nest.buffers[name].tensor for name in buffers if name in nest.buffers)
    free = [loop for loop in around if loop.name in shape.own]
    dims = tuple(shape.own[loop.name] for loop in free)
    found = region(nest, tensor, touched, free, (dims, names), who, without)
    if not found.exact and nest.buffers.get(target) is not None:
        raise ScheduleError(
            f"{who}: the elements of {tensor} written under loop {around[-1].name} are no convex "
            "block, so they cannot be copied out as one"
        )
    cell: tuple[Expr, ...] = tuple(map(Index, names))
    loc = touched[0][0].loc
    stmt = Stmt(
        label, (*dims, *names), found.conditions, target, cell, Access(source, cell), None,
        (tensor, cell), loc,
    )  # fmt: skip
    tree: Tree = Leaf(label)
    for name, value, kind, extent in reversed(shape.inner):
        tree = Loop(f"{label}.{name}", {label: value}, tree, kind, extent)
    return stmt, tree
