"""What a register tile of a reduction costs, in cycles: arithmetic, loads, latency and tails.

After Low, Igual, Smith and Quintana-Orti, "Analytical modeling is enough for high-performance
BLIS" (2016): a tile is as wide and as high as registers allow, wide enough to hide the latency of
its additions, and loads little for what it computes. Here the operands may be any number of reads
with any index in any place, and extents are small or do not divide as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from ...algo.forked import cached_property
from ...algo.tensor_expr.expr import (
    Access,
    Call,
    Expr,
    Index,
    accesses,
    indices_of,
    substitute,
    walk,
)
from .access import Group
from .machine import Machine

PORTS = 2
"""Vector operations, and loads, that a core starts in a cycle."""
LATENCY = 4
"""Cycles from the start of an addition to that of one that needs it."""
A_TILE = 16.0
"""Cycles to begin and end the loop over a tile's reduction."""
ACROSS = 8.0
"""Cycles to combine the lanes of one accumulator."""
MOVED = 0.4
"""Cycles to copy an element into a panel across its rows."""
A_LOAD = 0.03
"""Cycles that a load costs even where others hide it."""
DEPTH, NEAR, FAR = 256, 5.0, 10.0
"""Steps of a pass over a long reduction; cycles to reach a cell apart, and in a page of its own."""
A_GUARD, A_BRANCH = 2.0, 4.0
"""Operations that a guarded read costs: a mask of lanes, or a branch for one value of all lanes."""
UNEVEN = 1.03
"""How much longer threads take that wait for panels of others."""
BODY = 256.0
"""Additions of one step of a tile, at most: more than one row of cells gives no reason to run, and
to compile, more code than a core keeps decoded."""
PAGE, WAYS, PASSING = 4096, 8, 2
"""Bytes after which lines meet in one set of the first cache, how many it holds, and how many of
them others need that pass through."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A block of cells that are accumulated together.

    `vectors` registers lie side by side along `vector`; there is a row of them for each
    combination of the `heights` of other indices. A `vector` that is reduced has `vectors`
    accumulators of its own in each cell. Reads of the tensors `across` jump along the lanes and
    are copied into panels where they do not. `cycles` is what the whole nest takes.
    """

    vector: str
    vectors: int
    heights: tuple[tuple[str, int], ...]
    across: tuple[str, ...]
    cycles: float


