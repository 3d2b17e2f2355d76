"""The primitives of a product of matrices of bytes: both factors copied in words, then blocks.

    for jb: [B.pack] for io: [A.pack] for jo: matrix for ii: matrix for ji: matrix for k

Where there is no matrix unit, dot products of four run in lanes on sums in registers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...algo.tensor_expr.affine import linear
from ...algo.tensor_expr.expr import Access, Index
from .access import Group
from .compute import ComputeAt
from .draft import Draft
from .extent import at_once
from .layout import dimension_names
from .machine import Machine
from .marks import Mark, Parallel, Unroll, Vectorize
from .nest import loops
from .split import Split
from .stage import Stage
from .tensorize import SIDE, Tensorize
from .tile_model import bare
from .words import Words

WORD, LINE = 4, 64
"""Bytes of a word, and of a row of a square."""
REUSED = 4
"""Blocks of columns that read a row, from which on a copy of it pays."""


@dataclass(slots=True)
class WordNest:
    """Writes the loops of one nest. `high` and `wide` are the sides of its blocks, `outer` the
    index that threads share, of the columns in parts of `part`."""

    draft: Draft
    group: Group
    prefix: str
    found: Words
    high: int
    wide: int
    part: int
    outer: str | None
    machine: Machine
    shared: str | None = None
    """The loop that threads share."""
    order: list[str] = field(default_factory=list)

    def write(self) -> None:
        """Splits, orders, copies and places; the inner loops are marked by `mark`."""
        found, group = self.found, self.group
        i, j, k = found.rows, found.columns, found.depth
        loose = bare(found.right, j) is None
        others = [o for o in group.outs if o not in (i, j)]
        first = [o for o in others if bare(found.right, o) is not None]
        rest = [o for o in others if o not in first]
        parts = {} if loose else {j: self.part}
        if self.outer == i or (loose and not first):
            parts[i] = -(-group.extents[i] // self.machine.threads)
            if self.outer != i:
                parts[i] = group.extents[i]
        inner = {index: index for index in (i, j)}
        around = list(first)
        for index, size in parts.items():
            if self._split(index, max(1, size), (f"{index}b", f"{index}r")):
                inner[index] = f"{index}r"
                around.append(f"{index}b")
        self._split(inner[i], self.high, (f"{i}o", f"{i}i"))
        self._split(inner[j], self.wide, (f"{j}o", f"{j}i"))
        reds = [r for r in group.reds if r != k]
        ends = [k, f"{i}i", f"{j}i"]
        if not self.machine.matrices:
            self._split(k, WORD, (f"{k}o", f"{k}i"))
            ends = [f"{k}o", f"{i}i", f"{j}i", f"{k}i"]
        self.order = [*around, *rest, f"{i}o", f"{j}o"]
        self.draft.order(self.group.name, self.prefix, [*self.order, *reds, *ends])
        self.shared = f"{self.outer}b" if self.outer in parts else self.outer
        home = around[-1] if around else self.order[0]
        self._place(f"{j}o")
        self._copy(found.right, self._words(), home)
        if self._needs_copy():
            moved = all(group.stride(found.left, o) != 0 for o in others)
            self._copy(found.left, self._rows(), f"{i}o" if moved else home)

    def mark(self) -> None:
        """Marks the block, and the loops over its cells before and after."""
        i, j, k = (f"{self.group.name}.{x}" for x in self._names())
        if self.machine.matrices:
            self.draft.attempt(Tensorize((f"{i}i", f"{j}i", k)))
        for loop in list(self.draft.copies(f"{j}i")):
            self.draft.attempt(Vectorize(loop))
        if not self.machine.matrices:
            for loop in list(self.draft.copies(f"{i}i")):
                self.draft.attempt(Unroll(loop))
            self.draft.attempt(Tensorize((f"{k}i",)))

    def _names(self) -> tuple[str, str, str]:
        return self.found.rows, self.found.columns, self.found.depth

    def _place(self, at: str) -> None:
        """What begins and ends a block is done there, on cells beside each other."""
        group, lanes = self.group, self._lanes_last()
        for part in ("init", "final"):
            if any(s.name == f"{group.name}.{part}" for s in group.stages):
                self.draft.attempt(ComputeAt(f"{group.name}.{part}", self.prefix + at))
        if not self.machine.matrices:
            self.draft.attempt(Stage(group.name, self.prefix + at, "register", lanes))
        elif group.store_stride(self.found.columns) != 1:
            self.draft.attempt(Stage(group.name, self.prefix + at, "stack", lanes))

    def _lanes_last(self) -> tuple[str, ...] | None:
        names = dimension_names(self.group.main.lhs)
        last = self.found.columns
        if last not in names or names[-1] == last:
            return None
        return (*(name for name in names if name != last), last)

    def _needs_copy(self) -> bool:
        """Is the rows' factor read in another order, or often in rows that lie far apart?"""
        group, left = self.group, self.found.left
        if left in group.guarded.values():
            return True
        if bare(left, self.found.depth) is None:
            return False
        if group.stride(left, self.found.depth) != 1:
            return True
        return group.extents[self.found.columns] >= REUSED * self.wide

    def _words(self) -> tuple[str, ...]:
        """The columns' factor: the bytes of a word, of one column after the other."""
        right = self.found.right
        names = dimension_names(right.indices)
        k = names[bare(right, self.found.depth) or 0]
        at = next(n for n, part in enumerate(right.indices) if _moves(part, self.found.columns))
        j = names[at]
        rest = [name for name in names if name not in (j, k)]
        if bare(right, self.found.columns) is None:
            return (*rest, f"{k}//{WORD}", j, f"{k}%{WORD}")
        width = SIDE if self.machine.matrices else self.wide
        return (f"{j}//{width}", *rest, f"{k}//{WORD}", f"{j}%{width}", f"{k}%{WORD}")

    def _rows(self) -> tuple[str, ...]:
        """The rows' factor: a line of each row after the other, or a word."""
        left = self.found.left
        names = dimension_names(left.indices)
        depth, row = bare(left, self.found.depth), bare(left, self.found.rows)
        assert depth is not None
        k = names[depth]
        if row is None:
            return (*(name for name in names if name != k), k)
        i = names[row]
        high, length = (SIDE, LINE) if self.machine.matrices else (self.high, WORD)
        rest = [name for name in names if name not in (i, k)]
        return (f"{i}//{high}", *rest, f"{k}//{length}", f"{i}%{high}", f"{k}%{length}")

    def _copy(self, read: Access, layout: tuple[str, ...], at: str) -> None:
        if not self.draft.attempt(Stage(read.tensor, self.prefix + at, "heap", layout)):
            return
        stem = f"{read.tensor}.pack"
        copying = [loop for loop in loops(self.draft.nest.tree) if loop.name.startswith(stem)]
        if copying and read is self.found.left:
            self._attempt(Vectorize, copying[-1].name)
        around = self.order[: self.order.index(at) + 1]
        if self.shared is not None and self.shared not in around:
            several = (loop for loop in copying if at_once(self.draft.nest, loop) != 1)
            self._attempt(Parallel, next(several, copying[0]).name)

    def _attempt(self, mark: type[Mark], name: str) -> None:
        self.draft.attempt(mark(name))

    def _split(self, name: str, size: int, into: tuple[str, str]) -> bool:
        plain = (f"{name}o", f"{name}i")
        return self.draft.attempt(
            Split(self.prefix + name, size, into=None if into == plain else into)
        )


def _moves(part: object, index: str) -> bool:
    form = linear(part)  # type: ignore[arg-type]
    return form is not None and form.of(Index(index)) != 0
