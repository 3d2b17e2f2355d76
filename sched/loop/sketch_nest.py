"""How the choices for one nest are written: its loops split, ordered, and marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...algo.tensor_expr.expr import Index, accesses
from .access import Group
from .draft import Draft
from .fuse import Fuse
from .machine import Machine
from .marks import Mark, Parallel, Unroll, Vectorize
from .memory import Layout, Stream
from .nest import loops
from .reorder import Reorder
from .rfactor import Rfactor
from .sketch import Choice
from .sketch_ahead import bring_near
from .sketch_contract import Contraction
from .sketch_turn import Turned
from .sketch_words import WordNest
from .split import Split
from .stage import Stage
from .words import words_of


class NestWriter:
    """Writes the primitives of one nest."""

    def __init__(
        self, draft: Draft, group: Group, choice: Choice, machine: Machine, *, alone: bool
    ) -> None:
        self.draft, self.group, self.choice = draft, group, choice
        kernel = draft.kernel
        widest = max(
            kernel.tensors[name].dtype.itemsize
            for name in (group.main.tensor, *(a.tensor for a in group.operands))
        )
        self.lanes, self.cache = machine.lanes(widest), machine.l2 // 2
        # Short names are for people; they are unique where there is one nest of the same loops.
        self.scatters = any(accesses(part) for part in group.main.lhs)
        self.prefix = "" if alone and not self.scatters else f"{group.name}."
        self.outs, self.reds = list(group.outs), list(group.reds)
        self.extents = dict(group.extents)
        if choice.merge:
            self._merge(choice.merge)
        self.choice = self._named(choice)
        self.shared: str | None = None
        self.machine = machine
        self.words: WordNest | None = None

    def tile(self, above: Sequence[tuple[str, str, bool]] = ()) -> None:
        """Splits and orders the loops, and copies what is to be packed, also in loops `above`."""
        c, group = self.choice, self.group
        if c.words and self._by_words():
            return
        if group.reds and c.tile and c.vectors and c.vector in self.outs:
            sides = {**dict(c.tile), c.vector: c.vectors * self.lanes}
            nest = Contraction(
                self.draft, group, self.prefix, sides, c.blocks, c.pack, c.outer, self.lanes,
                self.cache, above,
            )  # fmt: skip
            nest.write()
            self.shared = nest.shared
            return
        if c.vector is not None and c.turned is not None:
            self._squares(c.vector, c.turned)
            return
        inner: list[str] = []
        held = 1
        names = {index: index for index in (*self.outs, *self.reds)}
        after: dict[str, str] = {}
        for index, height in c.tile:
            height = min(height, self.extents[index])
            # A block of everything leaves a loop of one iteration, which has a place for buffers.
            if height > 1 and self._split(index, height):
                names[index], after[index] = f"{index}o", f"{index}i"
                inner.append(f"{index}i")
                held *= height
        width = c.vectors * self.lanes
        if c.outer == c.vector and c.chunk:
            width = c.chunk
        if c.vector is not None and 0 < width < self.extents[c.vector]:
            if self._split(c.vector, width):
                names[c.vector], after[c.vector] = f"{c.vector}o", f"{c.vector}i"
                inner.append(f"{c.vector}i")
        elif c.vector is not None and c.vector in self.outs:
            inner.append(names.pop(c.vector))
        if c.vector in self.outs:
            held *= min(width or self.extents[c.vector], self.extents[c.vector])
        strip: list[str] = []
        first = []
        for index, size in c.blocks:
            inside = index in names and index not in after and 0 < size < self.extents[index]
            if inside and self._split(index, size, (f"{index}b", f"{index}r")):
                names[index] = f"{index}r"
                first.append(f"{index}b")
        if c.outer in self.outs and c.outer not in after and c.outer in names:
            inside = 0 < c.chunk < self.extents[c.outer]
            if inside and self._split(c.outer, c.chunk):
                names[c.outer] = f"{c.outer}o"
                strip.append(f"{c.outer}i")
        inner += [names.pop(i) for i in c.solved if i in names and i not in after]
        outer = [names[i] for i in self.outs if i in names]
        if c.outer is not None and names.get(c.outer) in outer:
            shared = names[c.outer]
            outer.remove(shared)
            first[:0] = [shared, *strip]
        # Blocks of an index are no reason to leave what stands before it: that goes on outside.
        before = (
            0
            if self.choice.outer
            else next(
                (n for n, i in enumerate(self.outs) if i in dict(c.blocks) or names.get(i) != i), 0
            )
        )
        outer[before:before] = first
        if c.outer in self.reds and self._factored(c.outer, c.chunk):
            names[c.outer] = f"{c.outer}i"
            self.shared = f"{c.outer}o"
            outer.insert(0, self.shared)
        reds = [after.get(i, names[i]) for i in self.reds if i in names]
        in_lanes = [n for n in inner if n == after.get(c.vector or "", "")]
        if c.vector in self.reds:
            reds = [names[i] for i in self.reds if i in names]
            inner = [n for n in inner if n not in in_lanes] + in_lanes
        self.draft.order(self.group.name, self.prefix, [*outer, *reds, *inner])
        cells = group.reds and inner and outer and not c.solved and not group.holes
        if cells and not self.shared and held <= self.lanes * self.machine.registers // 2:
            self.draft.attempt(Stage(group.name, self.prefix + outer[-1], "register"))

    def _by_words(self) -> bool:
        """A product of matrices of bytes, if the nest is one of this choice's rows and columns."""
        c, found = self.choice, words_of(self.group)
        high = dict(c.tile).get(found.rows) if found is not None else None
        able = self.machine.matrices or 4 in self.machine.dots
        if found is None or high is None or c.vector != found.columns or not able:
            return False
        self.words = WordNest(
            self.draft, self.group, self.prefix, found, high, c.vectors * self.lanes,
            c.chunk or self.extents[found.columns], c.outer, self.machine,
        )  # fmt: skip
        self.words.write()
        self.shared = self.words.shared
        return True

    def _squares(self, vector: str, turned: str) -> None:
        """Tiles that are turned in registers; the loop that threads share is one of rows."""
        outer = self.choice.outer
        registers = self.machine.registers
        nest = Turned(self.draft, self.group, self.prefix, vector, turned, self.lanes, registers)
        if nest.write():
            self.shared = f"{vector}o" if outer == vector else outer
            if self.choice.stream:
                nest.stream()

    def _factored(self, index: str, chunk: int) -> bool:
        """Blocks of the reduction, each with a result of its own."""
        loop = self.prefix + index
        return self.draft.attempt(Split(loop, chunk), Rfactor(f"{loop}o"))

    def _named(self, choice: Choice) -> Choice:
        """The choice without what names no index: which there are depends on what is merged."""
        known = (*self.group.free, *self.outs, *self.reds)
        return replace(
            choice,
            vector=choice.vector if choice.vector in known else None,
            tile=tuple((i, n) for i, n in choice.tile if i in self.outs and i != choice.vector),
            blocks=tuple((i, n) for i, n in choice.blocks if i in (*self.outs, *self.reds)),
            outer=choice.outer if choice.outer in known else None,
        )

    def _merge(self, indices: tuple[str, ...]) -> None:
        name = indices[-1]
        for outer in reversed(indices[:-1]):
            one = f"{outer}_{name}"
            if not self.draft.has(f"{self.group.name}.{one}") and not self.draft.attempt(
                Fuse(self.prefix + outer, self.prefix + name)
            ):
                return
            self.extents[one] = self.extents[outer] * self.extents[name]
            among = self.outs if outer in self.outs else self.reds
            at = among.index(outer)
            among[at : at + 2] = [one]
            name = one

    def lay(self) -> None:
        """Puts the lanes of a joined nest innermost among its results' loops, and in memory."""
        outs = self.group.outs
        if self.choice.vector not in outs[:-1]:
            return
        moved = [*(n for n, i in enumerate(outs) if i != self.choice.vector)]
        moved.append(outs.index(self.choice.vector))
        if self.group.main.lhs == tuple(map(Index, outs)):
            self.draft.order(self.group.name, self.prefix, [outs[n] for n in moved])
            self.draft.attempt(Layout(self.group.name, tuple(f"d{n}" for n in moved)))

    def mark(self) -> None:
        """Vectorizes and unrolls the innermost loops of the nest and of what distribution made."""
        c = self.choice
        if self.words is not None:
            self.words.mark()
            return
        self._turn()
        if c.vector is not None:
            self._each(Vectorize, self._inner(c.vector))
        for index, _ in c.tile:
            self._each(Unroll, self._inner(index))
        if c.layout:
            axes = tuple(f"d{n}" for n in c.layout)
            self.draft.attempt(Layout(self.group.main.tensor, axes))
        if c.vector in self.group.outs:
            bring_near(self.draft, self.group, self.prefix, c.vector, self.machine)
        if c.stream and c.turned is None:
            self.draft.attempt(Stream(self.group.main.tensor))

    def _turn(self) -> None:
        """Loads and stores of a tile run in lanes along the output's rows, where its own lanes do
        not: they go through columns of registers."""
        c = self.choice
        if not self.group.reds or c.vector is None or self.group.store_stride(c.vector) == 1:
            return
        for index, _ in c.tile:
            if self.group.store_stride(index) != 1:
                continue
            lanes, rows = self._inner(c.vector), self._inner(index)
            for loop in list(self.draft.copies(f"{self.group.name}.{lanes}")):
                stem = loop.removesuffix(lanes)
                if stem.endswith((".load.", ".store.", ".final.")) and self.draft.has(stem + rows):
                    self.draft.attempt(
                        Reorder((loop, stem + rows)), Vectorize(stem + rows), Unroll(loop)
                    )

    def finish(self) -> None:
        """Marks the inner loops, and the outermost parallel."""
        self.mark()
        outer = self.choice.outer
        if self.scatters:
            self._zeros(shared=outer is not None)
        if self.shared is not None:
            self._each(Parallel, self.shared)
        elif outer is not None:
            blocks = self.draft.has(f"{self.group.name}.{outer}o")
            self._each(Parallel, f"{outer}o" if blocks else outer)

    def _zeros(self, *, shared: bool) -> None:
        """Marks the loops over all cells, which go before those of what is added to some of them:
        rows are written whole, whatever the others share."""
        stem = f"{self.group.name}.init."
        names = [loop.name for loop in loops(self.draft.nest.tree) if loop.name.startswith(stem)]
        if names:
            self.draft.attempt(Vectorize(names[-1]))
        if shared and len(names) > 1:
            self.draft.attempt(Parallel(names[0]))

    def _inner(self, index: str) -> str:
        split = self.draft.has(f"{self.group.name}.{index}i")
        return f"{index}i" if split else index

    def _each(self, mark: type[Mark], name: str) -> None:
        """Marks a loop and its copies: by one short name where that means all, else one by one."""
        if self.prefix == "" and self.draft.attempt(mark(name)):
            return
        for loop in list(self.draft.copies(f"{self.group.name}.{name}")):
            self.draft.attempt(mark(loop))

    def _split(self, index: str, factor: int, into: tuple[str, str] | None = None) -> bool:
        return self.draft.attempt(Split(self.prefix + index, factor, into))
