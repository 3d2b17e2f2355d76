"""`fuse`: two loops, one directly in the other, become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.build import add, const, mul, sub
from .arguments import NewName
from .extent import UNKNOWN, spans
from .names import find_loop, fresh, index_of, prefix
from .nest import Loop, Nest, Tree
from .primitive import Primitive
from .storage import rehomed
from .tree import around_loop, edit, with_tree


@dataclass(frozen=True)
class Fuse(Primitive):
    """Makes one loop of two; the order of instances stays.

        for io: for jo: S(io, jo)   ==>   for io_jo in 0:m*n: S(io_jo // n, io_jo % n)

    `jo` must be all that is in the body of `io`. The new loop is called `io_jo`, or `into`.
    """

    called: ClassVar[str] = "fuse"
    outer: str
    inner: str
    into: NewName | None = None

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.outer, self.inner), {} if self.into is None else {"into": self.into}

    def legal(self, nest: Nest) -> None:
        outer, inner = self._loops(nest)
        if outer.body is not inner:
            raise ScheduleError(
                f"{self.who}: loop {inner.name} is not all that loop {outer.name} contains; "
                "reorder so that one directly follows the other"
            )
        for loop in (outer, inner):
            if loop.kind != "serial":
                raise ScheduleError(
                    f"{self.who}: loop {loop.name} is {loop.kind}; fuse before marking loops"
                )
            if loop.ahead:
                raise ScheduleError(
                    f"{self.who}: loop {loop.name} prefetches {loop.ahead[0][0]}; fuse before that"
                )
        name = self._name(outer)
        fresh(nest, name, self.who, replaced=(outer.name, inner.name))

    def _loops(self, nest: Nest) -> tuple[Loop, Loop]:
        return find_loop(nest, self.outer, self.who), find_loop(nest, self.inner, self.who)

    def _name(self, outer: Loop) -> str:
        last = self.into or f"{index_of(self.outer)}_{index_of(self.inner)}"
        return prefix(outer.name) + last

    def apply(self, nest: Nest) -> Nest:
        outer, inner = self._loops(nest)
        span = spans(nest, inner)
        low, count = (0, UNKNOWN) if span is None else (span[0], span[1] - span[0] + 1)

        def join(loop: Loop) -> Tree:
            values = {
                stmt: add(mul(value, const(count)), sub(inner.values[stmt], const(low)))
                for stmt, value in loop.values.items()
            }
            known = loop.extent is not None and inner.extent == count
            extent = loop.extent * count if known and loop.extent else None
            return Loop(self._name(outer), values, inner.body, "serial", extent)

        # What lived in an iteration of the outer loop lives over several of the new one.
        around = around_loop(nest.tree, outer.name)
        homes = {inner.name: self._name(outer), outer.name: around[-1].name if around else None}
        return rehomed(with_tree(nest, edit(nest.tree, {outer.name: join})), homes)
