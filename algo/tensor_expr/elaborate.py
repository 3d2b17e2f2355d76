"""Expressions with every conversion made explicit: the rules of promotion, operation by operation.

Promotion is NumPy 2's. Literals are weak, and so are indices and sizes used as values, and sums
and products of these: they behave like Python numbers, which take the type of their partner
(NEP 50), and become i64, f64 or bool where they meet none.

In a typed expression both arguments of an operation have the same type and every `Const` has a
dtype, except in index arithmetic (index positions, ranges, comparisons of indices): that is i64
throughout, its constants stay without a dtype, and data read there is cast to i64.

A reduction that widens (i8 to i32, f16 to f32) computes the sums and products at the top of its
body in the accumulator's type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..dtypes import DType, bool_, f32, f64, i64, promote, promote_weak, u64
from ..errors import DTypeError, shortly
from .affine import is_integer
from .binding import map_outermost
from .expr import (
    Access,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    Size,
    children,
    rebuild,
    substitute,
    transform,
    walk,
)
from .folds import Part
from .operations import ERASED, OPERATIONS
from .printer import print_expr
from .reducers import EXTREMES, REDUCERS
from .scalar import Scalar

Env = Mapping[str, DType]


def elaborate(expr: Expr, env: Env) -> Expr:
    """The typed form of an expression over tensors of the types in `env`."""
    typed = typed_value(expr, env)
    return typed.expr if isinstance(typed.type, DType) else _settle(typed)


def elaborate_index(expr: Expr, env: Env) -> Expr:
    """The typed form of an expression in an index position: i64 throughout."""
    values: dict[Expr, Expr] = {}  # of their own; an index holds their place meanwhile

    def held(value: Expr) -> Expr:
        place = Index(f"#{len(values)}")
        values[place] = _value_as_index(value, env)
        return place

    def is_value(item: Expr) -> bool:
        if isinstance(item, Cast) and item.dtype.is_int:
            kind = typed_value(item.arg, env).type
            return isinstance(kind, DType) and kind.is_float
        return isinstance(item, Reduce)

    def rule(item: Expr) -> Expr:
        if isinstance(item, Access):
            dtype = env.get(item.tensor, i64)  # in a recurrence it may not be known yet
            if not dtype.is_int:
                shown = print_expr(item)
                helps = f", as i64({shown}) is" if dtype.is_float else ""
                raise DTypeError(
                    f"{item.tensor} is {dtype}, but {shown} is used as an index; "
                    f"indices are integers{helps}"
                )
            if dtype is u64:  # what i64 does not hold is beyond every end, not before it
                return Cast(i64, Call("min", (item, GREATEST)))
            return item if dtype is i64 else Cast(i64, item)
        if isinstance(item, Cast) and not (item.dtype is i64 and isinstance(item.arg, Access)):
            return item.arg if item.dtype is i64 else Cast(i64, item)
        if isinstance(item, Call) and item.op in ERASED:
            number = ERASED[str(item.op)]
            return item.args[0] if number is None else Const(number)
        if isinstance(item, Call) and isinstance(item.op, Scalar):
            return item.op.expanded(item.args)
        return item

    return substitute(transform(map_outermost(expr, is_value, held), rule), values)


def _value_as_index(value: Expr, env: Env) -> Expr:
    typed = elaborate(value, env)
    dtype = dtype_of(typed, env)
    if not dtype.is_int:
        raise DTypeError(
            f"{print_expr(value)} is {dtype}, but it is used as an index; indices are integers"
        )
    return typed if dtype is i64 else Cast(i64, typed)


def elaborate_condition(expr: Expr, env: Env) -> Expr:
    """The typed form of a condition, of type bool."""
    return _as_bool(typed_value(expr, env))


def cast(typed: Expr, dtype: DType, env: Env) -> Expr:
    """A typed expression converted to a type, itself if it has it."""
    return typed if dtype_of(typed, env) is dtype else Cast(dtype, typed)


def dtype_of(typed: Expr, env: Env) -> DType:
    """The type of a typed expression."""
    while True:
        match typed:
            case Const(value, None):
                return (
                    bool_ if isinstance(value, bool) else f64 if isinstance(value, float) else i64
                )
            case Const(_, DType() as dtype) | Cast(dtype, _):
                return dtype
            case Index() | Size():
                return i64
            case Access(tensor, _):
                return env[tensor]
            case Reduce(reducer, _, body, _, _, dtype):
                if reducer in EXTREMES:
                    return i64
                if dtype is not None:
                    return dtype
                assert isinstance(reducer, str)  # a user's has its type
                return REDUCERS[reducer].accumulator(dtype_of(body, env))
            case Call(op, args):
                if OPERATIONS[str(op)].result == "bool":
                    return bool_
                typed = args[-1]
            case _:
                raise TypeError(f"no value: {typed!r}")


# A weak value is typed by the Python type that it would have: bool, int or float. NoneType stands
# for an element of the very tensor whose type is being found: it promotes to anything.
Kind = DType | type


@dataclass(frozen=True, slots=True)
class Value:
    expr: Expr
    type: Kind


def typed_value(expr: Expr, env: Env) -> Value:
    done: dict[Expr, Value] = {}
    for item in walk(expr, parts=_parts):
        done[item] = _value(item, [done[part] for part in _parts(item)], env)
    return done[expr]


def _parts(expr: Expr) -> tuple[Expr, ...]:
    """The children that are values themselves."""
    if isinstance(expr, Reduce):
        return (expr.body,)
    return () if isinstance(expr, (Access, Range)) else children(expr)


def _value(item: Expr, parts: list[Value], env: Env) -> Value:
    match item:
        case Const(value, None):
            return Value(item, type(value))
        case Const(_, DType() as dtype):
            return Value(item, dtype)
        case Index() | Size():
            return Value(item, int)
        case Access(tensor, indices):
            read = Access(tensor, tuple(elaborate_index(i, env) for i in indices))
            return Value(read, env.get(tensor, type(None)))
        case Cast(dtype, _):
            return Value(_to(parts[0], dtype), dtype)
        case Reduce():
            return _reduction(item, parts[0], env)
        case Call(op, _):
            if isinstance(op, Scalar):
                return _expanded(op, parts, env)
            return _erased(op, parts[0]) if op in ERASED else _operation(op, parts)
    raise TypeError(f"no value: {item!r}")


def _erased(op: str, part: Value) -> Value:
    """What a call of an operation means once types are known: its argument, or a number."""
    number = ERASED[op]
    if number is None:
        return part
    if isinstance(part.type, DType):
        return Value(_literal(number, part.type), part.type)
    return Value(Const(number if part.type is type(None) else part.type(number)), part.type)


def _expanded(function: Scalar, parts: list[Value], env: Env) -> Value:
    """A call of a function of the user's own: what it is, of arguments of these types."""
    done: dict[Expr, Value] = {
        Access(p, ()): part for p, part in zip(function.params, parts, strict=True)
    }
    for item in walk(function.body, parts=_parts):
        if item not in done:
            done[item] = _value(item, [done[part] for part in _parts(item)], env)
    return done[function.body]