class Tiles:
    """The tiles of one nest on a machine, `lanes` elements to a register.

    `panels`: operands may be copied. Loops `around` have no tiles.
    """

    def __init__(
        self,
        group: Group,
        lanes: int,
        machine: Machine,
        *,
        panels: bool,
        around: Collection[str] = (),
    ) -> None:
        self.group, self.lanes, self.machine, self.panels = group, lanes, machine, panels
        self.extents = group.extents
        self.outs = [i for i in group.outs if self.extents[i] > 1]
        self.reds = [i for i in group.reds if self.extents[i] > 1]
        self.tiled = [i for i in self.outs if i not in around]

    def best(self) -> Tile | None:
        """The tile that takes least, wider and higher ones where that is nearly the same."""
        vectors = [*reversed(self.tiled), *(i for i in self.reds if self._contiguous(i))]
        found = [tile for vector in vectors for tile in self._along(vector)]
        return min(found, key=lambda tile: tile.cycles, default=None)

    def _along(self, vector: str) -> Iterator[Tile]:
        """The tiles with their lanes along one index."""
        most = -(-self.extents[vector] // self.lanes)
        for vectors in range(1, min(most, 6) + 1):
            for heights in self._heights(vector, vectors):
                tile = self._tile(vector, vectors, heights)
                if tile is not None:
                    yield tile

    def _heights(self, vector: str, vectors: int) -> Iterator[dict[str, int]]:
        """Blocks of one other index, whose accumulators fit the registers, or of two where one is
        too short to fill them."""
        room = (self.machine.registers - 1 - vectors) // vectors
        room = min(room, int(BODY / (self.group.cost * vectors)))
        useful = [i for i in reversed(self.tiled) if i != vector and self._shares(i)]
        yield {}
        for index in useful:
            extent = self.extents[index]
            for height in range(2, min(extent, room) + 1):
                yield {index: height}
            for other in useful if 2 * extent <= room else ():
                if other != index:
                    for height in range(2, min(self.extents[other], room // extent) + 1):
                        yield {index: extent, other: height}

    def _contiguous(self, index: str) -> bool:
        return all(self.strides[a, index] in (0, 1) for a in self.group.reads)

    def _shares(self, index: str) -> bool:
        """Does what is loaded serve several iterations of an index?"""
        return any(index not in self.moves[a] for a in self.group.reads)

    @cached_property
    def strides(self) -> Mapping[tuple[Access, str], int | None]:
        """Elements between neighbours along each index, for each read."""
        every = (*self.outs, *self.reds)
        return {(a, i): self.group.stride(a, i) for a in self.group.reads for i in every}

    @cached_property
    def moves(self) -> Mapping[Access, frozenset[str]]:
        """The indices along which a read moves."""
        every = (*self.outs, *self.reds)
        return {a: frozenset(i for i in every if self.strides[a, i] != 0) for a in self.group.reads}

    @cached_property
    def _calls(self) -> list[tuple[frozenset[str], bool]]:
        """The indices that change each operation but the last, which is added in one go, and
        whether it is a guard."""
        value = self.group.main.value
        if self.panels:  # conditions are asked when panels are copied
            value = substitute(value, dict(self.group.guarded))
        every = frozenset((*self.outs, *self.reds))
        found = []
        for item in walk(value):
            if isinstance(item, Call) and item is not value and accesses(item):
                moves = every & frozenset(indices_of(item))
                if moves & frozenset(self.reds):
                    found.append((moves, item.op == "where"))
        return found

    @cached_property
    def _loads(self) -> list[Access]:
        """The reads that are loaded anew in each step of the reduction."""
        return [a for a, moves in self.moves.items() if moves & frozenset(self.reds)]

    def _tile(self, vector: str, vectors: int, heights: Mapping[str, int]) -> Tile | None:
        group, lanes = self.group, self.lanes
        reduced = vector in self.reds
        across, moved, gathers = [], 0.0, []
        for read in group.reads:
            if vector not in self.moves[read] or self.strides[read, vector] == 1:
                continue
            elements = math.prod(self.extents[i] for i in self.moves[read])
            plain = self.panels and not reduced and self.strides[read, vector] is not None
            if plain and 4 * elements <= group.work:
                across.append(read.tensor)
                moved += MOVED * elements
            else:
                gathers.append(read)
        steps = math.prod(self.extents[i] for i in self.reds if i != vector)
        rest = math.prod(self.extents[i] for i in self.outs if i != vector and i not in heights)
        # Each pass but the first loads cells, too; cells that lie apart are visited once.
        passes = 2 * -(-steps // DEPTH) - 1 if group.store_stride(vector) == 1 else 1
        total = 0.0
        for parts in product(*(_parts(self.extents[i], n) for i, n in heights.items())):
            rows = dict(zip(heights, (n for n, _ in parts), strict=True))
            count = math.prod(times for _, times in parts)
            cells = math.prod(rows.values())
            stores = self._store(vector, rows)
            for width, times in _parts(-(-self.extents[vector] // lanes), vectors):
                step = self._step(vector, width, rows, gathers)
                if reduced:
                    total += count * times * steps * step
                else:
                    ends = A_TILE + cells * width * (0.5 + stores * passes)
                    total += count * times * (steps * step + ends)
            if reduced:
                total += count * (A_TILE + cells * (ACROSS + vectors))
        shared = self._sharing(vector, vectors)
        return Tile(vector, vectors, tuple(heights.items()), tuple(dict.fromkeys(across)),
                    rest * total * shared + moved)  # fmt: skip

    def _sharing(self, vector: str, vectors: int) -> float:
        """How much dearer the nest is where threads cannot share the tiles along the vector."""
        threads, extent = self.machine.threads, self.extents[vector]
        if vector in self.reds or extent < 8 * threads * self.lanes:
            return 1.0  # others are shared
        width = vectors * self.lanes
        share = width * -(-extent // (width * threads))
        return 1.0 if extent >= 0.95 * threads * share else UNEVEN

    def _step(
        self, vector: str, width: int, rows: Mapping[str, int], gathers: list[Access]
    ) -> float:
        """Cycles of one step of the reduction in a tile of `width` vectors and `rows`."""

        def copies(moves: frozenset[str]) -> int:
            many = math.prod(n for index, n in rows.items() if index in moves)
            return many * (width if vector in moves else 1)

        loads = sum(copies(self.moves[a]) * self._conflict(a, rows) for a in self._loads)
        loads += sum(copies(self.moves[a]) * (self.lanes - 1) for a in gathers)
        cells = math.prod(rows.values()) * width
        work = float(cells)
        for moves, guard in self._calls:
            price = 1.0 if not guard else A_GUARD if vector in moves else A_BRANCH
            work += copies(moves) * price
        return max(work / PORTS, loads / PORTS, float(LATENCY)) + A_LOAD * loads

    def _store(self, vector: str, heights: Mapping[str, int]) -> float:
        """Cycles to store a vector of cells: one, or those of a run of cells for every lane."""
        stride = self.group.store_stride(vector)
        if vector in self.reds or stride == 1:
            return 1.0
        far = stride is None or abs(stride) * self.group.sizes[self.group.main.tensor] >= PAGE
        run = next((n for i, n in heights.items() if self.group.store_stride(i) == 1), 1)
        return self.lanes * (FAR if far else NEAR) / run

    def _conflict(self, read: Access, rows: Mapping[str, int]) -> float:
        """How much dearer loads are whose lines meet in one set of the cache."""
        size = self.group.sizes[read.tensor]
        for index, n in rows.items():
            step = self.strides[read, index]
            if n > WAYS - PASSING and step and step * size % PAGE == 0:
                return 2.0
        return 1.0


def _parts(extent: int, size: int) -> list[tuple[int, int]]:
    """The sizes of the blocks of an extent, and how many there are of each."""
    full, left = divmod(extent, size)
    return [part for part in ((size, full), (left, 1)) if part[0] and part[1]]


def bare(read: Access, index: str) -> int | None:
    """The dimension of a read that an index alone runs over."""
    found = [n for n, expr in enumerate(read.indices) if expr is Index(index)]
    return found[0] if len(found) == 1 else None


def span(read: Access, iterations: Mapping[str, int], itemsize: int) -> int:
    """Bytes that a read touches in a block of iterations, where it moves by plain strides."""
    return itemsize * math.prod(_reach(expr, iterations) for expr in read.indices)


def _reach(expr: Expr, iterations: Mapping[str, int]) -> int:
    from ...algo.tensor_expr.affine import linear

    form = linear(expr)
    if form is None:
        return 1
    return 1 + sum(
        abs(step) * (iterations.get(atom.name, 1) - 1)
        for atom, step in form.terms.items()
        if isinstance(atom, Index)
    )
