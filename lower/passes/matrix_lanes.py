"""One block of a product of matrices in vector registers, on machines without a matrix unit.

    for i in 0 .. 32 matrix:            for i.part in 0 .. 4: for j.part in 0 .. 1:
        for j in 0 .. 32 matrix:            alloc s.tile: register i32[8, 32]; zero s.tile
            for k in 0 .. K matrix:         for k.block in 0 .. K // 64: for k.word in 0 .. 16:
                s[i, j] sum=      ==>           for i in 0 .. 8 unroll: for j in 0 .. 32 vector:
                    a[i, k] * b[k, j]               for k in 0 .. 4 dot: s.tile[i, j] sum= ...
                                            the rest of k
                                            s sum= s.tile

Loops are those of a matrix unit: factors are read by squares of 16 rows or columns of 16 words,
sums stay in registers over all loops around that only add to them, and whole tiles are computed
where what lies beyond the block's end can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...algo.tensor_expr.affine import Interval, bounds, normalize
from ...algo.tensor_expr.build import add, all_of, compare, const, floordiv, minimum, mod, mul, sub
from ...algo.tensor_expr.expr import Access, Const, Expr, Index, accesses, substitute
from ...algo.tensor_expr.types import dtype_of
from ...sched.loop.dot import words
from ...sched.loop.machine import Machine
from ...sched.loop.tensorize import SIDE
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
from ..ranges import inside, span, values_of
from .matrix_operand import Padding, product
from .matrix_product import MatrixProduct

Known = Mapping[str, Interval]
Buffers = Mapping[str, Buffer]
COLUMNS = 2
"""Vectors in a row of a tile: what is read of a row serves so many of them."""


@dataclass(frozen=True, slots=True)
class _Side:
    """Rows or columns: `start` is the first of a tile within the block, of which `count` are in
    the block; `loops` run over tiles."""

    loop: For
    size: int
    count: Expr
    start: Expr
    loops: tuple[For, ...]
    known: Known

    @property
    def left(self) -> Expr:
        """How many there are from a tile's start on."""
        return normalize(sub(self.count, self.start), self.known)

    @property
    def is_even(self) -> bool:
        """Are all tiles full?"""
        return normalize(mod(self.count, const(self.size)), self.known) is Const(0)

    def at(self, number: Expr, *, clamped: bool = False) -> Expr:
        """The value of the loop's variable at one of a tile's rows or columns."""
        if clamped:
            number = minimum(number, sub(self.left, const(1)))
        return add(self.loop.lo, add(self.start, number))


