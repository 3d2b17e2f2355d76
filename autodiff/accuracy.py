"""How well a form of a derivative computes: in f32 and f64, from tiny arguments to huge ones.

The measure is the derivative to 400 digits, of which sympy computes every operation. So what
overflows on the way, and what loses its digits to cancellation, is seen where it happens; forms
that numbers of ordinary size call equal differ there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, walk
from ..algo.tensor_expr.operations import OPERATIONS
from ..algo.tensor_expr.scalar import VALUE, Scalar

DIGITS = 400
SIZES = (1e-20, 1e-10, 1e-4, 0.03, 0.4, 0.9, 1.7, 3.1, 7.0, 14.0, 20.0, 30.0, 45.0, 60.0, 90.0,
         110.0, 1e3, 1e5, 1e10, 1e15)  # fmt: skip
WIDE = (1e-170, 300.0, 400.0, 720.0, 800.0, 1e100, 1e160)
"""Those that only f64 has, or can tell from infinity."""
TYPES = (np.float32, np.float64)
SHIFTS = (0, 5, 16)
LOST = 32
"""The units in the last place by which a form may be off without being called inaccurate."""
HUGE = 10**5
"""No number that floats could have comes of an exponent beyond this."""


class Scale:
    """Compares forms of the derivative `exact` of `body`, over the parameters `params`."""

    def __init__(self, body: Expr, exact: Expr, params: Sequence[Access]) -> None:
        sizes = np.sort([*np.array(SIZES, np.float32).astype(float), *WIDE])
        points = np.concatenate([-sizes[::-1], [0.0], sizes])
        shifts = SHIFTS if len(params) > 1 else SHIFTS[:1]
        self.points = {
            p: np.concatenate([np.roll(points, s * n) for s in shifts])
            for n, p in enumerate(params)
        }
        self.body = body
        count = len(points) * len(shifts)
        rows = ({p: values[k] for p, values in self.points.items()} for k in range(count))
        self.true = np.array([_rounded(_exactly(exact, row)) for row in rows])
        self.table = self._faults(exact)

    def rank(self, form: Expr) -> tuple[int, int] | None:
        """At how many points a form has no finite value, and at how many a bad one; None if it is
        worse than the table's at any."""
        faults = self._faults(form)
        if any(np.any(m > _allowed(t)) for m, t in zip(faults, self.table, strict=True)):
            return None
        return (
            sum(int(np.sum(np.isinf(f))) for f in faults),
            sum(int(np.sum(f > 0)) for f in faults),
        )

    def _faults(self, form: Expr) -> list[Any]:
        """For each type, the relative error at each point in `LOST` units in the last place where
        that is more than 1, else 0; infinite where no number comes."""
        out = []
        for dtype in TYPES:
            info = np.finfo(dtype)
            with np.errstate(all="ignore"):
                given = {p: values.astype(dtype) for p, values in self.points.items()}
                fits = np.all([np.isfinite(v) & ((v != 0) | (self.points[p] == 0))
                               for p, v in given.items()], axis=0)  # fmt: skip
                given[VALUE] = numbers(self.body, given, dtype)
                found = np.broadcast_to(numbers(form, given, dtype), fits.shape).astype(float)
                least = float(info.tiny) / float(info.eps)
                error = np.abs(found - self.true) / np.maximum(np.abs(self.true), least)
            error = error / (LOST * float(info.eps))
            faults = np.where(error > 1, error, 0)
            faults[~np.isfinite(found)] = math.inf
            faults[~fits | (np.abs(self.true) > float(info.max))] = 0
            out.append(np.where(np.isnan(faults), 0, faults))
        return out


def _allowed(faults: Any) -> Any:
    """What another form may be off by: some of what this one is, there or beside, for where digits
    cancel luck has a part."""
    finite = np.where(np.isinf(faults), 0, faults)
    beside = np.maximum(finite, np.maximum(np.roll(finite, 1), np.roll(finite, -1)))
    return np.where(np.isinf(faults), np.inf, 4 * beside)


def _rounded(value: Any) -> float:
    """To f64; NaN where there is no value."""
    if value is None or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def numbers(expr: Expr, given: Mapping[Access, Any], dtype: Any = np.float64) -> Any:
    """The values of an expression of scalars in a type of floats."""
    done: dict[Expr, Any] = {}
    with np.errstate(all="ignore"):
        for item in walk(expr):
            match item:
                case Access():
                    done[item] = given[item]
                case Const(value, _):
                    done[item] = dtype(value) if not isinstance(value, bool) else value
                case Cast(to, arg):
                    done[item] = np.asarray(done[arg]).astype(to.numpy)
                case Call(str() as op, args):
                    done[item] = OPERATIONS[op].numpy(*(done[a] for a in args))
                case Call(Scalar() as op, args):
                    inner = zip(op.params, args, strict=True)
                    done[item] = numbers(op.body, {Access(p, ()): done[a] for p, a in inner}, dtype)
    return done[expr]


