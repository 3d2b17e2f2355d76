"""`split` and `tile`: a loop becomes blocks and the iterations of a block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.build import const, floordiv, mod
from .arguments import NewName, Rule
from .names import find_loops, fresh, index_of, prefix, where
from .nest import Loop, Nest, Tree
from .primitive import Primitive
from .storage import place, rehomed
from .tree import edit, with_tree

TAILS = ("guard", "separate")


@dataclass(frozen=True)
class Split(Primitive):
    """Cuts a loop into blocks of `factor` iterations; the order of instances stays.

        for i: S(i)   ==>   for io: for ii in 0:factor: S(io*factor + ii)

    `tail` says what becomes of the last block where the factor does not divide: "guard" bounds or
    masks it, "separate" makes a loop of its own of it. A bare name splits all copies of the loop.
    """

    called: ClassVar[str] = "split"
    loop: str
    factor: int
    into: tuple[NewName, NewName] | None = None
    tail: str = "guard"

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        _, keywords = super().arguments()
        return (keywords.pop("loop"), keywords.pop("factor")), keywords

    @property
    def names(self) -> tuple[str, str]:
        """Last components of the new loops' names: `io` and `ii`, unless said otherwise."""
        index = index_of(self.loop)
        return self.into or (f"{index}o", f"{index}i")

    def legal(self, nest: Nest) -> None:
        if self.factor < 1:
            raise ScheduleError(f"{self.who}: expected a factor of at least 1, got {self.factor!r}")
        if self.tail not in TAILS:
            raise ScheduleError(f"{self.who}: tail is guard or separate, not {self.tail!r}")
        outer, inner = self.names
        if outer == inner:
            raise ScheduleError(f"{self.who}: into names two different loops, not {outer}, {inner}")
        for loop in find_loops(nest, self.loop, self.who):
            if loop.kind != "serial":
                raise ScheduleError(
                    f"{self.who}: loop {loop.name}{where(nest, loop)} is {loop.kind}; "
                    "split it before it is marked"
                )
            if loop.ahead:
                raise ScheduleError(
                    f"{self.who}: loop {loop.name}{where(nest, loop)} prefetches "
                    f"{loop.ahead[0][0]}; split it before that"
                )
            for name in self.names:
                fresh(nest, prefix(loop.name) + name, self.who, replaced=(loop.name,))

    def apply(self, nest: Nest) -> Nest:
        targets = {loop.name for loop in find_loops(nest, self.loop, self.who)}
        nest = with_tree(nest, edit(nest.tree, dict.fromkeys(targets, self._cut)))
        return rehomed(nest, {name: prefix(name) + self.names[1] for name in targets})

    def _cut(self, loop: Loop) -> Tree:
        outer, inner = (prefix(loop.name) + name for name in self.names)
        by = const(self.factor)
        rest = {stmt: mod(value, by) for stmt, value in loop.values.items()}
        blocks = {stmt: floordiv(value, by) for stmt, value in loop.values.items()}
        body = Loop(inner, rest, loop.body, "serial", self.factor, self.tail)
        return replace(loop, name=outer, values=blocks, body=body, extent=None, tail="guard")


@dataclass(frozen=True)
class Tile(Primitive):
    """Splits several loops, then brings the blocks outside and their iterations inside.

        for i: for j: S(i,j)   ==>   for io: for jo: for ii: for ji: S(io*8 + ii, jo*48 + ji)

    The loops must be nested directly in each other, so that nothing lies between them.
    """

    called: ClassVar[str] = "tile"
    factors: Annotated[tuple[tuple[str, int], ...], Rule("{name: integer, ...}")]

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        plain = all(name.isidentifier() for name, _ in self.factors)
        return ((), dict(self.factors)) if plain else ((dict(self.factors),), {})

    def _parts(self) -> list[Primitive]:
        from .reorder import Reorder

        splits: list[Primitive] = [Split(name, factor) for name, factor in self.factors]
        outer = [f"{name}o" for name, _ in self.factors]
        inner = [f"{name}i" for name, _ in self.factors]
        return [*splits, Reorder((*outer, *inner))]

    def legal(self, nest: Nest) -> None:
        if not self.factors:
            raise ScheduleError("tile(): expected loops and factors, as in tile(i=8, j=48)")
        self._run(nest, check=True)

    def apply(self, nest: Nest) -> Nest:
        return self._run(nest, check=False)

    def _run(self, nest: Nest, *, check: bool) -> Nest:
        for part in self._parts():
            try:
                if check:
                    part.legal(nest)
            except ScheduleError as err:
                raise ScheduleError(f"{self.who}: {err}") from None
            nest = place(part.apply(nest))
        return nest
