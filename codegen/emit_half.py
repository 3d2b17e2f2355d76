"""The 16-bit floats: kept as f32 in registers, rounded to nearest even after every operation."""

from __future__ import annotations

import llvmlite.ir as ir

from ..algo.dtypes import DType
from ..algo.errors import UnsupportedError
from .frame import Frame
from .lanes import Lanes
from .values import F32, HALF, constant, lanes_of, like, shaped

I16, I32 = ir.IntType(16), ir.IntType(32)


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
        _supported(f)
        return f.ib.fpext(raw, shaped(F32, n))
    wide = f.ib.zext(raw, shaped(I32, n))
    return f.ib.bitcast(f.ib.shl(wide, like(wide, 16)), shaped(F32, n))


def narrow(f: Frame, dtype: DType, value: ir.Value) -> ir.Value:
    """What memory holds for an f32. NaN stays NaN."""
    ib, n = f.ib, lanes_of(value)
    if dtype.name == "f16":
        _supported(f)
        return ib.fptrunc(value, shaped(HALF, n))
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


def _supported(f: Frame) -> None:
    if not f.target.half:
        raise UnsupportedError(
            "this processor has no instructions for f16 (x86 calls them F16C); use f32 or bf16"
        )
