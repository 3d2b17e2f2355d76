"""The primitives of a nest whose lanes go across the rows that memory runs along.

    for io: for jo: [x.register] for ji unroll: for ii vector: y[j,i] = x[i,j]

Square tiles are copied into registers by rows and read by columns, or the other way round, so that
all loads and stores are whole runs of memory. Where that takes too many registers, as of a
recurrence, which has a tile of what it reads and one of what it gives, tiles have half the rows.
The walk goes along the rows of what is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...algo.tensor_expr.affine import linear
from ...algo.tensor_expr.expr import Access, Index, accesses, walk
from .access import Group
from .draft import Draft
from .marks import Unroll, Vectorize
from .memory import Stream
from .nest import loops
from .reorder import Reorder
from .split import Split
from .stage import Stage

HALF_LINE = 32
"""Bytes of half a line of the cache."""


@dataclass(frozen=True, slots=True)
class Turned:
    """Writes the loops of one nest in tiles at most as long as a vector of `lanes` cells.

    `vector` runs in lanes, along `turned` runs memory. `prefix` stands before loops' names. There
    are so many vector `registers`.
    """

    draft: Draft
    group: Group
    prefix: str
    vector: str
    turned: str
    lanes: int
    registers: int

    def write(self) -> bool:
        """All of it, marks included; nothing where the loops cannot be in this order."""
        group, prefix, draft = self.group, self.prefix, self.draft
        others = [i for i in (*group.free, *group.outs) if i not in (self.vector, self.turned)]
        order = [*others, *(f"{i}{part}" for part, i in self._tile())]
        stored = self._across(group.store_stride(self.vector))
        columns = self._columns(stored)
        across = self._rows_apart(columns, self.registers - stored * columns // 2)
        tiles = len(across) + stored
        whole = tiles == 1 or tiles * columns <= self.registers // 2
        rows = min(columns, self.registers) if whole else columns // 2
        tile = [Split(prefix + self.vector, rows), Split(prefix + self.turned, columns)]
        if not draft.attempt(*tile, Reorder(tuple(prefix + i for i in order))):
            return False
        at = f"{prefix}{self.turned}o"
        for tensor in across:
            self._copied(Stage(tensor, at, "register"))
        if stored:
            self._copied(Stage(group.main.tensor, at, "register", self._layout()))
        draft.attempt(Unroll(f"{prefix}{self.turned}i"))
        draft.attempt(Vectorize(f"{prefix}{self.vector}i"))
        return True

    def stream(self) -> None:
        """Stores the result past the caches."""
        self.draft.attempt(Stream(self.group.main.tensor))

    def _tile(self) -> list[tuple[str, str]]:
        return [("o", self.vector), ("o", self.turned), ("i", self.turned), ("i", self.vector)]

    def _columns(self, stored: bool) -> int:
        """How long rows of tiles are. As long as whole vectors of bytes they would be spilled, and
        take LLVM long. Squares that are only read have rows of half a line of the cache at least.
        """
        dtype, half = self.draft.kernel.tensors[self.group.main.tensor].dtype, self.registers // 2
        if not stored:
            return min(self.lanes, max(half, HALF_LINE // dtype.itemsize))
        # A chain of 16-bit floats waits for each to be rounded: there more rows go on at once.
        rounded = (dtype.kind, dtype.bits) == ("f", 16)
        return min(self.lanes, self.registers if rounded else half)

    def _rows_apart(self, columns: int, room: int) -> list[str]:
        """What is read across the lanes, and takes few of so many registers: a tile, whose rows
        have so many columns, or little more.

        What is read at places that are data, or far apart, is not copied.
        """
        found = []
        for tensor in dict.fromkeys(a.tensor for a in self.group.reads):
            reads = [a for a in self.group.reads if a.tensor == tensor]
            across = any(self._across(self.group.stride(a, self.vector)) for a in reads)
            if not across or tensor == self.group.main.tensor:
                continue
            cells = self._cells(reads, columns)
            taken = None if cells is None else -(-cells // columns)
            if taken is not None and taken <= min(room, 2 * columns):
                found.append(tensor)
                room -= taken
        return found

    def _cells(self, reads: list[Access], columns: int) -> int | None:
        """The cells around all that a tile reads of a tensor, if it has half the rows."""
        spans = {Index(self.vector): columns // 2, Index(self.turned): columns}
        total = 1
        for indices in zip(*(read.indices for read in reads), strict=True):
            forms = [linear(index) for index in indices]
            if any(form is None or any(map(accesses, form.terms)) for form in forms):
                return None
            moves = {frozenset(form.terms.items()) for form in forms if form is not None}
            if len(moves) > 1:
                return None
            steps = dict(next(iter(moves)))
            starts = [form.const for form in forms if form is not None]
            inside = sum(abs(steps.pop(i, 0)) * (span - 1) for i, span in spans.items())
            if any(spans.keys() & set(walk(atom)) for atom in steps):
                return None
            total *= max(starts) - min(starts) + inside + 1
        return total

    def _across(self, stride: int | None) -> bool:
        return stride not in (0, 1)

    def _layout(self) -> tuple[str, ...]:
        """Columns of the result are rows of the tile: the axis that runs in lanes is the last."""
        axes = [f"d{n}" for n in range(len(self.group.main.lhs))]
        last = self.group.main.lhs.index(Index(self.vector))
        return (*axes[:last], *axes[last + 1 :], axes[last])

    def _copied(self, stage: Stage) -> None:
        """A copy. What is stored into the tile goes along its own rows, what is stored from it
        along those of memory."""
        before = {loop.name for loop in loops(self.draft.nest.tree)}
        if not self.draft.attempt(stage):
            return
        new = [loop.name for loop in loops(self.draft.nest.tree) if loop.name not in before]
        for stem in dict.fromkeys(name.rpartition(".")[0] for name in new):
            names = [name for name in new if name.rpartition(".")[0] == stem]
            along = names[-1]
            if stem.endswith(".store") and f"{stem}.{self.turned}" in names:
                along = f"{stem}.{self.turned}"
            order = [*(n for n in names if n != along), along]
            if order != names:
                self.draft.attempt(Reorder(tuple(order)))
            self.draft.attempt(Vectorize(along))
