"""Numbers and choices in derivatives that need not wait for data: `1 / 2 / 2`, `1.0 * y`.

Nothing is rounded otherwise than before: quotients are folded where they are exact in f16, and a
factor of one is left out beside what is surely a float.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from fractions import Fraction
from typing import Any

from ..algo.tensor_expr.expr import Call, Const, Expr, transform
from ..algo.tensor_expr.simplify import is_float, simplify

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}
MOST = 1024
"""Numerators and denominators up to this, the latter powers of two, are exact in every float."""


def folded(expr: Expr, floats: Collection[str]) -> Expr:
    """The expression with weak numbers computed; `floats` are tensors of floats."""

    def rule(item: Expr) -> Expr:
        if not isinstance(item, Call):
            return item
        match item.op, item.args:
            case "where", (Const(value, _), yes, no):
                return yes if value else no
            case "not", (Const(bool() as value, _),):
                return Const(not value)
            case str() as op, (Const(a, None), Const(b, None)) if op in COMPARISONS:
                return Const(COMPARISONS[op](a, b))
            case "mul", (one, other) if _number(one) == 1 and is_float(other, floats):
                return other
            case "mul" | "div", (other, one) if _number(one) == 1 and is_float(other, floats):
                return other
            case "mul" | "div", (first, second):
                return _quotient(item, _number(first), _number(second))
        return item

    return simplify(transform(expr, rule), floats)


def _number(item: Expr) -> Fraction | None:
    """A weak number that is exact in every type of floats."""
    if not isinstance(item, Const) or item.dtype is not None or isinstance(item.value, bool):
        return None
    if isinstance(item.value, float) and not abs(item.value) <= MOST:
        return None
    found = Fraction(item.value)
    return found if _exact(found) else None


def _exact(number: Fraction) -> bool:
    below = number.denominator
    return abs(number.numerator) <= MOST and below <= MOST and below & (below - 1) == 0


def _quotient(item: Call, a: Fraction | None, b: Fraction | None) -> Expr:
    if a is None or b is None or (item.op == "div" and b == 0):
        return item
    if item.op == "mul":
        if not all(isinstance(arg, Const) and isinstance(arg.value, float) for arg in item.args):
            return item if a.denominator == b.denominator == 1 else _float(item, a * b)
        return _float(item, a * b)
    return _float(item, a / b)


def _float(item: Call, number: Fraction) -> Expr:
    return Const(float(number)) if _exact(number) and number else item
