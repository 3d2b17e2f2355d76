"""Columns of a tile in registers: rows are loaded once, and shuffled into columns.

n rows of n cells become n columns in log2(n) rounds. Round k swaps bit k of the row number with
bit k of the lane (Eklundh, 1972): one shuffle of two vectors a row. What columns have in common
is made once, and known until the tile is written again (`Frame.rounds`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import llvmlite.ir as ir

from .frame import Frame, Storage
from .values import I32, Value

Row = Callable[[int], ir.Value]


def is_column(storage: Storage, offset: Value, lanes: int) -> bool:
    """Do lanes read down the rows of a register buffer whose rows are whole vectors?"""
    known = offset.llvm is None and storage.lanes == 1
    rows = offset.step >= lanes and offset.step % lanes == 0
    return storage.buffer.scope == "register" and known and rows


def column(f: Frame, storage: Storage, offset: Value, run: Row) -> ir.Value:
    """The cells `offset.bias + offset.step * lane`; `run(at)` loads a vector from cell `at` on."""
    n, known = f.lanes, f.rounds(storage)
    place = offset.bias % n
    start = offset.bias - place

    def row(r: int, bit: int) -> ir.Value:
        """Row `r` after the rounds of the highest bit to `bit`; as it was loaded at first."""
        key = (n, start, offset.step, r, bit)
        if key not in known:
            if bit == n:
                known[key] = run(start + offset.step * r)
            else:
                low, high = (row(part, 2 * bit) for part in (r & ~bit, r | bit))
                known[key] = swapped(f.ib, low, high, r, bit)
        return known[key]

    return row(place, 1)


def swapped(ib: ir.IRBuilder, low: ir.Value, high: ir.Value, r: int, bit: int) -> ir.Value:
    """Row `r` after the round of a bit, of the rows without and with that bit before it."""
    return ib.shuffle_vector(low, high, _mask(low.type.count, r & bit, bit))


@cache
def _mask(n: int, place: int, bit: int) -> ir.Constant:
    """Where the lanes of a row with `place` in that bit come from; constants are slow to make."""
    lanes = [(lane & ~bit | place) + (n if lane & bit else 0) for lane in range(n)]
    return ir.Constant(ir.VectorType(I32, n), [I32(i) for i in lanes])
