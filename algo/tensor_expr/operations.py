"""The table of scalar operations: arity, result type, NumPy meaning, and how each is printed.

This is the only list of operations in the project. The interpreter evaluates by `numpy`; code
generation, differentiation and simplification each key their own tables by these names, and a
test asserts that every name is covered everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Operation:
    """`result` is how the type follows from the promoted argument type:

    same: that type; bool: bool; float: that type, integers becoming f32 up to 16 bits, else f64;
    arg1: the promotion of all arguments but the first, which is a condition.
    `symbol` is the infix or prefix operator, None for the function form; `precedence` is Python's,
    so that `&` and `|` bind tighter than comparisons.
    """

    name: str
    arity: int
    result: str
    numpy: Callable[..., Any]
    symbol: str | None = None
    precedence: int = 100


def _floordiv(a: Any, b: Any) -> Any:
    """Floor division; integers by zero give 0 and INT_MIN // -1 wraps."""
    with np.errstate(all="ignore"):
        if np.result_type(a, b).kind == "f":
            return np.floor_divide(a, b)
        zero = np.equal(b, 0)
        return np.where(zero, 0, np.floor_divide(a, np.where(zero, 1, b))).astype(
            np.result_type(a, b)
        )


def _mod(a: Any, b: Any) -> Any:
    with np.errstate(all="ignore"):
        if np.result_type(a, b).kind == "f":
            return np.mod(a, b)
        zero = np.equal(b, 0)
        return np.where(zero, 0, np.mod(a, np.where(zero, 1, b))).astype(np.result_type(a, b))


def _erf(x: Any) -> Any:
    import math

    return np.vectorize(math.erf, otypes=[np.asarray(x).dtype])(x) if np.size(x) else np.asarray(x)


def _pow(a: Any, b: Any) -> Any:
    """C's pow of floats; integers wrap, and to a negative power are 0."""
    with np.errstate(all="ignore"):
        if np.result_type(a, b).kind in "iu":
            return np.where(np.less(b, 0), 0, np.power(a, np.maximum(b, 0))).astype(
                np.result_type(a, b)
            )
        # NumPy takes square roots for the power 0.5, which differ from pow at -inf and at -0.0.
        unlike_root = np.logical_and(b == 0.5, np.logical_or(a == 0, a == -np.inf))
        return np.power(np.where(unlike_root, np.abs(a), a), b)


def _quiet(f: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args)

    return call


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(np.asarray(x).dtype)


_TABLE = [
    Operation("or", 2, "bool", np.logical_or, "|", 2),
    Operation("and", 2, "bool", np.logical_and, "&", 3),
    Operation("not", 1, "bool", np.logical_not, "~", 8),
    Operation("lt", 2, "bool", np.less, "<", 1),
    Operation("le", 2, "bool", np.less_equal, "<=", 1),
    Operation("gt", 2, "bool", np.greater, ">", 1),
    Operation("ge", 2, "bool", np.greater_equal, ">=", 1),
    Operation("eq", 2, "bool", np.equal, "==", 1),
    Operation("ne", 2, "bool", np.not_equal, "!=", 1),
    Operation("add", 2, "same", _quiet(np.add), "+", 6),
    Operation("sub", 2, "same", _quiet(np.subtract), "-", 6),
    Operation("mul", 2, "same", _quiet(np.multiply), "*", 7),
    Operation("div", 2, "float", _quiet(np.true_divide), "/", 7),
    Operation("floordiv", 2, "same", _floordiv, "//", 7),
    Operation("mod", 2, "same", _mod, "%", 7),
    Operation("neg", 1, "same", _quiet(np.negative), "-", 8),
    Operation("pow", 2, "same", _pow, "**", 10),
    Operation("min", 2, "same", _quiet(np.minimum)),
    Operation("max", 2, "same", _quiet(np.maximum)),
    Operation("abs", 1, "same", _quiet(np.abs)),
    Operation("sign", 1, "same", np.sign),
    Operation("where", 3, "arg1", np.where),
    Operation("sqrt", 1, "float", _quiet(np.sqrt)),
    Operation("rsqrt", 1, "float", _quiet(lambda x: 1 / np.sqrt(x))),
    Operation("cbrt", 1, "float", np.cbrt),
    Operation("exp", 1, "float", _quiet(np.exp)),
    Operation("exp2", 1, "float", _quiet(np.exp2)),
    Operation("expm1", 1, "float", _quiet(np.expm1)),
    Operation("log", 1, "float", _quiet(np.log)),
    Operation("log2", 1, "float", _quiet(np.log2)),
    Operation("log1p", 1, "float", _quiet(np.log1p)),
    Operation("tanh", 1, "float", np.tanh),
    Operation("sigmoid", 1, "float", _quiet(_sigmoid)),
    Operation("softplus", 1, "float", _quiet(lambda x: np.logaddexp(x, np.zeros_like(x)))),
    Operation("erf", 1, "float", _erf),
    Operation("sin", 1, "float", _quiet(np.sin)),
    Operation("cos", 1, "float", _quiet(np.cos)),
    Operation("floor", 1, "float", np.floor),
    Operation("ceil", 1, "float", np.ceil),
    Operation("stop_gradient", 1, "same", np.asarray),
    Operation("ones_like", 1, "same", np.ones_like),
    Operation("zeros_like", 1, "same", np.zeros_like),
]

ERASED: dict[str, int | None] = {"stop_gradient": None, "ones_like": 1, "zeros_like": 0}
"""Operations of which typed expressions (`elaborate.py`) have none: what means something to
derivatives alone is its argument (None), and a number in the type of the argument is a literal."""

OPERATIONS: dict[str, Operation] = {op.name: op for op in _TABLE}
BY_SYMBOL: dict[tuple[str, int], Operation] = {
    (op.symbol, op.arity): op for op in _TABLE if op.symbol is not None
}
FUNCTIONS: dict[str, Operation] = {op.name: op for op in _TABLE if op.symbol is None}

_NUMPY = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "floor_divide": "floordiv",
    "remainder": "mod", "negative": "neg", "power": "pow", "absolute": "abs", "minimum": "min",
    "maximum": "max", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
    "equal": "eq", "not_equal": "ne", "logical_and": "and", "logical_or": "or",
    "logical_not": "not", "bitwise_and": "and", "bitwise_or": "or", "invert": "not",
}  # fmt: skip
"""Operations that NumPy calls otherwise."""


def of_numpy(ufunc: np.ufunc, method: str, options: object) -> str | None:
    """The operation that such a call of a NumPy function computes element by element, if any."""
    found = _NUMPY.get(ufunc.__name__, ufunc.__name__)
    return found if found in OPERATIONS and method == "__call__" and not options else None


def numpy_call(ufunc: np.ufunc, method: str, options: Iterable[str]) -> str:
    """How messages name such a call: "NumPy's add.reduce with axis"."""
    named = f"{ufunc.__name__}.{method}".removesuffix(".__call__")
    return f"NumPy's {named}" + (f" with {', '.join(options)}" if options else "")
