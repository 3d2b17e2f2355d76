"""Elementary functions."""

from __future__ import annotations

import llvmlite.ir as ir

from .frame import Frame
from .values import is_vector


def intrinsic(f: Frame, name: str, *args: ir.Value) -> ir.Value:
    """A call of an LLVM intrinsic that is one instruction here, overloaded on its arguments."""
    typ = args[0].type
    short = f"v{typ.count}" if is_vector(args[0]) else ""
    scalar = typ.element if is_vector(args[0]) else typ
    short += "f32" if isinstance(scalar, ir.FloatType) else "f64"
    fn = f.unit.intrinsic(f"llvm.{name}.{short}", typ, [typ] * len(args))
    return f.ib.call(fn, args)


def rounding(f: Frame, name: str, a: ir.Value) -> ir.Value:
    """floor, ceil"""
    return intrinsic(f, name, a)
