"""What the loops of dot products of narrow numbers compute, in a schedule and in loop IR alike.

Machines multiply elements of 8 or 16 bits in pairs or fours, those of one word of 32 bits, and add
the products up in 32 bits: bytes in i32, bf16 in f32.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.dtypes import DType, bf16, f32, i32
from ...algo.tensor_expr.expr import Call, Cast, Const, Expr
from ...algo.tensor_expr.types import dtype_of

Types = Mapping[str, DType]


def words(dtype: DType) -> int:
    """Elements of a word: 4 bytes, or 2 of bf16."""
    return 32 // dtype.bits


def factors(value: Expr, types: Types) -> tuple[Expr, Expr] | None:
    """The two factors of a product: bytes (i8 or u8) multiplied in i32, or bf16 multiplied in f32.

    None for other values.
    """
    match value:
        case Call("mul", (one, two)):
            total = dtype_of(value, types)
            narrow = _byte if total is i32 else _bf16 if total is f32 else _none
            a, b = narrow(one, types), narrow(two, types)
            return None if a is None or b is None else (a, b)
    return None


def _none(expr: Expr, types: Types) -> None:
    return None


def _byte(expr: Expr, types: Types) -> Expr | None:
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


def _bf16(expr: Expr, types: Types) -> Expr | None:
    """The number that was widened, or 0 where a condition fails."""
    match expr:
        case Cast(dtype, arg) if dtype is f32 and dtype_of(arg, types) is bf16:
            return arg
        case Call("where", (cond, then, Const(number))) if number == 0:
            found = _bf16(then, types)
            return None if found is None else Call("where", (cond, found, Const(number, bf16)))
    return None
