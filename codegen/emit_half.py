"""The 16-bit floats: kept as f32 in registers, rounded to nearest even after every operation."""

from __future__ import annotations

import llvmlite.ir as ir

from ..algo.dtypes import DType
from .frame import Frame
from .lanes import Lanes
from .values import F32, HALF, I16, constant, lanes_of, like, shaped

I32 = ir.IntType(32)


def rounded(f: Frame, dtype: DType, value: ir.Value) -> ir.Value:
    """Rounds an f32 register to the 16-bit type that it stands for; others stay."""
    return widen(f, dtype, narrow(f, dtype, value)) if is_half(dtype) else value


def is_half(dtype: DType) -> bool:
    """Is it f16 or bf16?"""
    return dtype.is_float and dtype.bits == 16


def widen(f: Frame, dtype: DType, raw: ir.Value) -> ir.Value:
    """The f32 of what memory holds."""
    n = lanes_of(raw)
    if dtype.name == "f16":
        return f.ib.fpext(raw, shaped(F32, n)) if f.target.half else _from_half(f, raw)
    wide = f.ib.zext(raw, shaped(I32, n))
    return f.ib.bitcast(f.ib.shl(wide, like(wide, 16)), shaped(F32, n))


def narrow(f: Frame, dtype: DType, value: ir.Value) -> ir.Value:
    """What memory holds for an f32. NaN stays NaN."""
    ib, n = f.ib, lanes_of(value)
    if dtype.name == "f16":
        return ib.fptrunc(value, shaped(HALF, n)) if f.target.half else _to_half(f, value)
    bits = ib.bitcast(value, shaped(I32, n))
    odd = ib.and_(ib.lshr(bits, like(bits, 16)), like(bits, 1))
    up = ib.add(ib.add(bits, like(bits, 0x7FFF)), odd)
    quiet = ib.or_(bits, like(bits, 0x400000))
    nan = ib.fcmp_unordered("uno", value, value)
    return ib.trunc(ib.lshr(ib.select(nan, quiet, up), like(bits, 16)), shaped(I16, n))


def from_double(f: Frame, value: ir.Value) -> ir.Value:
    """An f64 as an f32 rounded to odd, so that a second rounding is as good as the only one."""
    ib, n = f.ib, lanes_of(value)
    near = ib.fptrunc(value, shaped(F32, n))
    back = ib.fpext(near, value.type)
    bits = ib.bitcast(near, shaped(I32, n))
    size, limit = (Lanes(f.unit, ib, v).abs() for v in (back, value))
    away = size.gt(limit).llvm
    down = ib.sub(bits, ib.zext(away, bits.type))
    exact = ib.fcmp_unordered("==", back, value)
    odd = ib.select(exact, bits, ib.or_(down, constant(I32, 1, n)))
    return ib.bitcast(odd, near.type)


# f16 where the machine does not convert it, by its bits


def _from_half(f: Frame, raw: ir.Value) -> ir.Value:
    """The f32 of an f16: its bits moved into place are too small by a power of two."""
    ib, n = f.ib, lanes_of(raw)
    bits = ib.zext(ib.bitcast(raw, shaped(I16, n)), shaped(I32, n))
    size = ib.and_(bits, like(bits, 0x7FFF))
    sign = ib.shl(ib.xor(bits, size), like(bits, 16))
    moved = ib.shl(size, like(bits, 13))
    finite = ib.fmul(ib.bitcast(moved, shaped(F32, n)), constant(F32, 2.0**112, n))
    beyond = ib.or_(moved, like(bits, 0x7F800000))  # inf and NaN
    fits = ib.icmp_signed("<", size, like(bits, 0x7C00))
    total = ib.select(fits, ib.bitcast(finite, shaped(I32, n)), beyond)
    return ib.bitcast(ib.or_(total, sign), shaped(F32, n))


def _to_half(f: Frame, value: ir.Value) -> ir.Value:
    """The f16 nearest to an f32, ties to even."""
    ib, n = f.ib, lanes_of(value)
    bits = ib.bitcast(value, shaped(I32, n))
    size = ib.and_(bits, like(bits, 0x7FFFFFFF))
    sign = ib.lshr(ib.xor(bits, size), like(bits, 16))
    odd = ib.and_(ib.lshr(size, like(bits, 13)), like(bits, 1))
    up = ib.add(ib.add(size, like(bits, 0xFFF - (112 << 23))), odd)
    normal = ib.lshr(up, like(bits, 13))
    half = constant(F32, 0.5, n)  # whose last place is the least f16
    least = ib.bitcast(ib.fadd(ib.bitcast(size, half.type), half), bits.type)
    subnormal = ib.sub(least, like(bits, 0x3F000000))
    beyond = ib.select(
        ib.icmp_signed(">", size, like(bits, 0x7F800000)),
        ib.or_(ib.and_(ib.lshr(size, like(bits, 13)), like(bits, 0x3FF)), like(bits, 0x7E00)),
        like(bits, 0x7C00),
    )
    total = ib.select(ib.icmp_signed("<", size, like(bits, 113 << 23)), subnormal, normal)
    total = ib.select(ib.icmp_signed("<", size, like(bits, 143 << 23)), total, beyond)
    short = ib.trunc(ib.or_(total, sign), shaped(I16, n))
    return ib.bitcast(short, shaped(HALF, n))