def _reduction(item: Reduce, body: Value, env: Env) -> Value:
    where = None if item.where is None else elaborate_condition(item.where, env)
    if item.reducer in EXTREMES:
        value = body.expr if isinstance(body.type, DType) else _settle(body)
        return Value(Reduce(item.reducer, item.indices, value, item.ranges, where), i64)
    if body.type is type(None):
        return body
    if isinstance(item.reducer, Part):
        from .fold_types import result_types, typed_part  # which needs this file

        found = result_types(item.reducer.fold, (item.body,), env)
        assert found is not None
        return Value(typed_part(item, found[0], env), found[0])
    reducer = REDUCERS[item.reducer]
    own = bool_ if reducer.accumulator(bool_) is bool_ and item.reducer in ("any", "all") else None
    dtype = own or (body.type if isinstance(body.type, DType) else NATIVE[body.type])
    acc = item.dtype or reducer.accumulator(dtype)
    result = item.dtype or reducer.result(dtype)
    inner = _as_bool(body) if own else widened(body, acc)
    reduced = Reduce(item.reducer, item.indices, inner, item.ranges, where, acc)
    return Value(reduced if result is acc else Cast(result, reduced), result)


def widened(body: Value, acc: DType) -> Expr:
    """The body in the accumulator's type; sums and products at its top are computed in it.

    So `sum(A[i,k] * B[k,j])` of i8 multiplies in i32, and of f16 in f32.
    """
    if not isinstance(body.type, DType) or body.type is acc:
        return _to(body, acc)
    if body.type.kind != acc.kind and not (body.type.is_int and acc.is_int):
        return _to(body, acc)
    narrow = body.type

    def computed(expr: Expr) -> tuple[Expr, ...]:
        match expr:
            case Call("add" | "sub" | "mul" | "neg", args) | Call("where", (_, *args)):
                return tuple(args)
        return ()

    def wide(expr: Expr) -> Expr:
        match expr:
            case Const(value, _):
                return _literal(value, acc)
            case Cast(dtype, arg) if dtype is narrow and isinstance(arg, (Index, Size)):
                return Cast(acc, arg)
        return Cast(acc, expr)

    return _rewritten(body.expr, computed, wide)


