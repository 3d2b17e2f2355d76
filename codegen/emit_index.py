"""Index arithmetic: i64 values stay `llvm + bias + step * lane` wherever they can.

Where lanes are unrelated they are computed in 32 bits, if arguments and result are known to fit.
"""

from __future__ import annotations

import llvmlite.ir as ir

from ..algo.dtypes import bool_, i32, i64, u32, u64
from .emit_operations import apply
from .frame import Frame
from .spans import fits, joined, span_of
from .values import I32, I64, Value, is_vector, like

LIMIT = 1 << 30
_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def arithmetic(f: Frame, op: str, args: list[Value]) -> Value | None:
    """The operation on symbolic i64 values, or None where it needs instructions."""
    if any(x.llvm is not None and is_vector(x.llvm) for x in args):
        return None
    a, b = args[0], args[-1]
    match op:
        case "add":
            return _sum(f, a, b)
        case "sub":
            return difference(f, a, b)
        case "neg":
            return scaled(f, a, -1)
        case "mul" if b.constant is not None:
            return scaled(f, a, b.constant)
        case "mul" if a.constant is not None:
            return scaled(f, b, a.constant)
    x, y = a.constant, b.constant
    if x is None or y is None:
        return None
    match op:
        case "min" | "max":
            return Value(i64, None, min(x, y) if op == "min" else max(x, y))
        case "floordiv" | "mod":
            quotient, rest = divmod(x, y) if y else (0, 0)
            return Value(i64, None, quotient if op == "floordiv" else rest)
    return None


def scaled(f: Frame, a: Value, factor: int) -> Value:
    """a times a constant"""
    if a.llvm is None or factor == 1:
        base = a.llvm
    elif factor == 0:
        return Value(i64, None, data=a.data)
    else:
        base = f.ib.mul(a.llvm, like(a.llvm, factor))
    span = span_of("mul", [a.bounds, (factor, factor)])
    return Value(i64, base, a.bias * factor, a.step * factor, a.data, span)


def _sum(f: Frame, a: Value, b: Value) -> Value:
    if a.llvm is None or b.llvm is None:
        base = b.llvm if a.llvm is None else a.llvm
    else:
        base = f.ib.add(a.llvm, b.llvm)
    span = span_of("add", [a.bounds, b.bounds])
    return Value(i64, base, a.bias + b.bias, a.step + b.step, a.data or b.data, span)


def difference(f: Frame, a: Value, b: Value) -> Value:
    """a - b, of symbolic values"""
    if a.llvm is b.llvm:
        base = None
    elif b.llvm is None:
        base = a.llvm
    else:
        base = f.ib.sub(like(b.llvm, 0) if a.llvm is None else a.llvm, b.llvm)
    span = span_of("sub", [a.bounds, b.bounds])
    return Value(i64, base, a.bias - b.bias, a.step - b.step, a.data or b.data, span)


def added(f: Frame, a: Value, b: Value) -> Value:
    """a + b, of symbolic values"""
    return _sum(f, a, b)


def compare(f: Frame, op: str, a: Value, b: Value) -> Value | None:
    """A comparison of symbolic values that differ between lanes, in lanes of 32 bits.

    step * lane OP d, where d = b - a at lane 0 is the same for all lanes: brought into the range
    of 32 bits it keeps its order to the few values of step * lane.
    """
    if any(x.llvm is not None and is_vector(x.llvm) for x in (a, b)):
        return None
    step = a.step - b.step
    if not step or abs(step) * f.lanes >= LIMIT:
        return None
    d = f.scalar(difference(f, Value(i64, b.llvm, b.bias), Value(i64, a.llvm, a.bias)))
    for limit, symbol in ((LIMIT, "<"), (-LIMIT, ">")):
        edge = I64(limit)
        d = f.ib.select(f.ib.icmp_signed(symbol, d, edge), d, edge)
    lanes = ir.VectorType(I32, f.lanes)([I32(step * lane) for lane in range(f.lanes)])
    found = f.ib.icmp_signed(_SIGNS[op], lanes, f.splat(f.ib.trunc(d, I32)))
    return Value(bool_, found, data=a.data or b.data)


# Unrelated lanes


def narrow(f: Frame, value: Value) -> ir.Value | None:
    """The lanes of an i64 in 32 bits; None where it may not fit, or is held in 64."""
    if value.llvm is not None and is_vector(value.llvm):
        return value.llvm if value.llvm.type.element == I32 else None
    return truncated(f, value) if fits(value.bounds) else None


def truncated(f: Frame, value: Value) -> ir.Value:
    """The lanes of a symbolic value modulo 2**32."""
    numbers = [_wrap(value.bias + value.step * lane) for lane in range(f.lanes)]
    steps = ir.VectorType(I32, f.lanes)([I32(n) for n in numbers])
    if value.llvm is None:
        return steps
    wide = f.splat(f.ib.trunc(value.llvm, I32))
    return f.ib.add(wide, steps) if value.bias or value.step else wide


def in_lanes(f: Frame, op: str, args: list[Value]) -> Value | None:
    """The operation in lanes of 32 bits, or on what cannot be negative; None if it is neither."""
    data = any(arg.data for arg in args)
    bounds = [arg.bounds for arg in args]
    positive = op in ("floordiv", "mod") and bounds[0][0] >= 0 and bounds[1][0] > 0
    span = span_of(op, bounds)
    if not any(arg.varies for arg in args):
        if not positive:
            return None
        return Value(i64, apply(f, op, u64, *map(f.scalar, args)), data=data, span=span)
    found = [narrow(f, arg) for arg in args]
    if any(lanes is None for lanes in found):
        return None
    if op in _SIGNS:
        return Value(bool_, f.ib.icmp_signed(_SIGNS[op], *found), data=data)
    if not fits(span):
        return None
    return Value(i64, apply(f, op, u32 if positive else i32, *found), data=data, span=span)


def chosen(f: Frame, lanes: ir.Value, a: Value, b: Value) -> Value | None:
    """a where `lanes` hold, else b, in 32 bits."""
    x, y = narrow(f, a), narrow(f, b)
    if x is None or y is None:
        return None
    data = a.data or b.data
    return Value(i64, f.ib.select(lanes, x, y), data=data, span=joined(a.bounds, b.bounds))


def _wrap(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31
