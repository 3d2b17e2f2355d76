"""One block of a product of matrices, by squares of the machine's matrix unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...algo.tensor_expr.affine import Interval, bounds, normalize
from ...algo.tensor_expr.build import add, all_of, compare, const, floordiv, mul, sub
from ...algo.tensor_expr.expr import Access, Const, Expr, Index, accesses, substitute
from ...algo.tensor_expr.types import dtype_of
from ...sched.loop.tensorize import ACCUMULATORS, SIDE
from ..ir import (
    Block,
    Buffer,
    For,
    If,
    Let,
    Stmt,
    Store,
    Update,
    allocate,
    block,
    contiguous,
    with_,
)
from ..lanes import step
from ..ranges import span, values_of
from .matrix_operand import Operand, Padding, counted, product
from .matrix_product import MatrixProduct

Known = Mapping[str, Interval]
Buffers = Mapping[str, Buffer]


class Squares:
    """Writes one block by squares; `spans` are its rows and columns where more is known of them."""

    def __init__(
        self,
        found: MatrixProduct,
        buffers: Buffers,
        known: Known,
        padding: Padding,
        spans: Sequence[Expr] = (),
    ) -> None:
        self.found, self.buffers, self.known, self.padding = found, buffers, known, padding
        self.total = buffers[found.update.buffer].dtype
        inner = dict(known)
        for loop in found.around:
            inner[loop.var] = values_of(loop, inner)
        self.inner: Known = inner
        kinds = {name: buffer.dtype for name, buffer in buffers.items()}
        name = found.update.buffer
        self.sides = [
            Operand(value, dtype_of(value, kinds), loop, found.depth, left,
                    f"{name}.{'left' if left else 'right'}", buffers, inner)
            for value, loop, left in zip(
                found.factors, (found.rows, found.columns), (True, False), strict=True
            )
        ]  # fmt: skip
        loops = (found.rows, found.columns)
        self.spans = spans or [normalize(span(loop), known) for loop in loops]

    def write(self) -> Stmt | None:
        """The statements, or None where it is larger than the unit's accumulators."""
        spans = [bounds(count, self.known) for count in self.spans]
        least, most = zip(*spans, strict=True)
        if None in most or any(n is not None and n < 1 for n in most):
            return None
        squares = [-(-int(n) // SIDE) for n in most]
        if squares[0] * squares[1] > ACCUMULATORS:
            return None
        counts = [max(n or 0, 0) for n in least]
        plain = self.version(squares, counts)
        if counts == list(most):
            return plain
        whole = [const(n) for n in most]
        writer = Squares(self.found, self.buffers, self.known, self.padding, whole)
        full = writer.version(squares, list(most))
        at_most = [compare("ge", c, n) for c, n in zip(self.spans, whole, strict=True)]
        cond = normalize(all_of(at_most), self.known)
        if isinstance(cond, Const):
            return full if cond.value else plain
        return plain if full is plain else If(cond, full, plain)

    def version(self, squares: Sequence[int], certain: Sequence[int]) -> Stmt:
        """The block where there are at least `certain` rows and columns."""
        height, width = squares
        name = self.found.update.buffer
        tiles = [
            Buffer(f"{name}.tile{n}", self.total, (SIDE, SIDE), (SIDE, 1), "tile", 64)
            for n in range(height * width)
        ]
        whole = all(n >= SIDE * count for n, count in zip(certain, squares, strict=True))
        home = whole and self.is_run()
        shape = (SIDE * height, SIDE * width)
        sums = Buffer(f"{name}.sums", self.total, shape, contiguous(shape), "stack", 64)
        cells = [
            (tile, self.cell(n // width, n % width) if home else self.sum(sums, n, width))
            for n, tile in enumerate(tiles)
        ]
        here = (Index(self.found.rows.var), Index(self.found.columns.var))
        zero = Const(0.0 if self.total.is_float else 0, self.total)
        first = self.square(*(Store(t.name, here, cell if home else zero) for t, cell in cells))
        last = self.square(
            *(Store(cell.tensor, cell.indices, Access(t.name, here)) for t, cell in cells)
        )
        body = allocate(tiles, block(first, self.steps(tiles, squares, certain), last))
        if home:
            return body
        rows, columns = self.found.rows, self.found.columns
        adding = Update(name, self.at(0, 0), "sum", Access(sums.name, here))
        lanes = For(columns.var, const(0), self.spans[1], adding, "vector")
        return allocate([sums], block(body, For(rows.var, const(0), self.spans[0], lanes)))

    def steps(
        self, tiles: Sequence[Buffer], squares: Sequence[int], certain: Sequence[int]
    ) -> Stmt:
        """The loops along the sum: whole squares, then what is left."""
        depth = self.found.depth
        var, length = f"{depth.var}.block", SIDE * self.sides[0].word
        count = normalize(span(depth), self.inner)
        full = normalize(floordiv(count, const(length)), self.inner)
        rest = normalize(sub(count, mul(full, const(length))), self.inner)
        parts: list[Stmt] = []
        if full is not Const(0):
            body = self.step(tiles, squares, certain, None)
            parts.append(For(var, const(0), full, body))
        if rest is not Const(0):
            left = Let(var, full, self.step(tiles, squares, certain, rest))
            some = normalize(compare("gt", rest, const(0)), self.inner)
            parts.append(left if isinstance(some, Const) else If(some, left))
        made = block(*parts) if parts else Block(())
        for loop in reversed(self.found.around):
            made = with_(loop, body=made)
        return made

    def step(
        self,
        tiles: Sequence[Buffer],
        squares: Sequence[int],
        certain: Sequence[int],
        rest: Expr | None,
    ) -> Stmt:
        """One step along the sum, of a whole square or of `rest`."""
        cells: list[list[Expr]] = []
        copies: list[Stmt] = []
        buffers: list[Buffer] = []
        for operand, count, sure, spanned in zip(
            self.sides, squares, certain, self.spans, strict=True
        ):
            found = []
            for square in range(count):
                if self.reads(operand, square, sure, rest):
                    found.append(operand.cell(square))
                    continue
                found.append(operand.copied(square))
                buffers.append(operand.buffer(square))
                there = counted(spanned, square, self.known)
                along = const(SIDE * operand.word) if rest is None else rest
                copies += operand.copies(square, there, along, rest is None)
            cells.append(found)
        depth = self.found.depth
        here = (Index(self.found.rows.var), Index(self.found.columns.var))
        width = squares[1]
        updates = [
            Update(
                tile.name,
                here,
                "sum",
                product(self.total, [cells[0][n // width], cells[1][n % width]]),
            )
            for n, tile in enumerate(tiles)
        ]
        body = block(*updates)
        word = self.sides[0].word
        for loop, count in ((depth.var, word), (f"{depth.var}.word", SIDE)):
            body = For(loop, const(0), const(count), body, "matrix")
        return allocate(buffers, block(*copies, self.square(body)))

    def reads(self, operand: Operand, square: int, certain: int, rest: Expr | None) -> bool:
        """Is a square read where it is? What is beyond the sum's end must be 0 in one factor, and
        for floats in both, for 0 times infinity is none."""
        if not operand.direct:
            return False
        if rest is not None and (operand.left or self.total.is_float):
            return False
        cell = operand.cell(square)
        assert isinstance(cell, Access)
        if rest is None and certain >= SIDE * (square + 1):
            return True
        return self.padding.covers(cell, self.buffers[cell.tensor], operand.within)

    def square(self, *body: Stmt) -> Stmt:
        """Statements for all cells of a square."""
        columns = For(self.found.columns.var, const(0), const(SIDE), block(*body), "matrix")
        return For(self.found.rows.var, const(0), const(SIDE), columns, "matrix")

    def at(self, row: int, column: int) -> tuple[Expr, ...]:
        """Where a cell of a square is in the result."""
        values: dict[Expr, Expr] = {
            Index(loop.var): add(loop.lo, add(const(SIDE * n), Index(loop.var)))
            for loop, n in ((self.found.rows, row), (self.found.columns, column))
        }
        within = {**self.known, self.found.rows.var: (0, SIDE - 1)}
        within[self.found.columns.var] = (0, SIDE - 1)
        parts = (substitute(part, values) for part in self.found.update.index)
        return tuple(normalize(part, within) for part in parts)

    def cell(self, row: int, column: int) -> Access:
        return Access(self.found.update.buffer, self.at(row, column))

    def sum(self, sums: Buffer, number: int, width: int) -> Access:
        row, column = Index(self.found.rows.var), Index(self.found.columns.var)
        at = (
            add(row, const(SIDE * (number // width))),
            add(column, const(SIDE * (number % width))),
        )
        return Access(sums.name, at)

    def is_run(self) -> bool:
        """Do the cells of a row of the block lie side by side in the result?"""
        cell = self.cell(0, 0)
        buffer = self.buffers[cell.tensor]
        if buffer.scope not in ("param", "heap", "stack") or accesses(cell) != [cell]:
            return False
        columns = step(buffer, cell.indices, self.found.columns.var)
        rows = step(buffer, cell.indices, self.found.rows.var)
        return columns == 1 and rows is not None
