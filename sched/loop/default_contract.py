"""The default schedule of contractions: reductions in which what is loaded is used again.

The register tile comes from `tile_model`. Around it stand, as in GotoBLAS, blocks of the reduction
whose panels stay in the first cache, and blocks of the tile's indices for the caches behind it; an
operand whose walk jumps through memory is copied into panels in the order in which it is read.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from ...algo.tensor_expr.build import conjuncts
from ...algo.tensor_expr.expr import Access, indices_of
from .access import Group
from .machine import Machine
from .parallelism import worth_threads
from .sketch import Choice
from .tile_model import PAGE, Tile, Tiles, bare, span

FIRST_CACHE = 1.5
"""How much of the first cache the panels of a block may take. They pass through it in order, and
what it does not hold comes from the second in time."""
DEEPEST = 384
"""Iterations of the reduction after which a tile's cells cost little."""
OUTER_CACHE = 4 << 20
"""Bytes of the outermost cache that a block may take: it is shared, and by more than we know."""
PAGES = 64
"""Pages that a core finds at once; twice as many, if each serves some steps."""
APART = 2048
"""Iterations of the reduction, at least, between visits of a tile whose lanes are stored apart."""
REUSED = 4
"""How often what is packed must be used for that to pay."""

Blocks = tuple[tuple[str, int], ...]
"""Indices, and how many iterations of them a block has."""


def contraction(
    group: Group, lanes: int, machine: Machine, around: Collection[str] = ()
) -> Choice | None:
    """What the model chooses for a reduction, or None where nothing is to be gained by lanes.

    Loops `around` stay outermost.
    """
    plain = not group.main.carries
    tile = Tiles(group, lanes, machine, panels=plain and not around, around=around).best()
    if tile is None or _is_band(group, tile) or _passes(group, tile, lanes, machine):
        return None
    found = _Blocking(group, tile, lanes, machine).choice(plain and not around)
    return replace(found, blocks=()) if around else found


def _is_band(group: Group, tile: Tile) -> bool:
    """Do two conditions or more tie lanes of a tile to its rows, so that few cells are needed?"""
    main = group.main
    ties = [set(indices_of(c)) for c in conjuncts(main.where)]
    ties += [{r.index, *indices_of(end)} for r in main.ranges for end in (r.lo, r.hi)]
    return any(
        sum({row, tile.vector} <= tied for tied in ties) > 1
        for row, _ in tile.heights
        if row != tile.vector
    )


def _passes(group: Group, tile: Tile, lanes: int, machine: Machine) -> bool:
    """Does a tile go down columns of what is read once, from behind the caches?

    Memory gives it faster row by row, as nests walk that are no tiles.
    """
    if tile.vector in group.reds or group.extents[tile.vector] <= tile.vectors * lanes:
        return False
    return any(
        math.prod(group.shapes[read.tensor]) * group.sizes[read.tensor] > machine.l2
        and math.prod(group.shapes[read.tensor]) == group.work
        and group.stride(read, tile.vector) == 1
        for read in group.reads
    )