def _rewritten(
    expr: Expr, parts: Callable[[Expr], tuple[Expr, ...]], rule: Callable[[Expr], Expr]
) -> Expr:
    """An expression with `rule` applied to what has no `parts`; the other children stay."""
    done: dict[Expr, Expr] = {}
    for item in walk(expr, parts=parts):
        inner = parts(item)
        stay = len(children(item)) - len(inner)
        new = (*children(item)[:stay], *(done[part] for part in inner))
        done[item] = rebuild(item, new) if inner else rule(item)
    return done[expr]


def _operation(op: str, parts: list[Value]) -> Value:
    operation = OPERATIONS[op]
    if op in ("and", "or", "not"):
        return Value(Call(op, tuple(_truth(op, p) for p in parts)), bool_)
    operands = parts[1:] if operation.result == "arg1" else parts
    common = _common(op, operands)
    if operation.result == "float" and not _is_float(common):
        common = float if isinstance(common, type) else _float_of(common)
    if common is type(None):
        return Value(Call(op, tuple(p.expr for p in parts)), common)
    if common is bool_ and operation.result == "same":
        return _on_bools(op, parts)
    untyped = isinstance(common, type)
    if untyped and all(is_integer(p.expr) for p in operands) and common is int:
        args = [p.expr for p in operands]  # index arithmetic, or a comparison of indices
    else:
        dtype = NATIVE[common] if isinstance(common, type) else common
        args = [_to(p, dtype) for p in operands]
    if op == "pow" and (common is int or (isinstance(common, DType) and common.is_int)):
        _check_power(args[1])
    if operation.result == "arg1":
        args.insert(0, _as_bool(parts[0]))
    return Value(Call(op, tuple(args)), bool_ if operation.result == "bool" else common)


def _check_power(exponent: Expr) -> None:
    """Refuses a power of integers that is a negative number, as NumPy does."""
    if isinstance(exponent, Const) and exponent.value < 0:
        raise DTypeError(
            f"** {exponent.value} of integers is no integer; cast what is raised to a float"
        )


def _truth(op: str, part: Value) -> Expr:
    """An operand of `&`, `|` or `~`. Numbers are refused: NumPy would join their bits."""
    if part.type not in (bool_, bool, type(None)):
        symbol, shown = OPERATIONS[op].symbol, print_expr(part.expr)
        kind = part.type if isinstance(part.type, DType) else NATIVE[part.type]
        raise DTypeError(
            f"{symbol} takes conditions, and {shown} is {kind}; for whether it is not zero write "
            f"{shown} != 0"
        )
    return _as_bool(part)


