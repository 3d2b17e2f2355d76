"""`layout`, `pad`, `align`, `stream`: how a tensor lies in memory, and how it is written."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from ...algo.errors import ScheduleError
from .arguments import Rule
from .layout import dimension_names, parse_layout
from .names import suggest_from
from .nest import Buffer, Nest
from .primitive import Primitive
from .storage import cells, touching
from .witness import at

LARGEST_ALIGNMENT = 4096
"""A page: more would waste memory for every small buffer."""


@dataclass(frozen=True)
class Storage(Primitive):
    """The common part: one buffer changes. `tensor` names it as a printed nest does: `t`, `t.acc`,
    `B.stack`."""

    tensor: str

    def legal(self, nest: Nest) -> None:
        self.changed(nest, self.buffer(nest))

    def apply(self, nest: Nest) -> Nest:
        new = self.changed(nest, self.buffer(nest))
        return replace(nest, buffers={**nest.buffers, new.name: new})

    def buffer(self, nest: Nest) -> Buffer:
        """The buffer of that name."""
        found = nest.buffers.get(self.tensor)
        if found is None:
            hint = suggest_from(self.tensor, list(nest.buffers))
            raise ScheduleError(f"{self.who}: there is no buffer {self.tensor}{hint}")
        return found

    def own(self, nest: Nest, buffer: Buffer, instead: str) -> None:
        """Raises where the memory is the caller's."""
        if buffer.scope == "param":
            is_input = nest.kernel.tensors[buffer.tensor].role == "input"
            role = "an argument" if is_input else "an output"
            raise ScheduleError(
                f"{self.who}: {buffer.name} is {role}, and how it lies is the caller's; {instead}"
            )

    @abstractmethod
    def changed(self, nest: Nest, buffer: Buffer) -> Buffer:
        """The buffer afterwards; raises `ScheduleError` where that cannot be."""


def names_of(nest: Nest, buffer: Buffer) -> tuple[str, ...]:
    """What the dimensions of a buffer are called: as in its first access."""
    users = touching(nest)[buffer.name]
    if not users:
        return tuple(f"d{n}" for n in range(buffer.rank))
    return dimension_names(next(cells(nest.stmts[users[0]], buffer.name)))


@dataclass(frozen=True)
class Layout(Storage):
    """Gives the axes of a temporary's storage, outermost first.

        layout("t", "j//8", "i", "j%8")   ==>   t[i,j] lies at [j//8, i, j%8]

    Axes are text over the dimensions, by the names of the indices or d0, d1, ..., relative to the
    part that is stored. Different elements get different places, which isl proves.
    """

    called: ClassVar[str] = "layout"
    axes: tuple[Annotated[str, Rule("expression")], ...] = ()

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.tensor, *self.axes), {}

    @property
    def who(self) -> str:
        return f"layout({self.tensor})"

    def changed(self, nest: Nest, buffer: Buffer) -> Buffer:
        self.own(
            nest, buffer, f"stage a copy of it, as in stage({buffer.tensor}, at=..., layout=...)"
        )
        names = names_of(nest, buffer)
        if not self.axes:
            raise ScheduleError(
                f"{self.who}: expected the axes of its storage, outermost first, over "
                f"{', '.join(names) or 'no dimensions: it is one element'}"
            )
        return replace(buffer, layout=parse_layout(self.axes, names, self.who))


@dataclass(frozen=True)
class Pad(Storage):
    """Rounds the extents of a temporary's storage up to multiples.

        pad("t", j=16)   ==>   t[i,j] is stored in 16, 32, ... columns

    Dimensions go by the names of the indices or d0, d1, ... What is in the padding is never read.
    """

    called: ClassVar[str] = "pad"
    multiples: Annotated[tuple[tuple[str, int], ...], Rule("{name: integer, ...}")] = ()

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.tensor,), dict(self.multiples)

    def changed(self, nest: Nest, buffer: Buffer) -> Buffer:
        self.own(nest, buffer, f"stage a copy of it, as in stage({buffer.tensor}, at=...)")
        names = names_of(nest, buffer)
        places = {f"d{n}": n for n in range(buffer.rank)} | {d: n for n, d in enumerate(names)}
        if not self.multiples:
            raise ScheduleError(
                f"{self.who}: expected dimensions and multiples, as in pad(t, j=16)"
            )
        pad = list(buffer.pad or (1,) * buffer.rank)
        for name, multiple in self.multiples:
            if name not in places:
                hint = suggest_from(name, list(names))
                raise ScheduleError(f"{self.who}: {buffer.name} has no dimension {name}{hint}")
            if multiple < 1:
                raise ScheduleError(
                    f"{self.who}: expected a multiple of at least 1, got {multiple}"
                )
            pad[places[name]] = multiple
        return replace(buffer, pad=tuple(pad))


@dataclass(frozen=True)
class Align(Storage):
    """Aligns the first element of a temporary to a power of two of bytes.

        align("t", 128)   ==>   the address of t's storage is a multiple of 128

    Buffers in memory are aligned to 64 anyway. One that lowering keeps in registers has no address.
    """

    called: ClassVar[str] = "align"
    bytes: int = 64

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.tensor, self.bytes), {}

    def changed(self, nest: Nest, buffer: Buffer) -> Buffer:
        self.own(nest, buffer, "pass an aligned array, or stage a copy of it")
        if not (0 < self.bytes <= LARGEST_ALIGNMENT and self.bytes & (self.bytes - 1) == 0):
            raise ScheduleError(
                f"{self.who}: expected a power of two from 1 to {LARGEST_ALIGNMENT}, "
                f"got {self.bytes}"
            )
        return replace(buffer, align=self.bytes)


@dataclass(frozen=True)
class Stream(Storage):
    """Stores to an output, or to a temporary in memory, go past the caches.

        for i: y[i] = f(i)   ==>   for i: streaming y[i] = f(i)

    For results that are large and not read soon: reading them in the same kernel is right, and
    slow. Every thread has written what it streams before its loop ends. Vector stores stream where
    their addresses are aligned; scattered and masked ones, and GPUs, store as ever.
    """

    called: ClassVar[str] = "stream"

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.tensor,), {}

    def changed(self, nest: Nest, buffer: Buffer) -> Buffer:
        if buffer.scope not in ("param", "heap"):
            raise ScheduleError(
                f"{self.who}: {buffer.name} is a {buffer.scope} buffer, which stays in the caches; "
                "only outputs and temporaries on the heap are streamed"
            )
        writers = [stmt for stmt in nest.stmts.values() if stmt.buffer == buffer.name]
        if not writers:
            raise ScheduleError(f"{self.who}: nothing stores to {buffer.name}: it is an argument")
        updating = next((stmt for stmt in writers if stmt.reducer is not None), None)
        if updating is not None:
            raise ScheduleError(
                f"{self.who}: {buffer.name} is updated in place by {updating.name}{at(updating)}; "
                f"stage it, as in stage({buffer.tensor}, at=...), so that each element is stored "
                "once"
            )
        return replace(buffer, stream=True)
