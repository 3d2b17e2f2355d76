"""Columns of a tile in registers: rows are loaded once, and shuffled into columns.

n rows of n cells become n columns in log2(n) rounds. Round k swaps bit k of the row number with
bit k of the lane (Eklundh, 1972): one shuffle of two vectors a row. What columns have in common
is the same instruction, which LLVM keeps once.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from .frame import Frame, Storage
from .values import I32, Value

Row = Callable[[int], ir.Value]


def is_column(storage: Storage, offset: Value, lanes: int) -> bool:
    """Do lanes read down the rows of a register buffer whose rows are whole vectors?"""
    known = offset.llvm is None and storage.lanes == 1
    rows = offset.step >= lanes and offset.step % lanes == 0
    return storage.buffer.scope == "register" and known and rows


def column(f: Frame, offset: Value, run: Row) -> ir.Value:
    """The cells `offset.bias + offset.step * lane`; `run(at)` loads a vector from cell `at` on."""
    n = f.lanes
    place = offset.bias % n

    def first(r: int) -> ir.Value:
        return run(offset.bias - place + offset.step * r)

    row: Row = first
    bit = n // 2
    while bit:
        row = _round(f, row, bit)
        bit //= 2
    return row(place)


def _round(f: Frame, given: Row, bit: int) -> Row:
    """The rows after the round of one bit."""

    return lambda r: swapped(f.ib, given(r & ~bit), given(r | bit), r, bit)


def swapped(ib: ir.IRBuilder, low: ir.Value, high: ir.Value, r: int, bit: int) -> ir.Value:
    """Row `r` after the round of a bit, of the rows without and with that bit before it."""
    n = low.type.count
    lanes = [(lane & ~bit | r & bit) + (n if lane & bit else 0) for lane in range(n)]
    return ib.shuffle_vector(low, high, ir.VectorType(I32, n)([I32(i) for i in lanes]))
