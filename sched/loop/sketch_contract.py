"""The primitives of a contraction's sketch: blocks, panels, and a tile in registers.

    for jb: for kb: [B.pack] for ib: [A.pack] for jo: for io: for ki: for ii unroll: for ji vector

Blocks come in the order of the choice. A packed tensor is copied in the innermost of them whose
index moves through it, so that what does not change is not copied again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...algo.tensor_expr.expr import Access, Index
from .access import Group
from .compute import ComputeAt
from .draft import Draft
from .extent import at_once
from .fuse import Fuse
from .marks import Mark, Parallel, Vectorize
from .nest import loops
from .split import Split
from .stage import Stage
from .tile_model import bare, span

STACK = 64 << 10
"""Bytes of a panel that may be on a thread's stack."""


@dataclass(slots=True)
class Contraction:
    """Writes the loops of one nest, and says what its loops are called.

    `prefix` stands before the names of its loops; `sides` are the indices of the tile in
    registers, the one that runs in lanes last, and their iterations.
    """

    draft: Draft
    group: Group
    prefix: str
    sides: dict[str, int]
    blocks: tuple[tuple[str, int], ...]
    pack: tuple[str, ...]
    outer: str | None
    lanes: int
    cache: int
    """Bytes that a copy may take."""
    above: Sequence[tuple[str, str, bool]] = ()
    """Loops of another nest around this one: an index, its full name, and whether it fixes the
    index or only a block of it."""
    shared: str | None = None
    """The loop that threads share."""

    def write(self) -> None:
        """Splits, orders, places and copies; the inner loops are marked by the caller."""
        inner = {i: i for i in (*self.group.outs, *self.group.reds)}
        blocks = []
        for index, size in self.blocks:
            if size == 1 and index in self.group.reds:
                blocks.append((index, inner.pop(index)))
            elif self._split(index, size, (f"{index}b", f"{index}r")):
                blocks.append((index, f"{index}b"))
                inner[index] = f"{index}r"
        tiles, tile = {}, []
        for index, size in self.sides.items():
            # A tile of everything leaves a loop of one iteration, which has a place for buffers.
            if self._split(inner[index], size, (f"{index}o", f"{index}i")):
                tiles[index] = f"{index}o"
                tile.append(f"{index}i")
        apart = [i for i in self.group.outs if i not in self.sides and self._apart(i)]
        others = [i for i in self.group.outs if i not in self.sides and i not in apart]
        taps = [i for i in others if self._tap(i)]
        rows = [i for i in others if i not in taps]
        sides = [i for i in reversed(list(self.sides)) if i in tiles]
        ahead = [i for i in sides if self._copies_once(i, apart)]
        walk = [*ahead, *rows, *(i for i in sides if i not in ahead), *taps]
        first = [self.outer] if self.outer in walk and self.outer not in dict(blocks) else []
        walk = [*first, *(i for i in walk if i not in first)]
        around = [tiles.get(i, i) for i in walk]
        reds = [inner[i] for i in self.group.reds if i in inner]
        apart.sort(key=lambda i: i != self.outer)
        order = [*apart, *(name for _, name in blocks), *around, *reds, *tile]
        self.draft.order(self.group.name, self.prefix, order)
        if self.outer is not None:
            self.shared = dict(blocks).get(self.outer, tiles.get(self.outer, self.outer))
        home = (around or [name for _, name in blocks] or apart)[-1:]
        if home:
            if blocks:
                for part in ("init", "final"):
                    if any(s.name == f"{self.group.name}.{part}" for s in self.group.stages):
                        at = self.prefix + home[0]
                        self.draft.attempt(ComputeAt(f"{self.group.name}.{part}", at))
            at = self.prefix + home[0]
            self.draft.attempt(Stage(self.group.name, at, "register", self._lanes_last()))
        self._pack([*((i, i) for i in apart), *blocks])
        sizes = dict(self.blocks)
        placed = [(i, i, 1) for i in apart]
        placed += [(i, name, sizes[i]) for i, name in blocks]
        placed += [(i, tiles.get(i, i), self.sides.get(i, 1)) for i in walk]
        self._copy_with_border(placed)

    def _lanes_last(self) -> tuple[str, ...] | None:
        """The layout of the tile in which lanes lie side by side, if that is not the tensor's."""
        lhs, vector = self.group.main.lhs, Index(list(self.sides)[-1])
        names = [part.name for part in lhs if isinstance(part, Index)]
        if vector not in lhs or lhs[-1] is vector or len(set(names)) < len(lhs):
            return None
        return (*(name for name in names if name != vector.name), vector.name)

    def _split(self, name: str, size: int, into: tuple[str, str]) -> bool:
        plain = (f"{name}o", f"{name}i")
        return self.draft.attempt(
            Split(self.prefix + name, size, into=None if into == plain else into)
        )

    def _apart(self, index: str) -> bool:
        """Do all operands move along an index, so that its iterations have nothing in common?"""
        return all(self.group.stride(a, index) != 0 for a in self.group.reads)

    def _tap(self, index: str) -> bool:
        """Do neighbours along an index read nearly the same, as the taps of a filter do?

        What they read moves along a reduced index, too, which is longer.
        """
        extents = self.group.extents
        moving = [a for a in self.group.reads if self.group.stride(a, index) != 0]
        return all(
            any(
                self.group.stride(a, i) == self.group.stride(a, index)
                and extents[i] > extents[index]
                for i in self.group.reds
            )
            for a in moving
        )

    def _copies_once(self, index: str, apart: Sequence[str]) -> bool:
        """Is what has a border copied once for a block of an index, beside all else that is read,
        where the whole of it would be too large, and rows of it are copied with each neighbour?"""
        inside = dict(self.group.extents) | dict.fromkeys(apart, 1)
        block = {**inside, index: self.sides[index]}

        def size(read: Access, iterations: Mapping[str, int]) -> int:
            return span(read, iterations, self.group.sizes[read.tensor])

        moving = [a for a in self.group.reads if self.group.stride(a, index) != 0]
        if len(moving) != 1 or bare(moving[0], index) is None:
            return False
        bordered = moving[0] in self.group.guarded.values() and moving[0].tensor in self.pack
        used = sum(size(a, block) for a in self.group.reads)
        return bordered and size(moving[0], inside) > self.cache >= used

    def _pack(self, around: list[tuple[str, str]]) -> None:
        """Copies each packed tensor in the innermost loop around whose index moves through it."""
        extents = dict(self.group.extents) | dict(self.blocks)
        fixed = {i for i, _, whole in self.above if whole}
        around = [(i, name) for i, name in around if i not in fixed]
        for tensor in self.pack:
            read = next(a for a in self.group.reads if a.tensor == tensor)
            if read in self.group.guarded.values():
                continue
            moving = [n for n, (i, _) in enumerate(around) if self.group.stride(read, i) != 0]
            if not moving:
                self._pack_above(tensor)
                continue
            at = moving[-1]
            outside = {i for i, _ in around[: at + 1]} - {i for i, _ in self.blocks}
            inside = {
                i: n if i in dict(around[: at + 1]) else self.group.extents[i]
                for i, n in extents.items()
                if i not in outside
            }
            shared = self.shared not in [name for _, name in around[: at + 1]]
            size = span(read, inside, self.group.sizes[tensor])
            scope = "heap" if shared or size > STACK else "stack"
            layout = self._panels(tensor)
            if self.draft.attempt(Stage(tensor, self.prefix + around[at][1], scope, layout)):
                self._walk(read)
                self._mark_copy(f"{tensor}.pack", shared=shared and self.shared is not None)

    def _pack_above(self, tensor: str) -> None:
        """Copies a packed tensor in the innermost loop around the nest that moves through it, or
        else in the outermost."""
        read = next(a for a in self.group.reads if a.tensor == tensor)
        moving = [name for i, name, _ in self.above if self.group.stride(read, i) != 0]
        for place in moving[-1:] or [name for _, name, _ in self.above[:1]]:
            if self.draft.attempt(Stage(tensor, place, "heap", self._panels(tensor))):
                self._walk(read)
                self._mark_copy(f"{tensor}.pack", shared=False)

    def _copy_with_border(self, around: list[tuple[str, str, int]]) -> None:
        """Copies tensors that have a border, where that is done least often for what is needed.

        `around` has an index, the name of a loop over it, and how much is left of the index inside.
        """
        for read in self.group.guarded.values():
            if read.tensor not in self.pack:
                continue
            inside, times = dict(self.group.extents), 1
            found: list[tuple[int, int, str, int]] = []
            for place, (index, name, left) in enumerate(around):
                times *= -(-inside[index] // left)
                inside[index] = left
                size = span(read, inside, self.group.sizes[read.tensor])
                found.append((size * times, -place, name, size))
            fitting = [item for item in found if item[3] <= self.cache] or found
            if not fitting:
                continue
            _, place, name, size = min(fitting)
            names = [name for _, name, _ in around[: 1 - place]]
            shared = self.shared is not None and self.shared not in names
            scope = "heap" if shared or size > STACK else "stack"
            if self.draft.attempt(Stage(read.tensor, self.prefix + name, scope)):
                self._mark_copy(f"{read.tensor}.pack", shared=shared)

    def _panels(self, tensor: str) -> tuple[str, ...]:
        """The layout that makes the tile's walk through a packed tensor contiguous."""
        read = next(a for a in self.group.reads if a.tensor == tensor)
        sides = {bare(read, i): n for i, n in self.sides.items() if bare(read, i) is not None}
        names = _names(read)
        rest = [names[n] for n in names if n not in sides]
        return (
            *(f"{names[n]}//{size}" for n, size in sides.items() if n is not None),
            *rest,
            *(f"{names[n]}%{size}" for n, size in sides.items() if n is not None),
        )

    def _walk(self, read: Access) -> None:
        """Makes one loop of those of a copy across rows that go on along these, as taps of a filter
        and its channels do: what is turned in registers are squares."""
        shape, names = self.group.shapes[read.tensor], _names(read)
        sides = {bare(read, i) for i in self.sides}
        inner, name, extent = len(shape) - 1, names[len(shape) - 1], shape[-1]
        while inner > 0 and extent < self.lanes and sides.isdisjoint((inner, inner - 1)):
            outer, whole = names[inner - 1], f"{read.tensor}.pack.{name}"
            found = [loop for loop in loops(self.draft.nest.tree) if loop.name == whole]
            if not found or at_once(self.draft.nest, found[0]) != extent:
                return  # a block of it, after which rows go on elsewhere
            if not self.draft.attempt(Fuse(f"{read.tensor}.pack.{outer}", whole)):
                return
            inner, name, extent = inner - 1, f"{outer}_{name}", extent * shape[inner - 1]

    def _mark_copy(self, stem: str, *, shared: bool) -> None:
        """A packing copy runs in lanes and, where all threads use it, in parallel."""
        copying = [loop for loop in loops(self.draft.nest.tree) if loop.name.startswith(stem)]
        if len(copying) > 1:
            self._mark(Vectorize, copying[-1].name)
            if shared:
                several = (loop for loop in copying if at_once(self.draft.nest, loop) != 1)
                self._mark(Parallel, next(several, copying[0]).name)

    def _mark(self, mark: type[Mark], name: str) -> None:
        self.draft.attempt(mark(name))


def _names(read: Access) -> dict[int, str]:
    """What the dimensions of a tensor are called in its copies."""
    names = {n: getattr(expr, "name", f"d{n}") for n, expr in enumerate(read.indices)}
    return names if len(set(names.values())) == len(names) else {n: f"d{n}" for n in names}
