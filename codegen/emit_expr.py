"""Expressions: typed scalar trees become values, in all lanes of the vector loop around."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace

import llvmlite.ir as ir

from ..algo.dtypes import DType, bool_, i32, i64
from ..algo.errors import InternalError
from ..algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, Index, walk
from . import emit_index, emit_memory
from .emit_half import from_double, is_half, rounded
from .emit_operations import TABLE, apply, bool_arithmetic
from .frame import Frame, Mask
from .spans import fits, span_of
from .values import (
    I1,
    I32,
    I64,
    WHOLE,
    Value,
    constant,
    lanes_of,
    like,
    register_type,
    shaped,
    suffix,
)

_COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")


Steps = Generator[Expr, Value, Value]
"""A computation that yields the expressions whose values it needs, one at a time."""


def value(f: Frame, expr: Expr) -> Value:
    """The value of an expression; equal subexpressions of a statement are computed once.

    Walked with a stack, not by recursion: a generated sum may have thousands of terms.
    """
    answer = f.memo.get(expr)
    if answer is not None:
        return answer
    begun: list[tuple[Expr, Steps]] = [(expr, _value(f, expr))]
    while begun:
        item, steps = begun[-1]
        try:
            needed = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            begun.pop()
            answer = f.memo[item] = end.value
            continue
        answer = f.memo.get(needed)
        if answer is None:
            begun.append((needed, _value(f, needed)))
    assert answer is not None
    return answer


def _value(f: Frame, expr: Expr) -> Steps:
    match expr:
        case Const(number, dtype):
            return _const(number, dtype or i64)
        case Index(name):
            if name not in f.vars:
                raise InternalError(f"loop IR reads {name}, which no loop or let binds")
            return f.vars[name]
        case Access(buffer, indices):
            places = yield from _each(indices)
            return emit_memory.load(f, buffer, tuple(places))
        case Cast(dtype, arg):
            return convert(f, (yield arg), dtype)
        case Call("where", (cond, then, orelse)):
            return (yield from _where(f, cond, then, orelse))
        case Call(op, args):
            return _call(f, str(op), (yield from _each(args)))
    raise InternalError(f"not an expression of loop IR: {expr!r}")


def _each(exprs: Iterable[Expr]) -> Generator[Expr, Value, list[Value]]:
    values = []
    for expr in exprs:
        values.append((yield expr))
    return values


def _const(number: bool | int | float, dtype: DType) -> Value:
    if dtype is i64:
        return Value(i64, None, int(number))
    if not dtype.is_float:
        return Value(dtype, constant(register_type(dtype), int(number)))
    return Value(dtype, constant(register_type(dtype), _nearest(float(number), dtype)))


def _nearest(number: float, dtype: DType) -> float:
    """`number` rounded to a float type, as a Python float."""
    import numpy as np

    if dtype.name != "bf16":
        with np.errstate(over="ignore"):
            return float(dtype.numpy.type(number))
    bits = int(np.float32(number).view(np.uint32))
    if number == number:
        bits += 0x7FFF + (bits >> 16 & 1)
    return float(np.uint32(bits & 0xFFFF0000).view(np.float32))


def _call(f: Frame, op: str, args: list[Value]) -> Value:
    data = any(arg.data for arg in args)
    dtype = args[0].dtype
    if op not in TABLE or any(arg.dtype is not dtype for arg in args):
        raise InternalError(f"{op} of {', '.join(arg.dtype.name for arg in args)} in loop IR")
    if dtype is i64:
        if op in _COMPARE:
            symbolic = emit_index.compare(f, op, args[0], args[1])
        else:
            symbolic = emit_index.arithmetic(f, op, args)
        if symbolic is None:
            symbolic = emit_index.in_lanes(f, op, args)
        if symbolic is not None:
            return symbolic
    varies = any(arg.varies for arg in args)
    llvm = [f.vector(arg) if varies else f.scalar(arg) for arg in args]
    name = bool_arithmetic(op) if dtype is bool_ else op
    result = apply(f, name, dtype, *llvm)
    span = span_of(op, [arg.bounds for arg in args]) if dtype is i64 else WHOLE
    return Value(bool_ if op in _COMPARE else dtype, result, data=data, span=span)


def convert(f: Frame, arg: Value, dtype: DType) -> Value:
    """A cast. Floats to integers truncate and saturate; NaN gives 0."""
    if arg.dtype is dtype:
        return arg
    ib = f.ib
    if arg.dtype is i64 and arg.varies:
        few = emit_index.narrow(f, arg)
        if few is not None:
            return convert(f, Value(i32, few, data=arg.data), dtype)
    llvm = f.vector(arg) if arg.varies else f.scalar(arg)
    if dtype is i64 and not arg.dtype.is_float:
        return _index(f, arg, llvm)
    source, target = arg.dtype, shaped(register_type(dtype), lanes_of(llvm))
    if dtype is bool_:
        if source.is_float:
            result = ib.fcmp_unordered("!=", llvm, like(llvm, 0.0))
        else:
            result = ib.icmp_unsigned("!=", llvm, like(llvm, 0))
    elif source.is_float and dtype.is_float:
        if llvm.type == target:
            result = llvm
        elif dtype.bits == 64:
            result = ib.fpext(llvm, target)
        else:
            result = from_double(f, llvm) if is_half(dtype) else ib.fptrunc(llvm, target)
        result = rounded(f, dtype, result)
    elif dtype.is_float:
        up = ib.sitofp if source.kind == "i" else ib.uitofp
        result = rounded(f, dtype, up(llvm, target))
    elif source.is_float:
        result = _to_integer(f, llvm, dtype)
    elif llvm.type == target:
        result = llvm
    elif dtype.bits < source.bits and source is not bool_:
        result = ib.trunc(llvm, target)
    else:
        result = ib.sext(llvm, target) if source.kind == "i" else ib.zext(llvm, target)
    return Value(dtype, result, data=arg.data)


def _index(f: Frame, arg: Value, llvm: ir.Value) -> Value:
    """An integer of another type as i64, in lanes of 32 bits where all of its type fit."""
    signed, bits = arg.dtype.kind == "i", arg.dtype.bits
    span = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if arg.dtype is bool_:
        span = (0, 1)
    target = shaped(I32 if arg.varies and fits(span) else I64, lanes_of(llvm))
    if llvm.type != target:
        llvm = (f.ib.sext if signed else f.ib.zext)(llvm, target)
    return Value(i64, llvm, data=arg.data, span=span if span[1] <= WHOLE[1] else WHOLE)


def _to_integer(f: Frame, llvm: ir.Value, dtype: DType) -> ir.Value:
    n = lanes_of(llvm)
    target = shaped(register_type(dtype), n)
    kind = "fptosi" if dtype.kind == "i" else "fptoui"
    name = f"llvm.{kind}.sat.{suffix(target)}.{suffix(llvm.type)}"
    return f.ib.call(f.unit.intrinsic(name, target, [llvm.type]), [llvm])


def _where(f: Frame, cond: Expr, then: Expr, orelse: Expr) -> Steps:
    """Guards the branch not taken: memory is read only in lanes whose condition asks for it."""
    c = yield cond
    if c.varies:
        lanes = c.llvm
        yes = Mask(f.narrow(lanes), False)
        no = Mask(f.narrow(f.ib.xor(lanes, constant(I1, 1, f.lanes))), False)
        with f.masked(yes), f.fresh_memo(inherit=True):
            a = yield then
        with f.masked(no), f.fresh_memo(inherit=True):
            b = yield orelse
        if a.dtype is i64:
            few = emit_index.chosen(f, lanes, a, b)
            if few is not None:
                return replace(few, data=_data(c, a, b))
        return Value(a.dtype, f.ib.select(lanes, f.vector(a), f.vector(b)), data=_data(c, a, b))
    if _reads(then) or _reads(orelse):
        return (yield from _branch(f, c, then, orelse))
    a, b = (yield then), (yield orelse)
    varies = a.varies or b.varies
    x, y = (f.vector(v) if varies else f.scalar(v) for v in (a, b))
    return Value(a.dtype, f.ib.select(f.scalar(c), x, y), data=_data(c, a, b))


def _branch(f: Frame, c: Value, then: Expr, orelse: Expr) -> Steps:
    ib = f.ib
    yes, no, after = (f.block(name) for name in ("where.then", "where.else", "where.end"))
    ib.cbranch(f.scalar(c), yes, no)
    ends = []
    for block, expr in ((yes, then), (no, orelse)):
        ib.position_at_end(block)
        with f.fresh_memo(inherit=True):
            v = yield expr
            llvm = f.vector(v)
        ends.append((v, llvm, ib.block))
        ib.branch(after)
    ib.position_at_end(after)
    (a, x, from_yes), (b, y, from_no) = ends
    phi = ib.phi(x.type)
    phi.add_incoming(x, from_yes)
    phi.add_incoming(y, from_no)
    return Value(a.dtype, phi, data=_data(c, a, b))


def _data(*values: Value) -> bool:
    return any(v.data for v in values)


def _reads(expr: Expr) -> bool:
    return any(isinstance(item, Access) for item in walk(expr))
