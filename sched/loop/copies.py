"""How a tile is copied: the statements of `stage`, their domains, and the loops around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ...algo import isl
from ...algo.errors import ScheduleError
from ...algo.tensor_expr.build import compare, const
from ...algo.tensor_expr.domains import within
from ...algo.tensor_expr.expr import Access, Const, Expr, Index, Range, Size, indices_of, sizes_of
from ...algo.tensor_expr.points import points
from .border import bordered
from .extent import UNKNOWN
from .layout import loop_names, loop_values
from .names import index_of, unlike
from .nest import Leaf, Loop, Nest, Stmt, Tree
from .regions import Cell, Region, pieces, region
from .relations import agree, differ, primed, second
from .storage import in_coordinates
from .tree import around_stmt

Touched = tuple[Stmt, Cell]
"""A statement and the cell of an access of it."""

PIECES = 8
"""More copies than this of one tile would be slower than what they avoid."""

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

    @property
    def unmarked(self) -> Shape:
        """The same loops, all of them serial."""
        inner = tuple((name, value, "serial", extent) for name, value, _, extent in self.inner)
        return replace(self, inner=inner)


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
    user: Stmt,
    depth: int,
    names: Sequence[str],
    touched: Sequence[tuple[Stmt, Cell]],
    shape: Sequence[Expr],
) -> Shape | None:
    """The loops of a statement that touches the tile, the outermost `depth` being those around
    the copy.

    Loops that the element's coordinates do not determine (those of the reduction) are repeated
    outside and left out inside. None where the rest would not tell all elements apart, or where
    an iteration touches elements that are another's by their coordinates. `names` are those of
    the tensor's coordinates, `shape` its extents.
    """
    cell = tuple(map(Index, names))
    if (user, cell) not in touched:
        return None
    chain = around_stmt(nest.tree, user.name)

    def follows(loop: Loop) -> bool:
        return set(indices_of(loop.values[user.name])) <= set(names)

    for loop in filter(follows, chain[:depth]):
        seen = {in_coordinates(loop.values[stmt.name], cell, stmt) for stmt, cell in touched}
        if len(seen) > 1 or None in seen:
            return None
    own = own_dims([loop for loop in chain[:depth] if not follows(loop)], names)
    values: dict[str, Expr] = {
        loop.name: Index(own[loop.name]) if loop.name in own else loop.values[user.name]
        for loop in chain[:depth]
    }
    inner = tuple(
        (index_of(loop.name), loop.values[user.name], loop.kind, loop.extent)
        for loop in chain[depth:]
        if follows(loop) and indices_of(loop.values[user.name])
    )
    known = [values[loop.name] for loop in chain[:depth] if loop.name not in own]
    if not _tell_apart([*known, *(value for _, value, _, _ in inner)], names, shape):
        return None
    return Shape(own, values, inner)


def joins(nest: Nest, stmt: Stmt, names: set[str]) -> bool:
    """Does a loop around the statement run over several coordinates as one?"""
    return any(
        len(names & set(indices_of(loop.values[stmt.name]))) > 1
        for loop in around_stmt(nest.tree, stmt.name)
    )


def _tell_apart(values: Sequence[Expr], names: Sequence[str], shape: Sequence[Expr]) -> bool:
    """Do these values of loops differ for different elements?

    Sizes that are symbols are taken as what `fuse` takes for the most.
    """
    dims = tuple(names)
    inside = within(Range(dim, const(0), size) for dim, size in zip(dims, shape, strict=True))
    inside += [second(condition, dims) for condition in inside]
    apart = differ([Index(dim) for dim in dims], dims)
    both = [*dims, *primed(dims)]
    sizes = sizes_of([*values, *shape])
    usual = [compare("le", Size(size), const(UNKNOWN)) for size in sizes]
    conditions = [*agree(values, dims), *inside, apart, *usual]
    return isl.is_empty(points(both, conditions, sizes)) is isl.Answer.YES


Names = tuple[tuple[str, ...], tuple[str, ...]]
"""Those of loops, and those of coordinates."""

Copying = tuple[Stmt, Tree]
"""The statement that copies, and its loops."""


@dataclass(frozen=True)
class Copies:
    """Copies between a tile and the buffer around it, under the loops `around`.

    `names` are those of the coordinates. Of the ends, target and source, the tile is not in the
    nest yet. With a `border` it goes beyond the tensor's ends, where it holds `fill`, unless the
    source has a border too.
    """

    nest: Nest
    tensor: str
    around: Sequence[Loop]
    shape: Shape
    names: tuple[str, ...]
    who: str
    border: bool = False
    fill: Const | None = None

    def bring(
        self,
        label: str,
        ends: tuple[str, str],
        wanted: Sequence[Touched],
        made: Sequence[Touched],
    ) -> list[Copying]:
        """Copies in of what is wanted and not `made` in the same iteration.

        One copy of a convex set of elements around them; or one a convex piece, where the tile is
        written too, for then a set around them may take in elements that nothing has given yet.
        """
        ask = self._question(wanted)
        found = [region(*ask, made, border=self.border)]
        if made and not found[0].exact:
            parts = pieces(*ask, made)
            found = parts if len(parts) <= PIECES else found
        return self._statements(label, ends, found, wanted)

    def save(
        self,
        label: str,
        ends: tuple[str, str],
        written: Sequence[Touched],
        useful: Sequence[Touched],
    ) -> list[Copying]:
        """Copies out of what is written: only the `useful` part, where that is one convex set.

        No more than is written may be copied, for the tile does not hold the rest.
        """
        found: list[Region] = []
        if useful:
            with suppress(ScheduleError):  # what takes isl too long is saved whole
                found = [region(*self._question(useful))]
        if not found or not found[0].exact:
            found = [region(*self._question(written))]
        if not found[0].exact:
            found = pieces(*self._question(written))
        if len(found) > PIECES or not all(part.exact for part in found):
            raise ScheduleError(
                f"{self.who}: the elements of {self.tensor} written under loop "
                f"{self.around[-1].name} are no convex block, so they cannot be copied out as one"
            )
        return self._statements(label, ends, found, written)

    def _question(
        self, touched: Sequence[Touched]
    ) -> tuple[Nest, str, Sequence[Touched], list[Loop], Names, str]:
        free = [loop for loop in self.around if loop.name in self.shape.own]
        own = tuple(self.shape.own[loop.name] for loop in free)
        return self.nest, self.tensor, touched, free, (own, self.names), self.who

    def _statements(
        self,
        label: str,
        ends: tuple[str, str],
        regions: Sequence[Region],
        touched: Sequence[Touched],
    ) -> list[Copying]:
        target, source = ends
        cell: tuple[Expr, ...] = tuple(map(Index, self.names))
        shape = self.nest.kernel.tensors[self.tensor].shape
        made: dict[str, Copying] = {}
        for part in regions:
            name = unused(label, {*self.nest.stmts, *made})
            value: Expr = Access(source, cell)
            if self.fill is not None:
                value = bordered(Access(source, cell), shape, self.fill, part.conditions)
            stmt = Stmt(
                name, (*part.outer, *part.coordinates), part.conditions, target, cell,
                value, None, (self.tensor, cell), touched[0][0].loc,
            )  # fmt: skip
            tree: Tree = Leaf(name)
            for inner, value, kind, extent in reversed(self.shape.inner):
                tree = Loop(f"{name}.{inner}", {name: value}, tree, kind, extent)
            made[name] = stmt, tree
        return list(made.values())


def unused(name: str, taken: Collection[str]) -> str:
    """`name`, numbered from the second one on."""
    n, found = 2, name
    while found in taken:
        found, n = f"{name}{n}", n + 1
    return found
