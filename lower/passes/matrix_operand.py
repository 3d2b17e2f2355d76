"""Factors of a product of matrices as the matrix unit reads them: squares of rows of words.

A square of the left factor is 16 rows of 16 words along the sum; one of the right factor 16 rows,
the words along the sum, of the 16 columns. One that lies in memory so, rows at equal distances, is
read there; any other is copied, filled up with zeros along the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...algo.dtypes import DType
from ...algo.tensor_expr.affine import Interval, bounds, linear, normalize
from ...algo.tensor_expr.build import add, const, floordiv, minimum, mod, mul
from ...algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, Index, accesses, substitute
from ...sched.loop.dot import words
from ...sched.loop.tensorize import SIDE
from ..ir import Alloc, Buffer, For, Function, Stmt, Store, contiguous, rebuild, with_
from ..lanes import step

MOST = 2
"""How much larger a buffer may become so that whole squares are read of it."""


@dataclass(slots=True)
class Padding:
    """What extents buffers need, so that whole squares at their ends are inside."""

    needs: dict[str, list[int]] = field(default_factory=dict)

    def covers(self, cell: Access, buffer: Buffer, known: Mapping[str, Interval]) -> bool:
        """Is a square, of which this is a cell, inside of a buffer of the kernel's own that may
        grow? Makes it grow."""
        if buffer.scope not in ("heap", "stack") or buffer.strides != contiguous(buffer.shape):
            return False
        ends = []
        for index, extent in zip(cell.indices, buffer.shape, strict=True):
            low, high = bounds(index, known)
            if low is None or low < 0 or high is None or high >= MOST * extent + 2 * SIDE:
                return False
            ends.append(high + 1)
        needs = self.needs.setdefault(buffer.name, list(buffer.shape))
        needs[:] = map(max, needs, ends)
        return True

    def apply(self, function: Function) -> Function:
        """The function with larger buffers."""
        if not self.needs:
            return function
        return Function(function.name, function.params, self._stmt(function.body))

    def _stmt(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Alloc):
            stmt = Alloc(tuple(self._grown(buffer) for buffer in stmt.buffers), stmt.body)
        return rebuild(stmt, self._stmt)

    def _grown(self, buffer: Buffer) -> Buffer:
        if buffer.name not in self.needs:
            return buffer
        shape = tuple(map(max, buffer.shape, self.needs[buffer.name]))
        return with_(buffer, shape=shape, strides=contiguous(shape))


@dataclass(frozen=True, slots=True)
class Operand:
    """One factor: of what moves it, `side` along rows or columns, and `depth` along the sum.

    `known` are the bounds of the variables around.
    """

    value: Expr
    dtype: DType
    side: For
    depth: For
    left: bool
    name: str
    buffers: Mapping[str, Buffer]
    known: Mapping[str, Interval]

    @property
    def word(self) -> int:
        """Elements of a word."""
        return words(self.dtype)

    @property
    def direct(self) -> bool:
        """Does a square lie in memory as the unit reads it?"""
        cell = self.value
        if not isinstance(cell, Access) or accesses(cell) != [cell]:
            return False
        cell = self.cell(0)
        if not isinstance(cell, Access):
            return False
        lanes, rows = (self._word, self.side.var) if self.left else (self.side.var, self._word)
        steps = {var: self._step(cell, var) for var in (self.depth.var, lanes)}
        regular = all(
            form is not None and not form.inside(rows) for form in map(linear, cell.indices)
        )
        return regular and steps == {self.depth.var: 1, lanes: self.word}

    def cell(self, square: int) -> Expr:
        """An element of a square: `side` and the word count from its start, from 0 to 15, the
        variable of `depth` within a word, and `depth`.block counts the squares along it."""
        at = add(mul(Index(self._word), const(self.word)), Index(self.depth.var))
        start = mul(Index(f"{self.depth.var}.block"), const(SIDE * self.word))
        cell = self._at(square, add(start, at))
        return normalize(cell, self.within)

    @property
    def within(self) -> Mapping[str, Interval]:
        """The bounds of the variables of `cell`, as far as they are whole squares."""
        most = bounds(self.depth.hi, self.known)[1], bounds(self.depth.lo, self.known)[0]
        blocks = None
        if most[0] is not None and most[1] is not None:
            blocks = max(0, -(-(most[0] - most[1]) // (SIDE * self.word)) - 1)
        return {
            **self.known,
            self.side.var: (0, SIDE - 1),
            self._word: (0, SIDE - 1),
            self.depth.var: (0, self.word - 1),
            f"{self.depth.var}.block": (0, blocks),
        }

    def copies(self, square: int, count: Expr, depth: Expr, whole: bool) -> list[Stmt]:
        """Copies `count` rows or columns, and `depth` elements along the sum; `whole` if that is
        all there are in a square."""
        name, side, k = self.buffer(square).name, self.side.var, self.depth.var
        elements = const(SIDE * self.word)
        at = Index(k)
        start = mul(Index(f"{k}.block"), elements)
        value = normalize(self._at(square, add(start, at)), {
            **self.within, k: (0, SIDE * self.word - 1),
        })  # fmt: skip
        made: list[Stmt] = []
        if not whole:
            zero = Store(
                name, (Index(side), at), Const(0.0 if self.dtype.is_float else 0, self.dtype)
            )
            lanes = For(k, const(0), elements, zero, "vector")
            made.append(For(side, const(0), const(SIDE), lanes))
        if self.left:
            body: Stmt = Store(name, (Index(side), at), value)
            made.append(For(side, const(0), count, For(k, const(0), depth, body, "vector")))
        else:
            lane = add(mul(Index(side), const(self.word)), mod(at, const(self.word)))
            body = Store(name, (floordiv(at, const(self.word)), lane), value)
            made.append(For(k, const(0), depth, For(side, const(0), count, body, "vector")))
        return made

    def copied(self, square: int) -> Expr:
        """The element of a copy that `cell` is of the factor."""
        word, k = Index(self._word), Index(self.depth.var)
        row, lane = (Index(self.side.var), word) if self.left else (word, Index(self.side.var))
        return Access(self.buffer(square).name, (row, add(mul(lane, const(self.word)), k)))

    def buffer(self, square: int) -> Buffer:
        """Where a square is copied to."""
        shape = (SIDE, SIDE * self.word)
        return Buffer(f"{self.name}{square}", self.dtype, shape, contiguous(shape), "stack", 64)

    @property
    def _word(self) -> str:
        return f"{self.depth.var}.word"

    def _at(self, square: int, along: Expr) -> Expr:
        side = add(self.side.lo, add(const(SIDE * square), Index(self.side.var)))
        values: dict[Expr, Expr] = {
            Index(self.side.var): side,
            Index(self.depth.var): add(self.depth.lo, along),
        }
        return substitute(self.value, values)

    def _step(self, cell: Access, var: str) -> int | None:
        """Elements from a cell to the next one along a variable."""
        return step(self.buffers[cell.tensor], cell.indices, var)


def counted(count: Expr, square: int, known: Mapping[str, Interval]) -> Expr:
    """How many of `count` rows or columns are in a square."""
    return normalize(minimum(add(count, const(-SIDE * square)), const(SIDE)), known)


def product(total: DType, factors: Sequence[Expr]) -> Expr:
    """The product of two factors in the type in which they are added up."""
    return Call("mul", tuple(Cast(total, factor) for factor in factors))
