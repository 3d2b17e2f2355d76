"""What the loop of a dot product of bytes computes, in a schedule and in loop IR alike."""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.dtypes import DType, i32
from ...algo.tensor_expr.expr import Call, Cast, Const, Expr
from ...algo.tensor_expr.types import dtype_of

DEPTH = 4
"""Products that one instruction adds to a lane."""


def factors(value: Expr, types: Mapping[str, DType]) -> tuple[Expr, Expr] | None:
    """The two factors, of i8 or u8, of a product that is taken in i32; None for other values."""
    match value:
        case Call("mul", (one, two)) if dtype_of(value, types) is i32:
            a, b = _byte(one, types), _byte(two, types)
            return None if a is None or b is None else (a, b)
    return None


def _byte(expr: Expr, types: Mapping[str, DType]) -> Expr | None:
    """What was cast, by way of types that hold all its values, if it is a byte or a number for
    one where a condition fails."""
    while isinstance(expr, Cast):
        kept, inner = expr.dtype, dtype_of(expr.arg, types)
        wider = inner.kind in "iu" and kept.kind in "iu" and inner.bits < kept.bits
        if not wider or (inner.kind == "i" and kept.kind == "u"):
            break
        expr = expr.arg
    match expr:
        case Call("where", (cond, then, Const(int() as number))):
            byte = _byte(then, types)
            if byte is None:
                return None
            dtype = dtype_of(byte, types)
            least = -128 if dtype.kind == "i" else 0
            fits = least <= number < least + 256
            return Call("where", (cond, byte, Const(number, dtype))) if fits else None
    dtype = dtype_of(expr, types)
    return expr if dtype.kind in "iu" and dtype.bits == 8 else None
