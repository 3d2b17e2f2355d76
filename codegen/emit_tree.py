"""Rows of registers whose cells are combined, all rows at once: a tree of whole vectors.

    for r in 0 .. 4 vector(4): t[r] = (s[r,0] + s[r,2]) + (s[r,1] + s[r,3])

Row by row that is two shuffles and two additions a row. Here two rows are added at a time: their
lower halves side by side, and their upper halves, then four rows, whose quarters lie side by side.
So n rows of n cells take n-1 operations on whole vectors, each of two shuffles, and the results end
side by side. Each is combined in the order in which a row alone would be.
"""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.ir as ir

from ..algo.dtypes import DType, bool_, i64
from ..algo.tensor_expr.expr import Expr
from ..lower.halves import Row, row_of
from . import emit_memory
from .emit_expr import value
from .emit_operations import apply, bool_arithmetic
from .emit_transpose import swapped
from .frame import Frame
from .values import I32, Value

_RUN = Value(i64, None, 0, 1)
"""The cells of a row from its first on."""


def combined(f: Frame, expr: Expr) -> Value:
    """The value of an expression that a statement stores; as a tree if it is one of rows."""
    row = row_of(expr) if f.lanes > 1 else None
    rows = _rows(f, row) if row is not None else None
    if row is None or rows is None:
        return value(f, expr)
    dtype = f.buffers[row.buffer].buffer.dtype
    return Value(
        dtype, _tree(f, dtype, bool_arithmetic(row.op) if dtype is bool_ else row.op, rows)
    )


def _rows(f: Frame, row: Row) -> list[ir.Value] | None:
    """The rows that the active lanes combine, if lanes go down them."""
    buffer, at = f.buffers[row.buffer].buffer, value(f, row.index)
    active = f.lanes if f.mask is None else f.mask.first
    down = at.llvm is None and at.step == 1 and f.buffers[row.buffer].own
    if not down or active is None or f.lanes > row.width or buffer.strides[-1] != 1:
        return None
    lanes, f.lanes = f.lanes, row.width
    with f.masked(None):
        cells = [
            emit_memory.load(f, row.buffer, (Value(i64, None, at.bias + n), _RUN))
            for n in range(min(active, lanes))
        ]
        rows = [f.vector(cell) for cell in cells]
    f.lanes = lanes
    return rows


def _tree(f: Frame, dtype: DType, op: str, rows: Sequence[ir.Value]) -> ir.Value:
    """Rows combined, in as many lanes as there are in the vector loop around."""
    ib, width = f.ib, rows[0].type.count
    nothing = rows[0].type(ir.Undefined)
    found: list[ir.Value | None] = [*rows, *[None] * (f.lanes - len(rows))]
    bit = width // 2
    while len(found) > 1:
        half = len(found) // 2
        for n in range(half):
            low, high = found[n], found[n + half]
            if low is not None:
                low, high = (low, nothing) if high is None else (low, high)
                parts = (swapped(ib, low, high, r, bit) for r in (0, bit))
                found[n] = apply(f, op, dtype, *parts)
        del found[half:]
        bit //= 2
    total = found[0]
    while bit:  # fewer rows than cells: their parts are combined where they lie
        upper = [lane | bit for lane in range(width)]
        total = apply(f, op, dtype, total, _shuffled(ib, total, upper))
        bit //= 2
    apart = width // f.lanes
    return total if apart == 1 else _shuffled(ib, total, [*range(0, width, apart)])


def _shuffled(ib: ir.IRBuilder, vector: ir.Value, lanes: list[int]) -> ir.Value:
    order = ir.VectorType(I32, len(lanes))([I32(lane) for lane in lanes])
    return ib.shuffle_vector(vector, vector.type(ir.Undefined), order)
