"""The space of loop schedules of an operator: sketches, their neighbours, and their texts."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..algo.dtypes import DType
from ..algo.errors import ScheduleError
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.op import Op
from ..algo.tensor_expr.stages import kernel
from ..sched.loop.access import Group, groups
from ..sched.loop.default import choose
from ..sched.loop.machine import Machine
from ..sched.loop.sketch import Choice, Sketch
from ..sched.loop.sketch_build import build
from .word_space import word_choice, word_seeds

HEIGHTS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14)
BLOCKS = (32, 64, 128, 192, 256, 384, 512)
WIDE = (192, 384, 512, 768, 1024, 1536, 2048)
CHUNKS = (0, 0, 4, 8, 16, 32, 64)
WORDS = 0.8
"""How often a nest that can be taken by words is."""
FIELDS = ("vector", "vectors", "tile", "blocks", "pack", "outer", "join", "merge")
Point = dict[str, Any]


class LoopSpace:
    """Points are choices by nest, as in `Sketch`, starting from the analytic model's."""

    def __init__(
        self, op: Op, dtypes: Mapping[str, DType], sizes: Mapping[str, int], machine: Machine
    ) -> None:
        self.op, self.dtypes, self.machine = op, dtypes, machine
        # A dynamic size is measured at one value, and stays a symbol in every candidate.
        self.sizes = {name: n for name, n in sizes.items() if name not in op.maxima}
        self.groups = groups(kernel(check(op), dtypes, sizes))
        self.first: Point = dict(choose(op, dtypes, sizes, machine).choices)
        self._texts: dict[str, str | None] = {}

    def default(self) -> Point:
        """The analytic model's choices."""
        return dict(self.first)

    def seeds(self) -> list[Point]:
        """Points worth trying first: register tiles of other shapes and packed panels, for the nest
        that does the most work."""
        group = max(self.groups, key=lambda g: g.work * g.cost)
        first: Choice = self.first[group.name]
        if first.words:
            words = word_seeds(group, self.machine)
            return [self.first | {group.name: choice} for choice in words]
        if not first.tile or not group.reds or first.vector not in group.outs:
            return []
        (index, _), *_ = first.tile
        panels = tuple(
            dict.fromkeys(
                a.tensor
                for a in group.reads
                if group.stride(a, first.vector) == 1 and group.stride(a, index) == 0
            )
        )
        blocked = max(group.reds, key=lambda i: group.extents[i])
        out: list[Point] = []
        for vectors, height in ((2, 8), (3, 8), (2, 12), (4, 6), (2, 14), (1, 12)):
            tile = replace(first, vectors=vectors, tile=((index, height),))
            packed = replace(tile, pack=panels, outer=first.vector)
            for choice in (tile, replace(packed, blocks=((blocked, 256),))):
                out.append(self.first | {group.name: choice})
        return out

    def sample(self, rng: random.Random) -> Point:
        """Every nest chosen at random."""
        return {g.name: self._random(g, rng) for g in self.groups}

    def mutate(self, point: Point, rng: random.Random) -> Point:
        """One or two choices of one nest changed; nests that do more work are picked more often."""
        weights = [1 + math.log2(1 + g.work * g.cost) for g in self.groups]
        group = rng.choices(self.groups, weights)[0]
        choice: Choice = point[group.name]
        for _ in range(rng.choice((1, 1, 2))):
            fresh = self._random(group, rng)
            field = rng.choice(FIELDS)
            if choice.words or fresh.words:
                choice = fresh
                continue
            match field:
                case "vector":
                    choice = replace(choice, vector=fresh.vector)
                case "vectors":
                    choice = replace(choice, vectors=fresh.vectors)
                case "tile":
                    choice = replace(choice, tile=fresh.tile)
                case "blocks":
                    choice = replace(choice, blocks=fresh.blocks)
                case "pack":
                    choice = replace(choice, pack=fresh.pack)
                case "outer":
                    choice = replace(choice, outer=fresh.outer, chunk=fresh.chunk)
                case "join":
                    choice = replace(choice, join=fresh.join)
                case "merge":
                    choice = self.first[group.name] if choice.merge == () else fresh
        return point | {group.name: choice}

    def text(self, point: Point) -> str | None:
        """The schedule that the choices stand for; steps that are not legal are left out."""
        key = repr(sorted(point.items()))
        if key not in self._texts:
            try:
                made = build(self.op, self.dtypes, self.sizes, Sketch(point), self.machine)
                self._texts[key] = made.text
            except ScheduleError:
                self._texts[key] = None
        return self._texts[key]

    def features(self, point: Point) -> list[float]:
        """Positions of indices, logarithms of factors."""
        out: list[float] = []
        for group in self.groups:
            choice: Choice = point[group.name]
            indices = (*group.outs, *group.reds)
            tile = dict(choice.tile)
            cells = math.prod(tile.values()) * max(1, choice.vectors)
            out += [
                float(indices.index(choice.vector)) if choice.vector in indices else -1.0,
                float(choice.vectors),
                math.log2(cells),
                float(len(choice.blocks)),
                *(float(dict(choice.blocks).get(index, 0)) for index in indices),
                float(len(choice.pack)),
                float(indices.index(choice.outer)) if choice.outer in indices else -1.0,
                float(choice.chunk),
                float(choice.words),
                0.0 if choice.join is None else 1.0,
                *(float(tile.get(index, 1)) for index in indices),
            ]
        return out

    def _random(self, group: Group, rng: random.Random) -> Choice:
        indices = [i for i in (*group.outs, *group.reds) if group.extents[i] > 1]
        if not indices:
            return Choice()
        first: Choice = self.first[group.name]
        if first.words and rng.random() < WORDS:
            return word_choice(group, self.machine, rng) or first
        vector = first.vector if rng.random() < 0.7 else rng.choice(indices)
        others = [i for i in group.outs if i != vector and group.extents[i] > 1]
        tiled = rng.sample(others, min(len(others), rng.choice((0, 1, 1, 1, 2))))
        vectors = rng.choice((0, 1, 2, 2, 3, 4))
        room = self.machine.registers
        tile = []
        for index in tiled:
            fitting = [
                h for h in HEIGHTS if h * max(1, vectors) <= room and h <= 2 * group.extents[index]
            ]
            if fitting:
                height = rng.choice(fitting)
                room //= height
                tile.append((index, height))
        blocks = self._blocks(group, vector, rng)
        tensors = sorted({a.tensor for a in group.reads})
        pack = tuple(t for t in tensors if blocks and rng.random() < 0.5)
        outer = rng.choice(group.outs) if group.outs and self.machine.threads > 1 else None
        if outer is None and group.outs:
            outer = rng.choice((None, *group.outs))
        return Choice(
            vector=vector, vectors=vectors, tile=tuple(tile), blocks=blocks,
            pack=pack, outer=outer, chunk=rng.choice(CHUNKS),
            join=self._join(group, rng),
        )  # fmt: skip

    def _blocks(
        self, group: Group, vector: str | None, rng: random.Random
    ) -> tuple[tuple[str, int], ...]:
        """Blocks of one long reduction, perhaps within some of the vector index, perhaps around
        some of another."""
        reds = [i for i in group.reds if i != vector and group.extents[i] > 32]
        if not reds or rng.random() < 0.4:
            return ()
        found = [(rng.choice(reds), rng.choice(BLOCKS))]
        if vector in group.outs and rng.random() < 0.3:
            found.insert(0, (vector, rng.choice(WIDE)))
        others = [i for i in group.outs if i != vector and group.extents[i] > 32]
        if others and rng.random() < 0.5:
            found.append((rng.choice(others), rng.choice(BLOCKS)))
        return tuple(found)

    def _join(self, group: Group, rng: random.Random) -> tuple[str, str] | None:
        """The model's place, none, or any loop of a later nest that reads it."""
        readers = [
            g for g in self.groups
            if g is not group and any(a.tensor == group.name for s in g.stages for a in _reads(s))
        ]  # fmt: skip
        if not readers or readers[0].name == group.name or rng.random() < 0.3:
            return None
        first: Choice = self.first[group.name]
        if first.join is not None and rng.random() < 0.5:
            return first.join
        reader = rng.choice(readers)
        return (reader.name, rng.choice(reader.outs)) if reader.outs else None


def _reads(stage: Any) -> Any:
    from ..algo.tensor_expr.expr import accesses

    return accesses(stage.value)