class InLanes:
    """Writes one block by tiles of registers."""

    def __init__(
        self,
        found: MatrixProduct,
        buffers: Buffers,
        known: Known,
        padding: Padding,
        machine: Machine,
    ) -> None:
        self.found, self.buffers, self.padding, self.machine = found, buffers, padding, machine
        self.types = {name: buffer.dtype for name, buffer in buffers.items()}
        self.word = words(found.dtype)
        high, wide = self.tile(known)
        self.rows = _side(found.rows, high, known)
        self.columns = _side(found.columns, wide, self.rows.known)
        inner = dict(self.columns.known)
        for loop in found.around:
            inner[loop.var] = values_of(loop, inner)
        self.known: Known = inner
        total = buffers[found.update.buffer].dtype
        shape = (high, wide)
        name = f"{found.update.buffer}.tile"
        self.sums = Buffer(name, total, shape, contiguous(shape), "register", 64)

    def tile(self, known: Known) -> tuple[int, int]:
        """Rows and columns that are computed at once, in half of the registers.

        Of bytes of one sign the columns' sums are needed too, once a tile: those are high.
        """
        half, lanes = self.machine.registers // 2, self.machine.lanes(4)
        kinds = {dtype_of(factor, self.types) for factor in self.found.factors}
        flipped = self.word == 4 and 4 in self.machine.dots and len(kinds) == 1
        vectors = 1 if flipped else COLUMNS
        most = [bounds(span(loop), known)[1] for loop in (self.found.rows, self.found.columns)]
        sizes = [SIDE * SIDE if n is None else 1 << (max(n, 1) - 1).bit_length() for n in most]
        high = min(sizes[0], max(1, half // vectors), SIDE)
        return high, min(sizes[1], half // high * lanes)

    def write(self) -> Stmt:
        """The statements."""
        sides = self.rows, self.columns
        whole = [
            side.is_even or self.is_there(factor)
            for side, factor in zip(sides, self.found.factors, strict=True)
        ]
        made = self.version(careful=False)
        if not all(whole):
            full = all_of([compare("ge", side.left, const(side.size)) for side in sides])
            made = If(normalize(full, self.known), made, self.version(careful=True))
        for loop in reversed((*self.rows.loops, *self.columns.loops)):
            made = with_(loop, body=made)
        return made

    def is_there(self, factor: Expr) -> bool:
        """Can a factor be read beyond the block's end? Its buffer grows for that."""
        depth = self.found.depth
        here = {**self.known, depth.var: values_of(depth, self.known)}
        here |= {side.loop.var: (0, side.size - 1) for side in (self.rows, self.columns)}
        row, column = (side.at(Index(side.loop.var)) for side in (self.rows, self.columns))
        cell = normalize(self.at(factor, row, column, Index(depth.var)), here)
        if not isinstance(cell, Access) or accesses(cell) != [cell]:
            return False
        return self.padding.covers(cell, self.buffers[cell.tensor], here)

    def version(self, *, careful: bool) -> Stmt:
        """A tile; `careful` where less than a tile may be read."""
        name = self.found.update.buffer
        zero = Const(0.0 if self.sums.dtype.is_float else 0, self.sums.dtype)
        row, high = Index(self.rows.loop.var), const(self.rows.size)
        first = self.each(high, None, lambda column: Store(self.sums.name, (row, column), zero))

        def add_up(column: Expr) -> Stmt:
            at = tuple(
                normalize(self.at(part, self.rows.at(row), self.columns.at(column), const(0)))
                for part in self.found.update.index
            )
            return Update(name, at, "sum", Access(self.sums.name, (row, column)))

        rows, columns = self.rows.left, self.columns.left
        last = self.each(normalize(minimum(rows, high), self.known), columns, add_up)
        return allocate([self.sums], block(first, self.steps(careful), last))

    def steps(self, careful: bool) -> Stmt:
        """The loops along the sum: squares, then words, then what is left of one."""
        depth = self.found.depth
        names = f"{depth.var}.block", f"{depth.var}.word"
        number, word = map(Index, names)
        count = normalize(span(depth), self.known)
        length = const(SIDE * self.word)
        blocks = normalize(floordiv(count, length), self.known)
        rest = normalize(mod(count, length), self.known)
        some = normalize(floordiv(rest, const(self.word)), self.known)
        start = add(mul(number, length), mul(word, const(self.word)))

        def step(elements: Expr) -> Stmt:
            return self.step(start, elements, careful)

        full = For(names[1], const(0), const(SIDE), step(const(self.word)))
        words = For(names[1], const(0), some, step(const(self.word)))
        end = Let(names[1], some, step(normalize(mod(rest, const(self.word)), self.known)))
        made = block(
            For(names[0], const(0), blocks, full), Let(names[0], blocks, block(words, end))
        )
        for loop in reversed(self.found.around):
            made = with_(loop, body=made)
        return made

    def step(self, start: Expr, elements: Expr, careful: bool) -> Stmt:
        """Adds the products of some elements of a word, from `start` along the sum."""
        rows, columns, depth = self.rows, self.columns, self.found.depth
        row, along = Index(rows.loop.var), add(depth.lo, add(start, Index(depth.var)))

        def products(column: Expr) -> Stmt:
            values = [
                self.at(factor, rows.at(row, clamped=careful), columns.at(column), along)
                for factor in self.found.factors
            ]
            value = normalize(product(self.sums.dtype, values), self.within)
            adding: Stmt = Update(self.sums.name, (row, column), "sum", value)
            if self.has_dots:
                adding = For(depth.var, const(0), elements, adding, "dot")
            return adding

        made = self.each(const(rows.size), columns.left if careful else None, products)
        if self.has_dots:
            return made
        return For(depth.var, const(0), elements, made, "unroll")

    def each(self, rows: Expr, columns: Expr | None, body: Callable[[Expr], Stmt]) -> Stmt:
        """A body for the cells of a tile, of which there are so many."""
        column, wide = self.columns.loop.var, min(self.columns.size, SIDE)
        parts = []
        for start in range(0, self.columns.size, wide):
            stop: Expr = const(wide)
            if columns is not None:
                stop = normalize(minimum(sub(columns, const(start)), stop), self.known)
            parts.append(
                For(column, const(0), stop, body(add(Index(column), const(start))), "vector")
            )
        return For(self.rows.loop.var, const(0), rows, block(*parts), "unroll")

    def at(self, expr: Expr, row: Expr, column: Expr, along: Expr) -> Expr:
        """What an expression of the block is for a row, a column and a place along the sum."""
        found = self.found
        names = (Index(loop.var) for loop in (found.rows, found.columns, found.depth))
        return substitute(expr, dict(zip(names, (row, column, along), strict=True)))

    @property
    def has_dots(self) -> bool:
        """Does the machine multiply words?"""
        return self.machine.adds(self.word)

    @property
    def within(self) -> Known:
        """The bounds of the variables in `step`."""
        rows, columns, depth = self.rows, self.columns, self.found.depth
        return {
            **self.known,
            rows.loop.var: (0, rows.size - 1),
            columns.loop.var: (0, min(columns.size, SIDE) - 1),
            depth.var: (0, self.word - 1),
            f"{depth.var}.word": (0, SIDE - 1),
            f"{depth.var}.block": (0, None),
        }


def _side(loop: For, size: int, known: Known) -> _Side:
    count = normalize(span(loop), known)
    loops: list[For] = []
    start: Expr = const(0)
    steps = {"square": max(size, SIDE)} | ({"part": size} if size < SIDE else {})
    for name, step in steps.items():
        left = minimum(sub(count, start), const(SIDE)) if loops else count
        turns = normalize(floordiv(add(left, const(step - 1)), const(step)), known)
        loops.append(For(f"{loop.var}.{name}", const(0), turns, Block(())))
        known = inside(loops[-1], known)
        start = add(start, mul(Index(loops[-1].var), const(step)))
    return _Side(loop, size, count, start, tuple(loops), known)
