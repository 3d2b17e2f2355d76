"""A loop that stores whole lines of what its iterations compute; `behind.py` finds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...algo.tensor_expr.affine import normalize
from ...algo.tensor_expr.build import add, compare, const, sub
from ...algo.tensor_expr.expr import Access, Expr, Index
from ...algo.tensor_expr.expr import substitute as replaced
from ..ir import Buffer, For, If, Let, Stmt, Store, allocate, block, contiguous, rebuild, with_


@dataclass(frozen=True, slots=True)
class Row:
    """Neighbouring vectors of one row, in order: the loops over their cells and the stores."""

    parts: tuple[tuple[For, Store], ...]

    @property
    def first(self) -> tuple[For, Store]:
        """The vector that starts an iteration's part of the row."""
        return self.parts[0]


@dataclass(frozen=True, slots=True)
class Lines:
    """A loop whose iterations compute full vectors of `cells`, equally many of each row of a
    buffer.

    A row of `line` holds the vector before an iteration, then those of the iteration.
    """

    loop: For
    buffer: Buffer
    cells: int
    rows: Sequence[Row]

    def stmt(self, turns: Sequence[Expr]) -> Stmt:
        """What becomes of the loop; `turns` are the cells up to the first line of each row."""
        loop, rows, now = self.loop, range(len(self.rows)), Index(self.loop.var)
        each, keep = len(self.rows[0].parts), []
        whole, begun, ended = [], [], []
        for r in rows:
            first, *others = (self._store(r, part, now) for part in range(each))
            before = sub(const(self.cells), self._turn(r))
            whole += [first, *others]
            begun += [If(compare("ge", self._cell, before), first), *others]
            ended.append(If(compare("lt", self._cell, before), self._store(r, 0, loop.hi)))
            keep.append(
                Store(self._line.name, (const(r), self._cell), self._kept(r, each, const(0)))
            )
        stored = If(compare("gt", now, loop.lo), self._vector(whole), self._vector(begun))
        body = block(self._collected(loop.body), stored, self._vector(keep))
        stmt = allocate([self._line], block(with_(loop, body=body), self._vector(ended)))
        for r, turn in enumerate(turns):
            stmt = Let(self._turn(r).name, turn, stmt)
        return stmt

    @property
    def _line(self) -> Buffer:
        shape = len(self.rows), self.cells * (1 + len(self.rows[0].parts))
        name, dtype = f"{self.buffer.name}.line", self.buffer.dtype
        align = self.cells * dtype.itemsize
        return Buffer(name, dtype, shape, contiguous(shape), "register", align)

    @property
    def _cell(self) -> Index:
        return Index(f"{self.buffer.name}.cell")

    def _turn(self, row: int) -> Index:
        return Index(f"{self.buffer.name}.turn{row}")

    def _vector(self, stmts: Sequence[Stmt]) -> Stmt:
        """Statements for each cell of a line."""
        end = const(self.cells)
        return For(self._cell.name, const(0), end, block(*stmts), "vector", 1, self.cells)

    def _kept(self, row: int, vector: int, turn: Expr) -> Access:
        """A cell so many behind one of a vector of `line`."""
        start = add(const(self.cells * vector), turn)
        return Access(self._line.name, (const(row), normalize(add(start, self._cell))))

    def _store(self, row: int, part: int, iteration: Expr) -> Store:
        """A line, whose first cells are the last ones of the vector before."""
        vector, store = self.rows[row].parts[part]
        back = sub(add(self._cell, self._turn(row)), const(self.cells))
        index = at(
            store, {Index(vector.var): add(vector.lo, back), Index(self.loop.var): iteration}
        )
        return Store(
            store.buffer, tuple(map(normalize, index)), self._kept(row, part, self._turn(row))
        )

    def _collected(self, stmt: Stmt, vector: For | None = None) -> Stmt:
        """A statement of the body, which stores in registers."""
        if vector is not None and isinstance(stmt, Store):
            for r, row in enumerate(self.rows):
                if (vector, stmt) in row.parts:
                    start = const(self.cells * (1 + row.parts.index((vector, stmt))))
                    index = const(r), add(start, sub(Index(vector.var), vector.lo))
                    return Store(self._line.name, index, stmt.value)
        within = stmt if isinstance(stmt, For) else vector
        return rebuild(stmt, lambda inner: self._collected(inner, within))


def at(store: Store, values: Mapping[Expr, Expr]) -> tuple[Expr, ...]:
    """Where a statement stores if variables have those values."""
    return tuple(replaced(index, values) for index in store.index)
