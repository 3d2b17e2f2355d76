"""A loop that stores whole lines of what its iterations compute; `behind.py` finds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...algo.tensor_expr.affine import normalize
from ...algo.tensor_expr.build import add, compare, const, sub
from ...algo.tensor_expr.expr import Access, Expr, Index
from ...algo.tensor_expr.expr import substitute as replaced
from ..ir import Buffer, For, If, Let, Stmt, Store, allocate, block, contiguous, rebuild, with_

Part = tuple[For | None, Store]
"""A store, and the vector loop that it stands in."""


@dataclass(frozen=True, slots=True)
class Row:
    """Neighbouring vectors of one row, in order."""

    parts: tuple[tuple[For, Store], ...]

    @property
    def first(self) -> tuple[For, Store]:
        """The vector that starts an iteration's part of the row."""
        return self.parts[0]


@dataclass(frozen=True, slots=True)
class End:
    """What comes after the full iterations, and computes the last `cells` of each row: `places`
    says by which stores, of what row, from which of these cells on."""

    body: Stmt
    cells: int
    places: Mapping[Part, tuple[int, int]]


NOTHING = End(block(), 0, {})


@dataclass(frozen=True, slots=True)
class Lines:
    """A loop whose iterations compute full vectors of `cells`, equally many of each row of a
    buffer, and what ends the rows.

    A row of `line` holds the vector before an iteration, then those of the iteration.
    """

    loop: For
    buffer: Buffer
    cells: int
    rows: Sequence[Row]
    end: End

    def stmt(self, turns: Sequence[Expr]) -> Stmt:
        """What becomes of the loop; `turns` are the cells up to the first line of each row."""
        loop, rows, now = self.loop, range(len(self.rows)), Index(self.loop.var)
        each, keep, whole, begun, ended = self._each, [], [], [], []
        for r in rows:
            first, *others = (self._store(r, n, now) for n in range(each))
            whole += [first, *others]
            begun += [If(compare("ge", self._cell, self._kept_of(r, 0)), first), *others]
            ended += [self._ended(r, n) for n in range(1 + -(-self.end.cells // self.cells))]
            keep.append(Store(self._line.name, (const(r), self._cell), self._at(r, each)))
        places: dict[Part, tuple[int, int]] = {
            part: (r, self.cells * n)
            for r, row in enumerate(self.rows)
            for n, part in enumerate(row.parts)
        }
        computed, kept = self._collected(loop.body, places), self._vector(*keep)
        start = add(loop.lo, const(1))
        once = with_(loop, hi=start, body=block(computed, self._vector(*begun), kept))
        most = with_(loop, lo=start, body=block(computed, self._vector(*whole), kept))
        last = self._collected(self.end.body, self.end.places)
        stmt = allocate([self._line], block(once, most, last, *ended))
        for r, turn in enumerate(turns):
            stmt = Let(self._turn(r).name, turn, stmt)
        return stmt

    @property
    def _each(self) -> int:
        return len(self.rows[0].parts)

    @property
    def _line(self) -> Buffer:
        vectors = 1 + self._each + (self.end.cells > 0)
        shape, dtype = (len(self.rows), self.cells * vectors), self.buffer.dtype
        name, align = f"{self.buffer.name}.line", self.cells * dtype.itemsize
        return Buffer(name, dtype, shape, contiguous(shape), "register", align)

    @property
    def _cell(self) -> Index:
        return Index(f"{self.buffer.name}.cell")

    def _turn(self, row: int) -> Index:
        return Index(f"{self.buffer.name}.turn{row}")

    def _vector(self, *stmts: Stmt) -> Stmt:
        """Statements for each cell of a line."""
        end = const(self.cells)
        return For(self._cell.name, const(0), end, block(*stmts), "vector", 1, self.cells)

    def _at(self, row: int, vector: int, more: Expr | None = None) -> Access:
        """A cell of a vector of `line`, or one that lies some cells behind it."""
        start = add(const(self.cells * vector), more or const(0))
        return Access(self._line.name, (const(row), normalize(add(start, self._cell))))

    def _kept_of(self, row: int, more: int) -> Expr:
        """Of the vector before, and `more`, how many cells the lines before have not taken."""
        return normalize(sub(const(self.cells + more), self._turn(row)))

    def _store(self, row: int, number: int, iteration: Expr) -> Store:
        """A line of an iteration, whose first cells are the last ones of the vector before."""
        vector, store = self.rows[row].first
        back = add(vector.lo, add(self._cell, self._turn(row)))
        place: dict[Expr, Expr] = {
            Index(vector.var): add(back, const(self.cells * (number - 1))),
            Index(self.loop.var): iteration,
        }
        index = tuple(normalize(replaced(part, place)) for part in store.index)
        return Store(store.buffer, index, self._at(row, number, self._turn(row)))

    def _ended(self, row: int, number: int) -> Stmt:
        """A line of what is left at a row's end, or the start of one."""
        store = self._store(row, number, self.loop.hi)
        left = self._kept_of(row, self.end.cells - self.cells * number)
        whole = compare("ge", left, const(self.cells))
        part = self._vector(If(compare("lt", self._cell, left), store))
        return If(whole, self._vector(store), part)

    def _collected(
        self, stmt: Stmt, places: Mapping[Part, tuple[int, int]], vector: For | None = None
    ) -> Stmt:
        """A statement that stores in registers, from the second vector of a row on."""
        if isinstance(stmt, Store) and (vector, stmt) in places:
            row, cell = places[vector, stmt]
            within = const(0) if vector is None else sub(Index(vector.var), vector.lo)
            index = const(row), normalize(add(const(self.cells + cell), within))
            return Store(self._line.name, index, stmt.value)
        if isinstance(stmt, For):
            vector = stmt if stmt.kind == "vector" else None
        return rebuild(stmt, lambda inner: self._collected(inner, places, vector))


def at(part: Part, iteration: Expr | None = None, var: str = "") -> tuple[Expr, ...]:
    """Where a vector, or a cell, starts; in an iteration of a loop over `var`."""
    vector, store = part
    values: dict[Expr, Expr] = {} if vector is None else {Index(vector.var): vector.lo}
    if iteration is not None:
        values[Index(var)] = iteration
    return tuple(replaced(index, values) for index in store.index)
