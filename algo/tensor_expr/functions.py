"""The functions of traced code: reductions, elementwise operations, casts.

Those that share a name with a builtin pass plain Python values on to it, so that
`from diptych import sum, max` leaves a user's other code as it was.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from .binding import OPEN
from .expr import Call, Cast, Const, Expr, Index, Range, Reduce, walk
from .folds import Part
from .operations import OPERATIONS
from .refusing import error
from .scalar import Scalar
from .surface import typed
from .terms import IndexTerm, Ranged, Term, Value, binary, to_dtype, to_expr

_NOTHING: Any = object()


def sum(e: Any, /, *args: Any, **options: Any) -> Any:
    """The sum of `e` over the indices that are not on the left, or `over=`, where `where=`.

    `dtype=` sets the accumulator's type. Plain Python values go to the builtin.
    """
    if isinstance(e, Term):
        return _reduce("sum", e, args, **options)
    e = list(e) if isinstance(e, Iterator) else e
    items = _terms(e)
    if items is not None and not args and not options:
        return functools.reduce(lambda a, b: binary("add", a, b), items)
    return builtins.sum(e, *args, **options)


def prod(e: Any, /, *, over: Any = None, where: Any = None, dtype: Any = None) -> Any:
    """The product of `e`; options as for `sum`."""
    return _reduce("prod", e, (), over, where, dtype)


def max(e: Any, /, *args: Any, **options: Any) -> Any:
    """Of one term its maximum over indices (options as for `sum`), of several the greatest.

    NaN wins. Plain Python values go to the builtin.
    """
    return _extreme("max", builtins.max, e, args, options)


def min(e: Any, /, *args: Any, **options: Any) -> Any:
    """Of one term its minimum over indices (options as for `sum`), of several the least.

    NaN wins. Plain Python values go to the builtin.
    """
    return _extreme("min", builtins.min, e, args, options)


def any(e: Any, /, **options: Any) -> Any:
    """Whether `e` holds for some index; options as for `sum`. Plain values go to the builtin."""
    return _reduce("any", e, (), **options) if isinstance(e, Term) else builtins.any(e, **options)


def all(e: Any, /, **options: Any) -> Any:
    """Whether `e` holds for every index; options as for `sum`. Plain values go to the builtin."""
    return _reduce("all", e, (), **options) if isinstance(e, Term) else builtins.all(e, **options)


def argmax(e: Any, /, *, over: Any = None, where: Any = None) -> Any:
    """The index, an i64, at which `e` is greatest: the first of ties, or of NaNs, which win.

    Options as for `sum`; there is one index to reduce over. Where none is left, the greatest i64.
    """
    return _reduce("argmax", e, (), over, where)


def argmin(e: Any, /, *, over: Any = None, where: Any = None) -> Any:
    """The index, an i64, at which `e` is least: the first of ties, or of NaNs, which win.

    Options as for `sum`; there is one index to reduce over. Where none is left, the greatest i64.
    """
    return _reduce("argmin", e, (), over, where)


def _reduce(
    reducer: str,
    e: Any,
    args: tuple[Any, ...],
    over: Any = None,
    where: Any = None,
    dtype: Any = None,
) -> Term:
    if args:
        raise error(f"{reducer} takes one expression, got {1 + len(args)}; indices go in over=")
    return reduction(reducer, e, over, where, dtype)


def reduction(
    reducer: str | Part, e: Any, over: Any = None, where: Any = None, dtype: Any = None
) -> Term:
    """The reduction of a term by a reducer of the language or a component of a user's own."""
    own: tuple[str, ...] = OPEN
    ranges: tuple[Range, ...] = ()
    if over is not None:
        items = over if isinstance(over, tuple | list) else (over,)
        own = tuple(map(_index_name, items))
        ranges = tuple(item.range for item in items if isinstance(item, Ranged))
        for name in own:
            if own.count(name) > 1:
                raise error(f"index {name} is listed twice in over=")
    condition = None if where is None else to_expr(where)
    kind = None if dtype is None else to_dtype(dtype)
    return Value(Reduce(reducer, own, to_expr(e), ranges, condition, kind))


def _index_name(item: Any) -> str:
    if isinstance(item, Ranged):
        return item.range.index
    if isinstance(item, IndexTerm) and isinstance(item.expr, Index):
        return item.expr.name
    raise error(f"over= takes indices such as k or k.within(0, 3), got {item!r}")


