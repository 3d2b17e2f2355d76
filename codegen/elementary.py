"""Elementary functions as our own code, scalar or vector: the C library is never called.

Each is an internal LLVM function, made when first used, of one type and number of lanes. Results
are within 2 units in the last place of the exact value for f32 and f64, whatever the argument.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from . import (
    elementary_erf,
    elementary_exp,
    elementary_log,
    elementary_pow,
    elementary_quotient,
    elementary_root,
    elementary_tanh,
    elementary_trig,
)
from .elementary_constant_power import GREATEST, constant_power, product_of
from .elementary_mod import divide, modulo
from .frame import Frame, Unit
from .lanes import Lanes
from .values import F64, number_of

FUNCTIONS: dict[str, Callable[..., Lanes]] = {
    "sqrt": elementary_root.sqrt,
    "rsqrt": elementary_root.rsqrt,
    "cbrt": elementary_root.cbrt,
    "exp": elementary_exp.exp,
    "exp2": elementary_exp.exp2,
    "expm1": elementary_exp.expm1,
    "log": elementary_log.log,
    "log2": elementary_log.log2,
    "log1p": elementary_log.log1p,
    "tanh": elementary_tanh.tanh,
    "sigmoid": elementary_exp.sigmoid,
    "softplus": elementary_log.softplus,
    "erf": elementary_erf.erf,
    "sin": elementary_trig.sin,
    "cos": elementary_trig.cos,
    "pow": elementary_pow.power,
    "floordiv": divide,
    "mod": modulo,
}


def call(f: Frame, name: str, *args: ir.Value) -> ir.Value:
    """The value of a function of `FUNCTIONS` for floats in registers."""
    fn = _function(f.unit, name, [arg.type for arg in args])
    return f.ib.call(fn, args)


def _function(unit: Unit, name: str, types: list[ir.Type]) -> ir.Function:
    return _made(unit, name, types, FUNCTIONS[name])


def _made(unit: Unit, name: str, types: list[ir.Type], body: Callable[..., Lanes]) -> ir.Function:
    kind = "f64" if (types[0].element if lanes(types[0]) > 1 else types[0]) == F64 else "f32"
    short = kind if lanes(types[0]) == 1 else f"v{lanes(types[0])}{kind}"
    key = ("elementary", name, short)
    if key not in unit.functions:
        fn = ir.Function(unit.module, ir.FunctionType(types[0], types), f"dt.{name}.{short}")
        fn.linkage = "internal"
        fn.attributes.add("inlinehint")
        unit.functions[key] = fn
        ib = ir.IRBuilder(fn.append_basic_block("entry"))
        ib.ret(body(*[Lanes(unit, ib, arg) for arg in fn.args]).llvm)
    return unit.functions[key]


def lanes(typ: ir.Type) -> int:
    """The number of lanes of a type."""
    return int(typ.count) if isinstance(typ, ir.VectorType) else 1


def intrinsic(f: Frame, name: str, *args: ir.Value) -> ir.Value:
    """A call of an LLVM intrinsic that is an instruction on the target, overloaded on its type."""
    first, *others = (Lanes(f.unit, f.ib, arg) for arg in args)
    return first.call(name, *others).llvm


def rounding(f: Frame, name: str, a: ir.Value) -> ir.Value:
    """floor or ceil of floats."""
    return Lanes(f.unit, f.ib, a).round(name).llvm


def floor_divide(f: Frame, a: ir.Value, b: ir.Value) -> ir.Value:
    """a // b of floats."""
    return call(f, "floordiv", a, b)


def remainder(f: Frame, a: ir.Value, b: ir.Value) -> ir.Value:
    """a % b of floats."""
    return call(f, "mod", a, b)


def power(f: Frame, a: ir.Value, b: ir.Value) -> ir.Value:
    """a ** b of floats."""
    number = number_of(b)
    found = None if number is None else constant_power(Lanes(f.unit, f.ib, a), number)
    return call(f, "pow", a, b) if found is None else found.llvm


def quotient(f: Frame, a: ir.Value, b: ir.Value) -> ir.Value:
    """a / b of floats, rounded correctly."""
    c = number_of(b)
    if c is None or not elementary_quotient.pays(Lanes(f.unit, f.ib, a), c):
        return f.ib.fdiv(a, b)
    fn = _made(f.unit, f"over{c!r}", [a.type], lambda x: elementary_quotient.quotient(x, c))
    return f.ib.call(fn, [a])


def integer_power(f: Frame, signed: bool, a: ir.Value, b: ir.Value) -> ir.Value:
    """a ** b of integers."""
    number = number_of(b)
    if number is not None and 0 <= number <= GREATEST:
        return product_of(Lanes(f.unit, f.ib, a), int(number)).llvm
    return elementary_pow.integer_power(f.unit, f.ib, signed, a, b)
