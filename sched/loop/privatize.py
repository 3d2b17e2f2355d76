"""`privatize`: a reduction in parallel, every thread's share in a copy of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.build import const, floordiv, mod, sub
from .extent import spans
from .marks import Parallel
from .names import find_loop, fresh, index_of, prefix, where
from .nest import Loop, Nest, Tree
from .primitive import Primitive
from .rfactor import Rfactor
from .storage import place
from .tree import edit, with_tree


class _Chunks(Rfactor):
    """`rfactor` of chunks, whose iterations stay a loop at all sizes: no lift takes its place."""

    lifts: ClassVar[bool] = False


@dataclass(frozen=True)
class Privatize(Primitive):
    """Runs a reduction's loop in parallel, with private copies that are combined afterwards.

        for n: H[b[n]] += x[n]   ==>   parallel for no in 0:copies:
                                           for d: H.rf[no,d] = 0
                                           for ni: H.rf[no,b[n]] += x[n]
                                       for d: for no_rf: H[d] += H.rf[no_rf,d]

    Without `copies` every iteration has one, as after `rfactor(n).parallel(n)`. With it the loop
    becomes so many chunks first, `no`, and the iterations of a chunk, `ni`. While sizes are
    symbols the iterations are dealt out in turn; once they are numbers, chunks are contiguous.
    Either way the order within a chunk stays, and that between chunks is free, as `parallel` asks.
    The iterations of a chunk are a loop at all sizes, so a lift is not used for chunks.
    """

    called: ClassVar[str] = "privatize"
    loop: str
    copies: int | None = None

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.loop,), {} if self.copies is None else {"copies": self.copies}

    def legal(self, nest: Nest) -> None:
        loop = find_loop(nest, self.loop, self.who)
        if loop.kind != "serial":
            raise ScheduleError(
                f"{self.who}: loop {loop.name}{where(nest, loop)} is {loop.kind}; privatize "
                "before marking loops"
            )
        if self.copies is not None:
            if self.copies < 1:
                raise ScheduleError(f"{self.who}: expected at least 1 copy, got {self.copies}")
            for name in self._names(loop):
                fresh(nest, name, self.who, replaced=(loop.name,), advice="another loop")
            self._reduces(nest)
        for part, before in self._parts(nest):
            self._check(part, before)

    def apply(self, nest: Nest) -> Nest:
        for part, before in self._parts(nest):
            nest = place(part.apply(before))
        return nest

    def _parts(self, nest: Nest) -> Iterator[tuple[Primitive, Nest]]:
        """The primitives that it is, each with the nest before it."""
        loop = find_loop(nest, self.loop, self.who)
        name, factor = loop.name, Rfactor
        if self.copies is not None:
            nest, name, factor = place(self._chunked(nest)), self._names(loop)[0], _Chunks
        for part in (factor(name), Parallel(name)):
            yield part, nest
            nest = place(part.apply(nest))

    def _reduces(self, nest: Nest) -> None:
        """Raises where the loop, as the user knows it, cannot be factored."""
        part = Rfactor(self.loop)
        self._check(part, nest)

    def _check(self, part: Primitive, nest: Nest) -> None:
        try:
            part.legal(nest)
        except ScheduleError as err:
            raise ScheduleError(f"{self.who}: {str(err).removeprefix(f'{part.who}: ')}") from None

    @staticmethod
    def _names(loop: Loop) -> tuple[str, str]:
        index = index_of(loop.name)
        return prefix(loop.name) + f"{index}o", prefix(loop.name) + f"{index}i"

    def _chunked(self, nest: Nest) -> Nest:
        loop = find_loop(nest, self.loop, self.who)
        assert self.copies is not None
        outer, inner = self._names(loop)
        known = spans(nest, loop)
        if known is None:
            by = const(self.copies)
            chunk = {stmt: mod(value, by) for stmt, value in loop.values.items()}
            turn = {stmt: floordiv(value, by) for stmt, value in loop.values.items()}
            size = None
        else:
            low, high = known
            size = max(1, -(-(high - low + 1) // self.copies))
            by = const(size)
            values = {stmt: sub(value, const(low)) for stmt, value in loop.values.items()}
            chunk = {stmt: floordiv(value, by) for stmt, value in values.items()}
            turn = {stmt: mod(value, by) for stmt, value in values.items()}

        def cut(old: Loop) -> Tree:
            body = Loop(inner, turn, old.body, "serial", size)
            return replace(old, name=outer, values=chunk, body=body, extent=self.copies)

        return with_tree(nest, edit(nest.tree, {loop.name: cut}))
