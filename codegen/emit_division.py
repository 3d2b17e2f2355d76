"""Floor division and remainder: of integers without traps, of floats as NumPy defines them.

By zero both give 0, and INT_MIN // -1 wraps. Vectors of 32 bits and less divide in f64, which is
exact and has vector instructions, where integer division has none.
"""

from __future__ import annotations

import llvmlite.ir as ir

from ..algo.dtypes import DType
from . import elementary
from .frame import Frame
from .values import F64, frozen, lanes_of, like


def floordiv(f: Frame, dtype: DType, a: ir.Value, b: ir.Value) -> ir.Value:
    """a // b"""
    if dtype.kind == "b":
        return f.ib.and_(a, b)
    if dtype.is_float:
        return elementary.floor_divide(f, a, b)
    return _divide(f, dtype, a, b)[0]


def mod(f: Frame, dtype: DType, a: ir.Value, b: ir.Value) -> ir.Value:
    """a % b, with the sign of b"""
    if dtype.kind == "b":
        return like(a, 0)
    if dtype.is_float:
        return elementary.remainder(f, a, b)
    return _divide(f, dtype, a, b)[1]


def _divide(f: Frame, dtype: DType, a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
    known = _literal(b)
    if known is not None and known > 0:
        return _by_constant(f, dtype, a, b, known)
    ib = f.ib
    b = frozen(ib, b) if lanes_of(b) > 1 else b
    zero = ib.icmp_unsigned("==", b, like(b, 0))
    if lanes_of(a) > 1 and dtype.bits <= 32:
        quotient = _through_f64(f, dtype, a, ib.select(zero, like(b, 1), b))
    elif dtype.kind == "u":
        quotient = ib.udiv(a, ib.select(zero, like(b, 1), b))
    else:
        minus = ib.icmp_signed("==", b, like(b, -1))
        safe = ib.select(ib.or_(zero, minus), like(b, 1), b)
        down = _round_down(f, a, safe, ib.sdiv(a, safe))
        quotient = ib.select(minus, ib.neg(a), down)
    quotient = ib.select(zero, like(b, 0), quotient)
    rest = ib.select(zero, like(b, 0), ib.sub(a, ib.mul(quotient, b)))
    return quotient, rest


def _by_constant(
    f: Frame, dtype: DType, a: ir.Value, b: ir.Value, known: int
) -> tuple[ir.Value, ir.Value]:
    ib = f.ib
    if known & (known - 1) == 0:
        shift = ib.lshr if dtype.kind == "u" else ib.ashr
        return shift(a, like(a, known.bit_length() - 1)), ib.and_(a, like(a, known - 1))
    quotient = ib.udiv(a, b) if dtype.kind == "u" else _round_down(f, a, b, ib.sdiv(a, b))
    return quotient, ib.sub(a, ib.mul(quotient, b))


def _round_down(f: Frame, a: ir.Value, b: ir.Value, quotient: ir.Value) -> ir.Value:
    """From the quotient toward zero to the one toward minus infinity."""
    ib = f.ib
    rest = ib.sub(a, ib.mul(quotient, b))
    inexact = ib.icmp_signed("!=", rest, like(a, 0))
    signs = ib.icmp_signed("<", ib.xor(rest, b), like(a, 0))
    return ib.sub(quotient, ib.zext(ib.and_(inexact, signs), a.type))


def _through_f64(f: Frame, dtype: DType, a: ir.Value, b: ir.Value) -> ir.Value:
    """A quotient of integers of at most 32 bits is never so near an integer that f64 misses it."""
    ib, n = f.ib, lanes_of(a)
    wide = ir.VectorType(F64, n)
    up = ib.uitofp if dtype.kind == "u" else ib.sitofp
    quotient = elementary.rounding(f, "floor", ib.fdiv(up(a, wide), up(b, wide)))
    i64s = ir.VectorType(ir.IntType(64), n)  # i64, since INT_MIN // -1 must wrap
    return ib.trunc(ib.fptosi(quotient, i64s), a.type)


def _literal(value: ir.Value) -> int | None:
    """The integer in all lanes of a literal, or None."""
    if not isinstance(value, ir.Constant):
        return None
    if lanes_of(value) == 1:
        return value.constant if isinstance(value.constant, int) else None
    lanes = value.constant
    if not isinstance(lanes, (list, tuple)):
        return None
    first = lanes[0].constant
    same = isinstance(first, int) and all(lane.constant == first for lane in lanes)
    return first if same else None