def _exactly(expr: Expr, given: Mapping[Access, float]) -> Any:
    """The value to `DIGITS` digits; None where there is none that is finite."""
    import sympy as sp

    done: dict[Expr, Any] = {}
    for item in walk(expr):
        match item:
            case Access():
                done[item] = _real(sp, float(given[item]))
            case Const(value, _):
                done[item] = value if isinstance(value, bool) else _real(sp, value)
            case Cast(to, arg):
                done[item] = _cast(sp, to, done[arg])
            case Call(Scalar() as op, args):
                inner = {Access(p, ()): done[a] for p, a in zip(op.params, args, strict=True)}
                done[item] = None if None in inner.values() else _exactly(op.body, inner)
            case Call(op, args):
                done[item] = _operation(sp, str(op), [done[a] for a in args])
    return done[expr]


def _real(sp: Any, value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return sp.Float(value, DIGITS)


def _cast(sp: Any, to: Any, value: Any) -> Any:
    if value is None or to.is_float:
        return _real(sp, int(value)) if isinstance(value, bool) else value
    return bool(value) if to.kind == "b" else _real(sp, int(value))


def _operation(sp: Any, op: str, args: list[Any]) -> Any:
    if op == "where":
        return None if args[0] is None else args[1] if args[0] else args[2]
    if None in args:
        return None
    if op not in ("or", "and", "not"):
        args = [sp.Float(int(a)) if isinstance(a, bool) else a for a in args]
    try:
        made = _table(sp)[op](*args)
    except (ArithmeticError, ValueError):
        return None
    if isinstance(made, bool):
        return made
    if made is sp.true or made is sp.false:
        return bool(made)
    if made is sp.nan or not (made.is_finite and made.is_real):
        return None
    return sp.Float(made if made.is_Rational else made.evalf(DIGITS), DIGITS)


@lru_cache(maxsize=1)
def _table(sp: Any) -> dict[str, Callable[..., Any]]:
    """The operations over real numbers."""

    two = sp.Float(2, DIGITS)

    def exp(x: Any) -> Any:
        return sp.Integer(0) if x < -HUGE else sp.nan if x > HUGE else sp.exp(x)

    def power(x: Any, n: Any) -> Any:
        whole = not n - int(n)  # sympy calls no Float equal to an Integer
        if (not whole and x < 0) or (not x and n < 0):
            return sp.nan
        if not x:
            return sp.Integer(0 if n else 1)
        if whole and abs(n) < 64:
            return x ** int(n)
        made = exp(n * sp.log(abs(x)))
        return -made if x < 0 and int(n) % 2 else made

    def erf(x: Any) -> Any:
        return sp.sign(x) if abs(x) > 30 else sp.erf(x)

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + exp(-x)) if x > 0 else exp(x) / (1 + exp(x))

    def floor(x: Any) -> Any:
        return sp.floor(x)

    def log(x: Any) -> Any:
        return sp.log(x) if x > 0 else sp.nan

    def over(a: Any, b: Any) -> Any:
        return a / b if b else sp.nan

    def tanh(x: Any) -> Any:
        return sp.sign(x) * (1 - 2 / (exp(2 * abs(x)) + 1)) if abs(x) < HUGE / 2 else sp.sign(x)

    def softplus(x: Any) -> Any:
        return sp.log(1 + exp(-abs(x))) + (x if x > 0 else 0)

    return {
        "or": lambda a, b: bool(a) or bool(b), "and": lambda a, b: bool(a) and bool(b),
        "not": lambda a: not a, "lt": lambda a, b: bool(a < b),
        "le": lambda a, b: bool(a <= b),
        "gt": lambda a, b: bool(a > b),
        "ge": lambda a, b: bool(a >= b),
        "eq": lambda a, b: bool(a == b),
        "ne": lambda a, b: bool(a != b),
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b, "div": over,
        "floordiv": lambda a, b: floor(a / b) if b else sp.nan,
        "mod": lambda a, b: a - b * floor(a / b) if b else sp.nan,
        "neg": lambda a: -a, "pow": power, "min": min,
        "max": max, "abs": abs, "sign": sp.sign,
        "sqrt": lambda x: sp.sqrt(x) if x >= 0 else sp.nan,
        "rsqrt": lambda x: 1 / sp.sqrt(x) if x > 0 else sp.nan,
        "cbrt": lambda x: sp.sign(x) * power(abs(x), sp.Float(1, DIGITS) / 3),
        "exp": exp, "exp2": lambda x: exp(x * sp.log(two)),
        "expm1": lambda x: exp(x) - 1, "log": log, "log2": lambda x: log(x) / log(two),
        "log1p": lambda x: log(1 + x), "tanh": tanh, "sigmoid": sigmoid, "softplus": softplus,
        "erf": erf, "sin": sp.sin, "cos": sp.cos, "floor": floor, "ceil": lambda x: sp.ceiling(x),
        "stop_gradient": lambda x: x, "ones_like": lambda x: 1, "zeros_like": lambda x: 0,
    }  # fmt: skip