def _extreme(
    name: str, builtin: Any, e: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    if isinstance(e, Term) and not args:
        return _reduce(name, e, (), **options)
    e = list(e) if isinstance(e, Iterator) else e
    terms = [e, *args] if args else _terms(e)
    if terms is not None and builtins.any(isinstance(t, Term) or _owner(t) for t in terms):
        if options:
            raise error(f"{name} of several values takes no {next(iter(options))}=")
        return functools.reduce(lambda a, b: _apply(name, a, b), terms)
    return builtin(e, *args, **options)


def _terms(values: Any) -> list[Any] | None:
    """The items of a list or tuple that holds a term; None for anything else."""
    if isinstance(values, list | tuple) and builtins.any(isinstance(v, Term) for v in values):
        return list(values)
    return None


def _owner(value: Any) -> Any:
    """How a value of another layer applies an operation: graph values have `__operation__`."""
    return getattr(value, "__operation__", None)


def _apply(name: str, *args: Any) -> Any:
    """An operation of the table; of plain numbers alone, its value."""
    for arg in args:
        operation = _owner(arg)
        if operation is not None:
            return operation(name, *args)
    if builtins.all(isinstance(arg, bool | int | float) for arg in args):
        return OPERATIONS[name].numpy(*args).item()
    return Value(Call(name, tuple(map(to_expr, args))))


def function_of(function: Scalar, args: Sequence[Any]) -> Any:
    """A function of the user's own, of expressions, values of a program, or plain numbers."""
    for arg in args:
        operation = _owner(arg)
        if operation is not None:
            return operation(function, *args)
    exprs = tuple(map(to_expr, args))
    if builtins.all(isinstance(arg, bool | int | float) for arg in args):
        done: dict[Expr, Any] = {}
        for item in walk(function.expanded(exprs)):
            match item:
                case Const(value, _):
                    done[item] = value
                case Cast(dtype, arg):
                    done[item] = dtype.numpy.type(done[arg]).item()
                case Call(op, inner):
                    values = [done[part] for part in inner]
                    done[item] = (
                        OPERATIONS[op].numpy(*values).item()
                        if isinstance(op, str)
                        else function_of(op, values)
                    )
        return done[function.expanded(exprs)]
    return Value(Call(function, exprs))


def exp(x: Any) -> Any:
    """e ** x"""
    return _apply("exp", x)


def exp2(x: Any) -> Any:
    """2 ** x"""
    return _apply("exp2", x)


def expm1(x: Any) -> Any:
    """exp(x) - 1, accurate where x is small"""
    return _apply("expm1", x)


def log(x: Any) -> Any:
    """The natural logarithm."""
    return _apply("log", x)


def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    return _apply("log2", x)


def log1p(x: Any) -> Any:
    """log(1 + x), accurate where x is small"""
    return _apply("log1p", x)


def sqrt(x: Any) -> Any:
    """The square root."""
    return _apply("sqrt", x)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)"""
    return _apply("rsqrt", x)


def cbrt(x: Any) -> Any:
    """The cube root, of negative numbers too."""
    return _apply("cbrt", x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return _apply("tanh", x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))"""
    return _apply("sigmoid", x)


def softplus(x: Any) -> Any:
    """log(1 + exp(x)), without overflow"""
    return _apply("softplus", x)


def erf(x: Any) -> Any:
    """The error function."""
    return _apply("erf", x)


def sin(x: Any) -> Any:
    """The sine, of radians."""
    return _apply("sin", x)


def cos(x: Any) -> Any:
    """The cosine, of radians."""
    return _apply("cos", x)


def floor(x: Any) -> Any:
    """The greatest whole number that is not above x, in x's type."""
    return _apply("floor", x)


def ceil(x: Any) -> Any:
    """The least whole number that is not below x, in x's type."""
    return _apply("ceil", x)


def sign(x: Any) -> Any:
    """-1, 0 or 1, in x's type."""
    return _apply("sign", x)


def stop_gradient(x: Any) -> Any:
    """x itself, whose derivative is zero wherever it is read. Plain values stay as they are."""
    return _apply("stop_gradient", x) if isinstance(x, Term) or _owner(x) else x


def ones_like(x: Any) -> Any:
    """1 in the type of x, whatever x is."""
    return _apply("ones_like", x)


def zeros_like(x: Any) -> Any:
    """0 in the type of x, whatever x is."""
    return _apply("zeros_like", x)


def abs(x: Any) -> Any:
    """The absolute value. Plain Python values go to the builtin."""
    return _apply("abs", x) if _owner(x) else builtins.abs(x)


def minimum(a: Any, b: Any) -> Any:
    """The lesser of two values; NaN wins."""
    return _apply("min", a, b)


def maximum(a: Any, b: Any) -> Any:
    """The greater of two values; NaN wins."""
    return _apply("max", a, b)


def where(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, else b; the branch not taken is never read out of bounds."""
    return _apply("where", condition, a, b)


def cast(x: Any, dtype: Any) -> Term:
    """x converted to an element type; of a number, a literal of that type."""
    kind, expr = to_dtype(dtype), to_expr(x)
    if isinstance(expr, Const) and expr.dtype is None and typed(expr.value, kind):
        return Value(Const(expr.value, kind))
    return Value(Cast(kind, expr))
