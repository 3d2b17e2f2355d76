"""Partial results that lanes have of cells become what the cells get.

    for v in 0 .. 4 vector: y.totals[v] = (y.lanes[v,0] + y.lanes[v,2]) + (y.lanes[v,1] + ...)
    for v in 0 .. 4 vector: y[4*i + v] sum= y.totals[v]

A row for each cell. As many rows as a vector has lanes are combined at once, each in a lane of its
own (`halves.py`), and cells that lie side by side get what they get as one vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..algo.tensor_expr.affine import linear, normalize
from ..algo.tensor_expr.build import add, const
from ..algo.tensor_expr.expr import Access, Expr, Index
from ..algo.tensor_expr.reducers import REDUCERS
from .halves import Row
from .ir import Buffer, For, Stmt, Store, Update

Cell = tuple[Expr, ...]
Run = Sequence[Cell]
"""Cells that lie side by side."""


@dataclass(frozen=True, slots=True)
class Combine:
    """What a buffer's cells get, and how. Vectors have `native` lanes of its type."""

    buffer: Buffer
    reducer: str
    atomic: bool
    native: int

    def groups(self, cells: Sequence[Cell], width: int) -> list[list[Run]]:
        """Cells with rows of that many partial results, by trees: at most as many as there are
        lanes to combine, cells side by side together."""
        most = min(width, self.native)
        found: list[list[Run]] = []
        for run in _runs(cells, self.buffer):
            for start in range(0, len(run), most):
                part = run[start : start + most]
                if found and sum(map(len, found[-1])) + len(part) <= most:
                    found[-1].append(part)
                else:
                    found.append([part])
        return found

    def whole_vectors(self, lanes: Buffer, row: int) -> Iterator[Stmt]:
        """The vectors of a row combined into the first of them."""
        v = Index(f"{lanes.name}.v")
        for start in range(self.native, lanes.shape[1], self.native):
            other = Access(lanes.name, (const(row), add(v, const(start))))
            update = Update(lanes.name, (const(row), v), self.reducer, other)
            yield each(lanes, self.native, update)

    def one(self, lanes: Buffer, row: int, cell: Cell) -> Stmt:
        """The lanes of a row into a cell."""
        value = Access(lanes.name, (const(row), Index(f"{lanes.name}.v")))
        update = Update(self.buffer.name, cell, self.reducer, value, self.atomic)
        return each(lanes, min(self.native, lanes.shape[1]), update)

    def several(self, lanes: Buffer, row: int, runs: Sequence[Run], totals: Buffer) -> list[Stmt]:
        """The lanes of rows, from `row` on, into the cells of runs, by way of `totals`."""
        v = Index(f"{totals.name}.v")
        op, width = REDUCERS[self.reducer].combine, min(self.native, lanes.shape[1])
        tree = Row(lanes.name, normalize(add(v, const(row))), width, op).combined
        made = [each(totals, totals.shape[0], Store(totals.name, (v,), tree))]
        at, axis = 0, _side(self.buffer)
        for run in runs:
            if len(run) == 1 or self.atomic:
                for n, cell in enumerate(run):
                    value = Access(totals.name, (const(at + n),))
                    made.append(Update(self.buffer.name, cell, self.reducer, value, self.atomic))
            else:
                value = Access(totals.name, (normalize(add(v, const(at))),))
                cell = tuple(
                    normalize(add(part, v)) if n == axis else part for n, part in enumerate(run[0])
                )
                update = Update(self.buffer.name, cell, self.reducer, value)
                made.append(each(totals, len(run), update))
            at += len(run)
        return made


def each(buffer: Buffer, count: int, body: Stmt) -> Stmt:
    """A body in lanes, one for each of the first cells of a row of a buffer."""
    return For(f"{buffer.name}.v", const(0), const(count), body, "vector")


def _side(buffer: Buffer) -> int | None:
    """The axis along which cells lie side by side."""
    axes = range(len(buffer.shape)) if not buffer.bytewise else ()
    return next((n for n in reversed(axes) if buffer.strides[n] == 1), None)


def _runs(cells: Sequence[Cell], buffer: Buffer) -> list[list[Cell]]:
    """Cells that lie side by side, together."""
    axis = _side(buffer)
    lines: dict[object, list[tuple[int, Cell]]] = {}
    for cell in cells:
        form = linear(cell[axis]) if axis is not None else None
        if axis is None or form is None:
            lines[cell] = [(0, cell)]
        else:
            key = (cell[:axis], cell[axis + 1 :], frozenset(form.terms.items()))
            lines.setdefault(key, []).append((form.const, cell))
    found: list[list[Cell]] = []
    for line in lines.values():
        last = None
        for at, cell in sorted(line, key=lambda item: item[0]):
            if last is not None and at == last + 1:
                found[-1].append(cell)
            else:
                found.append([cell])
            last = at
    return found