@dataclass(frozen=True, slots=True)
class _Blocking:
    """Blocks, panels and threads around a register tile."""

    group: Group
    tile: Tile
    lanes: int
    machine: Machine

    def choice(self, plain: bool) -> Choice:
        group, tile = self.group, self.tile
        depth = self.depth(group.store_stride(tile.vector) == 1)
        pack = self.packed() if plain and tile.vector in group.outs else ()
        outer = self.outer(pack)
        if tile.vector in group.reds or not plain:
            whole = group.extents[tile.vector] <= self.lanes
            vectors = 0 if whole else tile.vectors
            return Choice(vector=tile.vector, vectors=vectors, tile=tile.heights, outer=outer)
        blocks: list[tuple[str, int]] = []
        if set(pack) - {read.tensor for read in group.guarded.values()}:
            # A block of all of the reduction is a place for panels that all threads use.
            blocks = [*self.columns(pack, depth, outer), *depth, *self.rows(pack, depth, outer)]
            blocks = [(i, n) for i, n in blocks if n < group.extents[i] or (i, n) == depth[0]]
        return Choice(
            vector=tile.vector,
            vectors=tile.vectors,
            tile=tile.heights,
            blocks=tuple(blocks),
            pack=pack,
            outer=outer,
        )

    def depth(self, together: bool) -> Blocks:
        """The blocks of reduced indices; `together` says that a tile's lanes are stored side by
        side, so that it may be visited often. Then its panels stay in the first cache.

        Else a block takes some time, and what all of its tiles read stays in the second cache.
        """
        extents, inside = self.group.extents, list(self.group.reds)
        if together:
            index = max(inside, key=lambda i: extents[i])
            most = next(
                (n for n in range(min(extents[index], DEEPEST), 1, -1)
                 if self.bytes({index: n}) <= FIRST_CACHE * self.machine.l1),
                1,
            )  # fmt: skip
            return ((index, _even(extents[index], most, 4)),)
        whole: dict[str, int] = {}
        while math.prod(extents[i] for i in inside[1:]) >= APART:
            whole[inside.pop(0)] = 1
        index = max(inside, key=lambda i: extents[i])
        step = math.prod(extents[i] for i in inside if i != index)
        least = min(extents[index], -(-APART // step))
        most = next(
            (n for n in range(extents[index], least, -1)
             if self.bytes({**whole, index: n}) <= self.machine.l2 // 2),
            least,
        )  # fmt: skip
        return (*whole.items(), (index, _even(extents[index], most, 1)))

    def bytes(self, block: dict[str, int]) -> int:
        """Bytes that a tile reads in a block of the reduction."""
        group = self.group
        inner = {i: group.extents[i] for i in group.reds} | dict(self.tile.heights) | block
        inner[self.tile.vector] = self.tile.vectors * self.lanes
        return sum(span(a, inner, group.sizes[a.tensor]) for a in group.reads)

    def packed(self) -> tuple[str, ...]:
        """Tensors to copy into panels: those read across their rows, those whose walk would meet
        more pages than a core finds at once, and those with a border, if each copy is used often
        enough."""
        tensors = [a.tensor for a in self.group.reads]
        guarded = set(self.group.guarded.values())
        found = []
        for read in self.group.reads:
            if read in guarded and tensors.count(read.tensor) == 1 and self.reuse(read) >= REUSED:
                found.append(read.tensor)
                continue
            jumps = read.tensor in self.tile.across or self.jumps(read)
            if jumps and tensors.count(read.tensor) == 1 and self.bare(read):
                found.append(read.tensor)
        return tuple(found)

    def jumps(self, read: Access) -> bool:
        """Does the walk of a read along the reduction meet many pages?"""
        group = self.group
        moving = [i for i in group.reds if group.stride(read, i) != 0]
        if not moving or not any(group.stride(read, i) != 0 for i in self.sides):
            return False
        steps = [abs(group.stride(read, i) or 1) * group.sizes[read.tensor] for i in moving]
        reach = max(step * group.extents[i] for step, i in zip(steps, moving, strict=True))
        used = math.prod(
            group.extents[i] // dict(self.sides).get(i, 1)
            for i in group.outs
            if group.stride(read, i) == 0
        )
        return steps[-1] > 64 and reach > PAGES * PAGE and used >= REUSED

    def reuse(self, read: Access) -> float:
        """How often an element is read."""
        elements = math.prod(self.group.shapes[read.tensor])
        return self.group.work / max(1, elements)

    def bare(self, read: Access) -> bool:
        """Do the tile's indices run over dimensions of their own?"""
        moving = [i for i in self.sides if self.group.stride(read, i) != 0]
        return all(bare(read, i) is not None for i in moving)

    @property
    def sides(self) -> dict[str, int]:
        """The tile's indices and how many iterations of each it has."""
        return {**dict(self.tile.heights), self.tile.vector: self.tile.vectors * self.lanes}

    def columns(
        self, pack: tuple[str, ...], depth: Blocks, outer: str | None
    ) -> list[tuple[str, int]]:
        """A block of the vector index: what one thread does, or what the outer cache holds."""
        vector, width = self.tile.vector, self.sides[self.tile.vector]
        extent = self.group.extents[vector]
        tiles = -(-extent // width)
        if outer == vector:
            return [(vector, width * -(-tiles // self.machine.threads))]
        each = self.packed_bytes(pack, depth, vector)
        most = min(OUTER_CACHE, self.machine.l3) // max(1, each)
        if not each or extent <= most:
            return []
        return [(vector, _even(extent, most, width))]

    def rows(
        self, pack: tuple[str, ...], depth: Blocks, outer: str | None
    ) -> list[tuple[str, int]]:
        """A block of the other index, whose panels the second cache holds, or whose rows lie in few
        pages; threads have equal shares of blocks."""
        if not self.tile.heights:
            return []
        index, height = self.tile.heights[0]
        extent = self.group.extents[index]
        most = extent
        if each := self.packed_bytes(pack, depth, index):
            most = min(most, self.machine.l2 // 2 // each)
        for read in self.group.reads:
            step = abs(self.group.stride(read, index) or 0) * self.group.sizes[read.tensor]
            if step and read.tensor not in pack:
                most = min(most, 2 * PAGES * PAGE // min(step, PAGE))
        threads = self.machine.threads if outer == index else 1
        return [(index, height * _share(-(-extent // height), most // height, threads))]

    def packed_bytes(self, pack: tuple[str, ...], depth: Blocks, index: str) -> int:
        """Bytes of packed panels for each iteration of a tile's index."""
        group = self.group
        around = {i: group.extents[i] for i in group.reds} | dict(depth)
        moving = [a for a in group.reads if a.tensor in pack and group.stride(a, index) != 0]
        return sum(span(a, around, group.sizes[a.tensor]) for a in moving)

    def outer(self, pack: tuple[str, ...]) -> str | None:
        """The index whose iterations threads share: one in which they share nothing if it is long
        enough; else the vector index, where each thread packs panels of its own and none waits
        for another; else the one whose blocks they share evenly."""
        group, threads = self.group, self.machine.threads
        if not worth_threads(group, self.lanes, self.machine):
            return None
        if group.free or group.main.carries:
            return next((i for i in group.free if group.extents[i] >= threads), None)
        sides = self.sides
        counts = {i: -(-group.extents[i] // sides.get(i, 1)) for i in group.outs}

        def balance(index: str) -> float:
            share = sides.get(index, 1) * -(-counts[index] // threads)
            return group.extents[index] / (share * threads)

        def apart(index: str) -> bool:
            return index not in sides and all(group.stride(a, index) != 0 for a in group.reads)

        enough = [i for i in group.outs if counts[i] >= threads]

        vector = self.tile.vector
        own = [a for a in group.reads if a.tensor in pack and group.stride(a, vector) != 0]

        def stays(index: str) -> bool:
            """Is what all iterations use small enough for the second cache?"""
            same = {a.tensor for a in group.reads if group.stride(a, index) == 0}
            used = sum(math.prod(group.shapes[t]) * group.sizes[t] for t in same)
            return 2 * used <= self.machine.l2

        def rank(index: str) -> tuple[bool, ...]:
            even = balance(index) > (0.95 if index == vector else 0.9)
            mine = (index == vector) == bool(own)
            return apart(index), stays(index), even, index not in sides, mine

        return max(enough, key=rank, default=None)


def _share(tiles: int, most: int, threads: int) -> int:
    """Tiles of a block, at most `most` of them, so that threads have nearly equally many."""

    def rounds(each: int) -> int:
        blocks = -(-tiles // each)
        return each * -(-blocks // threads)

    most = max(1, min(most, -(-tiles // threads)))
    return min(range(most, (most - 1) // 2, -1), key=rounds)


def _even(extent: int, most: int, unit: int) -> int:
    """The size of equal blocks of at most `most` iterations, a multiple of `unit` if not whole."""
    parts = -(-extent // max(1, most))
    if parts <= 1:  # a size may be 0
        return extent
    size = -(-extent // parts)
    return min(extent, -(-size // unit) * unit)
