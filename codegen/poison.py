"""Memory that a GPU thread has for itself begins with values that show wherever they are read."""

from __future__ import annotations

import math

from ..algo.dtypes import DType
from ..algo.tensor_expr.build import const
from ..algo.tensor_expr.expr import Const, Index
from ..lower.ir import Buffer, For, Stmt, Store


def poison(buffer: Buffer) -> Stmt:
    """Fills a buffer with NaN, or with an integer that no test expects."""
    names = [f"{buffer.name}.d{n}." for n in range(len(buffer.shape))]
    value = Const(_value(buffer.dtype), buffer.dtype)
    fill: Stmt = Store(buffer.name, tuple(map(Index, names)), value)
    for name, extent in reversed(list(zip(names, buffer.shape, strict=True))):
        fill = For(name, const(0), const(extent), fill)
    return fill


def _value(dtype: DType) -> bool | int | float:
    if dtype.kind == "f":
        return math.nan
    return True if dtype.kind == "b" else (1 << (dtype.bits - 2)) + 0x15