def _on_bools(op: str, parts: list[Value]) -> Value:
    """NumPy's meaning of arithmetic on truth values."""
    as_logic = {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(op)
    if op == "abs":
        return parts[0]
    if as_logic is None:
        symbol = OPERATIONS[op].symbol or op
        raise DTypeError(f"{symbol} of bool is not defined; cast it to a number")
    return Value(Call(as_logic, tuple(_as_bool(p) for p in parts)), bool_)


GREATEST = Const(2**63 - 1, u64)
"""What i64 holds at most: an index of u64 is taken as no more than this."""
NATIVE: dict[type, DType] = {bool: bool_, int: i64, float: f64}
_RANK: dict[type, int] = {type(None): 0, bool: 1, int: 2, float: 3}


def _common(op: str, operands: Iterable[Value]) -> Kind:
    common: Kind = type(None)
    for part in operands:
        try:
            common = joined(common, part.type)
        except DTypeError as err:
            raise DTypeError(f"{OPERATIONS[op].symbol or op}: {err}") from None
    if common is bool and op in ("add", "sub", "mul", "neg"):
        return int  # as in Python
    return common


def joined(a: Kind, b: Kind) -> Kind:
    if isinstance(a, DType) and isinstance(b, DType):
        return promote(a, b)
    if isinstance(a, type) and isinstance(b, type):
        return a if _RANK[a] >= _RANK[b] else b
    strong, weak = (a, b) if isinstance(a, DType) else (b, a)
    assert isinstance(strong, DType) and isinstance(weak, type)
    return strong if weak is type(None) else promote_weak(strong, weak(0))


def _is_float(kind: Kind) -> bool:
    return kind.is_float if isinstance(kind, DType) else kind in (float, type(None))


def _float_of(dtype: DType) -> DType:
    return f32 if dtype.bits <= 16 else f64


def _to(value: Value, dtype: DType) -> Expr:
    """A value as a typed expression of a type."""
    if isinstance(value.type, DType):
        return value.expr if value.type is dtype else Cast(dtype, value.expr)
    return _weak(value.expr, value.type, dtype)


def _weak(expr: Expr, kind: type, dtype: DType) -> Expr:
    """Literals take the type, those in branches that were given their native one too."""
    native = NATIVE.get(kind, i64)

    def branches(item: Expr) -> tuple[Expr, ...]:
        return item.args[1:] if isinstance(item, Call) and item.op == "where" else ()

    def rule(item: Expr) -> Expr:
        match item:
            case Const(value, _):
                return _literal(value, dtype)
            case Call("neg", (Const(value, _),)) if not isinstance(value, bool):
                return _literal(-value, dtype)
        return item if native is dtype else Cast(dtype, item)

    return _rewritten(expr, branches, rule)


def _literal(value: bool | int | float, dtype: DType) -> Const:
    if dtype is bool_:
        return Const(bool(value), bool_)
    if dtype.is_float:
        try:
            return Const(float(value), dtype)
        except OverflowError:
            raise DTypeError(f"{shortly(value)} is beyond what {dtype} holds") from None
    if isinstance(value, float):
        raise DTypeError(f"{value} is no {dtype}")
    info = np.iinfo(dtype.numpy)
    if not info.min <= value <= info.max:
        raise DTypeError(
            f"{shortly(value)} does not fit {dtype}, which holds {info.min} to {info.max}; "
            "cast what it is combined with to a wider type"
        )
    return Const(int(value), dtype)


def _settle(value: Value) -> Expr:
    assert isinstance(value.type, type)
    return _to(value, NATIVE.get(value.type, i64))


def _as_bool(value: Value) -> Expr:
    if value.type is bool_:
        return value.expr
    if isinstance(value.expr, Const):
        return Const(bool(value.expr.value), bool_)
    if value.type is bool:
        return value.expr
    if value.type is int and is_integer(value.expr):
        return Call("ne", (value.expr, Const(0)))
    typed = value.expr if isinstance(value.type, DType) else _settle(value)
    dtype = value.type if isinstance(value.type, DType) else NATIVE.get(value.type, i64)
    return Call("ne", (typed, _literal(0, dtype)))
