"""Index arithmetic: i64 values stay `llvm + bias + step * lane` wherever they can."""

from __future__ import annotations

import llvmlite.ir as ir

from ..algo.dtypes import bool_, i64
from .frame import Frame
from .values import I32, I64, Value, is_vector, like

LIMIT = 1 << 30


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


def added(f: Frame, a: Value, b: Value) -> Value:
    """a + b"""
    if any(x.llvm is not None and is_vector(x.llvm) for x in (a, b)):
        return Value(i64, f.ib.add(f.vector(a), f.vector(b)), data=a.data or b.data)
    return _sum(f, a, b)


def scaled(f: Frame, a: Value, factor: int) -> Value:
    """a times a constant"""
    if a.llvm is None or factor == 1:
        base = a.llvm
    elif factor == 0:
        return Value(i64, None, data=a.data)
    else:
        base = f.ib.mul(a.llvm, like(a.llvm, factor))
    return Value(i64, base, a.bias * factor, a.step * factor, a.data)


def multiplied(f: Frame, a: Value, b: Value) -> Value:
    """a times a value that is the same in all lanes"""
    if b.constant is not None:
        return scaled(f, a, b.constant)
    factor = f.scalar(b)
    if a.varies:
        return Value(i64, f.ib.mul(f.vector(a), f.splat(factor)), data=a.data)
    return Value(i64, f.ib.mul(f.scalar(a), factor), data=a.data)


def _sum(f: Frame, a: Value, b: Value) -> Value:
    if a.llvm is None or b.llvm is None:
        base = b.llvm if a.llvm is None else a.llvm
    else:
        base = f.ib.add(a.llvm, b.llvm)
    return Value(i64, base, a.bias + b.bias, a.step + b.step, a.data or b.data)


def difference(f: Frame, a: Value, b: Value) -> Value:
    """a - b, of symbolic values"""
    if a.llvm is b.llvm:
        base = None
    elif b.llvm is None:
        base = a.llvm
    else:
        base = f.ib.sub(like(b.llvm, 0) if a.llvm is None else a.llvm, b.llvm)
    return Value(i64, base, a.bias - b.bias, a.step - b.step, a.data or b.data)


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
    signs = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
    found = f.ib.icmp_signed(signs[op], lanes, f.splat(f.ib.trunc(d, I32)))
    return Value(bool_, found, data=a.data or b.data)
