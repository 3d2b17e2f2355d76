"""A strip of results after the other, with all temporaries that it needs in registers or near by.

Where each result needs elements of a temporary of its own, as many weights as a filter has taps, a
row of results needs a block of memory in which neighbours of a row lie apart. What a strip of
results needs is little, and lies side by side, lanes innermost. So it is where a reduction combines
values that are computed for each of its instances: forces between all pairs of bodies.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...algo.tensor_expr.expr import Access, Expr, Index, accesses
from .access import Group
from .machine import Machine
from .parallelism import worth_threads
from .sketch import Choice

STRIP = 4
"""Vectors of a strip: independent work that hides the time that functions take."""

Names = Mapping[str, str]
"""Indices of a nest, and those of the last nest that they stand for."""


def strips(
    found: Sequence[Group], temps: Collection[str], lanes: int, machine: Machine
) -> Mapping[str, Choice] | None:
    """Choices by which all nests run for one strip of results after the other; None where that
    is not possible, or no better than a row of results after the other."""
    if len(found) < 2 or not all(_plain(g) for g in found):
        return None
    *groups, last = found
    names = _names(groups, last, temps)
    if names is None:
        return None
    shared = set(names[groups[-1].name].values())
    if any(set(own.values()) != shared for own in names.values()):
        return None
    if not shared.issuperset(last.reds):
        return None
    around = [i for i in last.outs if i in shared]
    if not around:
        return None
    strip = _Strip(tuple(groups), last, names, tuple(around), lanes, machine)
    return strip.choices() if strip.pays() else None


def _plain(group: Group) -> bool:
    """Is a nest neither a recurrence nor a fold, written at bare indices?"""
    bare = all(isinstance(part, Index) for part in group.main.lhs)
    return bare and group.is_plain and not group.solved


@dataclass(frozen=True, slots=True)
class _Strip:
    """The nests whose loops over `around`, indices of the last nest's results, become one."""

    groups: tuple[Group, ...]
    last: Group
    names: Mapping[str, Names]
    around: tuple[str, ...]
    lanes: int
    machine: Machine

    @property
    def inner(self) -> str:
        """The index whose strips are computed."""
        return self.around[-1]

    @property
    def rest(self) -> tuple[tuple[str, int], ...]:
        """The indices of the results that no temporary has."""
        return tuple((i, self.last.extents[i]) for i in self.last.outs if i not in self.around)

    def pays(self) -> bool:
        """Would rows be worse, and is the strip walked through in lanes?"""
        rest = math.prod(n for _, n in self.rest)
        own = [self.own(g) for g in self.groups]
        if self.last.reds:
            fits = all(n == 1 for n in own) and rest <= self.machine.registers // 4
        else:
            fits = max(own) > 1 and rest == 1
        return fits and self.width() > 0 and all(map(self.streams, (*self.groups, self.last)))

    def own(self, group: Group) -> int:
        """Elements of a temporary that one result needs, in an instance of its reduction."""
        names = self.names[group.name]
        return math.prod(group.extents[index] for index in group.outs if index not in names)

    def width(self) -> int:
        """Vectors of a strip, so that what it needs stays in the first cache, and its results in
        half of the registers."""
        held = self.lanes * sum(self.own(g) * g.sizes[g.name] for g in self.groups)
        rest = math.prod(n for _, n in self.rest)
        return min(
            STRIP,
            self.machine.l1 // (2 * held),
            self.machine.registers // (2 * (1 + rest)),
            self.last.extents[self.inner] // self.lanes,
        )

    def streams(self, group: Group) -> bool:
        """Do neighbours of a strip read neighbours in memory, but for what a reduction reads again
        in all its instances?"""
        names = {i: i for i in self.last.extents} if group is self.last else self.names[group.name]
        made = {g.name for g in self.groups}
        own = {name: index for index, name in names.items()}
        for read in group.reads:
            stride = group.stride(read, own[self.inner])
            kept = self.last.reds and all(
                group.stride(read, own[i]) == 0 for i in self.last.reds if i in own
            )
            if read.tensor not in made and stride not in (0, 1) and not kept:
                return False
        return True

    def choices(self) -> Mapping[str, Choice]:
        """Temporaries are computed in the innermost loop around a strip."""
        last, inner = self.last, self.inner
        join = (last.name, last.reds[-1] if last.reds else inner)
        chosen = {
            g.name: Choice(
                vector=next(own for own, name in self.names[g.name].items() if name == inner),
                join=join,
            )
            for g in self.groups
        }
        chosen[last.name] = Choice(
            vector=inner, vectors=self.width(), tile=self.rest, outer=self.outer()
        )
        return chosen

    def outer(self) -> str | None:
        """The loop that threads share."""
        most = max((*self.groups, self.last), key=lambda g: g.work * g.cost)
        if not worth_threads(most, self.lanes, self.machine):
            return None
        counts = {i: self.last.extents[i] for i in self.around}
        counts[self.inner] //= self.width() * self.lanes
        return next((i for i in self.around if counts[i] >= 2 * self.machine.threads), None)


def _names(
    groups: Sequence[Group], last: Group, temps: Collection[str]
) -> Mapping[str, Names] | None:
    """For each nest the last nest's indices that its own stand for, wherever it is read; None if
    one of the nests is no temporary that only those behind it read."""
    found: dict[str, Names] = {last.name: {i: i for i in last.extents}}
    reads: dict[str, list[tuple[Group, Access]]] = {}
    for reader in (*groups, last):
        for stage in reader.stages:
            for read in accesses(stage.value):
                reads.setdefault(read.tensor, []).append((reader, read))
    for group in reversed(groups):
        if group.name not in temps or group.main.tensor.removesuffix(".acc") != group.name:
            return None
        places: list[set[str | None]] = [set() for _ in group.main.lhs]
        for reader, read in reads.get(group.name, ()):
            if reader is not group:
                if reader.name not in found:
                    return None
                for place, part in zip(places, read.indices, strict=True):
                    place.add(_name(part, found[reader.name]))
        own = [part.name for part in group.main.lhs if isinstance(part, Index)]
        meant = {
            index: name
            for index, place in zip(own, places, strict=True)
            if len(place) == 1 and (name := next(iter(place))) is not None
        }
        if len(set(meant.values())) < len(meant):
            return None
        found[group.name] = meant
    del found[last.name]
    return found


def _name(part: Expr, names: Names) -> str | None:
    return names.get(part.name) if isinstance(part, Index) else None
