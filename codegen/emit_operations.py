"""LLVM instructions for the operations of the scalar language, on scalars and vectors alike.

`TABLE` is keyed by the names of `operations.py`. An entry gets the frame, the type of the
arguments and their LLVM values, all of one shape, and returns the LLVM value. No entry traps and
none calls the C library, so they may be evaluated for lanes that are masked off.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from ..algo.dtypes import DType
from ..algo.errors import InternalError
from . import elementary
from .emit_division import floordiv, mod
from .emit_half import rounded
from .frame import Frame
from .values import I1, constant, lanes_of, like, suffix

Emit = Callable[..., ir.Value]


def _arithmetic(integer: str, floating: str) -> Emit:
    def emit(f: Frame, dtype: DType, a: ir.Value, b: ir.Value) -> ir.Value:
        if dtype.is_float:
            return rounded(f, dtype, getattr(f.ib, floating)(a, b, flags=f.flags))
        return getattr(f.ib, integer)(a, b)

    return emit


def _compare(symbol: str) -> Emit:
    def emit(f: Frame, dtype: DType, a: ir.Value, b: ir.Value) -> ir.Value:
        if dtype.is_float:
            compare = f.ib.fcmp_unordered if symbol == "!=" else f.ib.fcmp_ordered
            return compare(symbol, a, b)
        compare = f.ib.icmp_signed if dtype.kind == "i" else f.ib.icmp_unsigned
        return compare(symbol, a, b)

    return emit


def _extremum(symbol: str) -> Emit:
    """max or min; NaN in either argument gives NaN, as in NumPy."""

    def emit(f: Frame, dtype: DType, a: ir.Value, b: ir.Value) -> ir.Value:
        ib = f.ib
        if not dtype.is_float:
            compare = ib.icmp_signed if dtype.kind == "i" else ib.icmp_unsigned
            return ib.select(compare(symbol, a, b), a, b)
        if isinstance(a, ir.Constant):  # a literal, which is no NaN: then one instruction does
            a, b = b, a
        if isinstance(b, ir.Constant):
            return ib.select(ib.fcmp_unordered(symbol, a, b), a, b)
        if f.target.extrema:
            name = f"llvm.{'maximum' if symbol == '>' else 'minimum'}.{suffix(a.type)}"
            fn = f.unit.intrinsic(name, a.type, [a.type, a.type])
            # x86 asks of the first whether it is NaN: of what is new, not of what is waited for.
            return ib.call(fn, [b, a], fastmath=("nsz",))
        best = ib.select(ib.fcmp_ordered(symbol, a, b), a, b)
        return ib.select(ib.fcmp_unordered("uno", a, a), a, best)

    return emit


def _div(f: Frame, dtype: DType, a: ir.Value, b: ir.Value) -> ir.Value:
    return rounded(f, dtype, elementary.quotient(f, a, b))


def _neg(f: Frame, dtype: DType, a: ir.Value) -> ir.Value:
    return f.ib.fneg(a) if dtype.is_float else f.ib.neg(a)


def _abs(f: Frame, dtype: DType, a: ir.Value) -> ir.Value:
    if dtype.is_float:
        return elementary.intrinsic(f, "fabs", a)
    if dtype.kind != "i":
        return a
    return f.ib.select(f.ib.icmp_signed("<", a, like(a, 0)), f.ib.neg(a), a)


def _sign(f: Frame, dtype: DType, a: ir.Value) -> ir.Value:
    """-1, 0 or 1; NaN for NaN."""
    ib, zero, one = f.ib, like(a, 0), like(a, 1)
    if dtype.kind == "b":
        return a
    if dtype.kind == "u":
        return ib.select(ib.icmp_unsigned(">", a, zero), one, zero)
    if dtype.kind == "i":
        low = ib.select(ib.icmp_signed("<", a, zero), like(a, -1), zero)
        return ib.select(ib.icmp_signed(">", a, zero), one, low)
    signed = ib.select(ib.fcmp_ordered("<", a, zero), like(a, -1), zero)
    signed = ib.select(ib.fcmp_ordered(">", a, zero), one, signed)
    return ib.select(ib.fcmp_unordered("uno", a, a), a, signed)


def _select(f: Frame, dtype: DType, c: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return f.ib.select(c, a, b)


def _elementary(name: str) -> Emit:
    def emit(f: Frame, dtype: DType, *args: ir.Value) -> ir.Value:
        return rounded(f, dtype, elementary.call(f, name, *args))

    return emit


def _pow(f: Frame, dtype: DType, a: ir.Value, b: ir.Value) -> ir.Value:
    if dtype.is_float:
        return rounded(f, dtype, elementary.power(f, a, b))
    return elementary.integer_power(f, dtype.kind == "i", a, b)


def _not(f: Frame, dtype: DType, a: ir.Value) -> ir.Value:
    return f.ib.xor(a, constant(I1, 1, lanes_of(a)))


def _integer_or_float(name: str) -> Emit:
    """floor or ceil: integers stay."""

    def emit(f: Frame, dtype: DType, a: ir.Value) -> ir.Value:
        return elementary.rounding(f, name, a) if dtype.is_float else a

    return emit


_OF_ALL_TYPES = ("pow", "floordiv", "mod")

TABLE: dict[str, Emit] = {
    "or": lambda f, t, a, b: f.ib.or_(a, b),
    "and": lambda f, t, a, b: f.ib.and_(a, b),
    "not": _not,
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
    "eq": _compare("=="),
    "ne": _compare("!="),
    "add": _arithmetic("add", "fadd"),
    "sub": _arithmetic("sub", "fsub"),
    "mul": _arithmetic("mul", "fmul"),
    "div": _div,
    "floordiv": floordiv,
    "mod": mod,
    "neg": _neg,
    "pow": _pow,
    "min": _extremum("<"),
    "max": _extremum(">"),
    "abs": _abs,
    "sign": _sign,
    "where": _select,
    **{name: _elementary(name) for name in elementary.FUNCTIONS if name not in _OF_ALL_TYPES},
    "floor": _integer_or_float("floor"),
    "ceil": _integer_or_float("ceil"),
}


def apply(f: Frame, name: str, dtype: DType, *args: ir.Value) -> ir.Value:
    """The operation `name` on arguments of type `dtype` (for where: of its branches)."""
    emit = TABLE.get(name)
    if emit is None:
        raise InternalError(f"no code generation for operation {name}")
    return emit(f, dtype, *args)


def bool_arithmetic(name: str) -> str:
    """NumPy's meaning of arithmetic on bool: + and max are or, * and min are and."""
    return {"add": "or", "max": "or", "mul": "and", "min": "and", "sub": "ne"}.get(name, name)
