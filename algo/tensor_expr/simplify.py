"""Rewriting scalar expressions to what a person would write, exact on every float.

A rule is a named value: a pattern, what replaces it, and a condition on what the pattern matched.
No rule changes a result, be it inf, NaN, -0.0 or rounded: `x * 0` and `x - x` stay, and so do
products whose factors would be multiplied in another order. The tests compare both sides of every
rule bit for bit. Each rule makes the expression smaller, or moves a negation outwards, or turns a
sum into a product, so that rewriting ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import InternalError
from ..node import node
from .expr import Call, Const, Expr, transform


@node
class Wild(Expr):
    """Stands for any expression in a pattern, the same one wherever the name occurs."""

    name: str


Found = dict[str, Expr]


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` becomes `result` where `when` holds of the expressions that the wilds stand for."""

    name: str
    pattern: Expr
    result: Expr | Callable[[Found], Expr]
    when: Callable[[Found], bool] = lambda found: True

    def __post_init__(self) -> None:
        if isinstance(self.result, Expr):
            unbound = _wilds(self.result) - _wilds(self.pattern)
            if unbound:
                raise InternalError(f"rule {self.name}: {sorted(unbound)} not in its pattern")

    def apply(self, expr: Expr) -> Expr | None:
        """What the rule makes of `expr`, at its root; None if it does not fit."""
        found = match(self.pattern, expr)
        if found is None or not self.when(found):
            return None
        return fill(self.result, found) if isinstance(self.result, Expr) else self.result(found)


def match(pattern: Expr, expr: Expr) -> Found | None:
    """The expressions that make `pattern` equal to `expr`."""
    found: Found = {}
    return found if _match(pattern, expr, found) else None


def _match(pattern: Expr, expr: Expr, found: Found) -> bool:
    if isinstance(pattern, Wild):
        return found.setdefault(pattern.name, expr) is expr
    if isinstance(pattern, Call):
        return (
            isinstance(expr, Call)
            and expr.op == pattern.op
            and all(_match(p, e, found) for p, e in zip(pattern.args, expr.args, strict=True))
        )
    return pattern is expr


def fill(result: Expr, found: Mapping[str, Expr]) -> Expr:
    """`result` with its wilds replaced."""
    if isinstance(result, Wild):
        return found[result.name]
    if isinstance(result, Call):
        return Call(result.op, tuple(fill(arg, found) for arg in result.args))
    return result


def _wilds(pattern: Expr) -> set[str]:
    if isinstance(pattern, Wild):
        return {pattern.name}
    args = pattern.args if isinstance(pattern, Call) else ()
    return {name for arg in args for name in _wilds(arg)}


def _integer(expr: Expr) -> int | None:
    if isinstance(expr, Const) and expr.dtype is None and type(expr.value) is int:
        return expr.value
    return None


def _exact_product(found: Found) -> bool:
    """m * (n * x) rounds once and at the same place as (m * n) * x: one is a power of two, neither
    makes x smaller, and the product is exact in the narrowest float."""
    m, n = _integer(found["m"]), _integer(found["n"])
    if m is None or n is None or m < 1 or n < 1 or m * n > 256:
        return False
    return m & (m - 1) == 0 or n & (n - 1) == 0


def _folded(found: Found) -> Expr:
    m, n = _integer(found["m"]), _integer(found["n"])
    assert m is not None and n is not None
    return Call("mul", (Const(m * n), found["x"]))


def _call(op: str) -> Callable[..., Call]:
    return lambda *args: Call(op, args)


_add, _sub, _mul, _div, _neg, _pow, _where, _not = map(
    _call, ("add", "sub", "mul", "div", "neg", "pow", "where", "not")
)
a, b, c, d, m, n, x = map(Wild, "abcdmnx")
ONE, TWO, ZERO = Const(1), Const(2), Const(0)


MUL_ONE = Rule("mul one", _mul(x, ONE), x)
ONE_MUL = Rule("one mul", _mul(ONE, x), x)
MINUS_ONE_MUL = Rule("minus one mul", _mul(Const(-1), x), _neg(x))
POW_ONE = Rule("pow one", _pow(x, ONE), x)
NEG_NEG = Rule("neg neg", _neg(_neg(x)), x)
NEG_MUL = Rule("neg mul", _mul(_neg(a), b), _neg(_mul(a, b)))
MUL_NEG = Rule("mul neg", _mul(a, _neg(b)), _neg(_mul(a, b)))
NEG_DIV = Rule("neg div", _div(_neg(a), b), _neg(_div(a, b)))
DIV_NEG = Rule("div neg", _div(a, _neg(b)), _neg(_div(a, b)))
ADD_NEG = Rule("add neg", _add(a, _neg(b)), _sub(a, b))
NEG_ADD = Rule("neg add", _add(_neg(a), b), _sub(b, a))
SUB_NEG = Rule("sub neg", _sub(a, _neg(b)), _add(a, b))
DOUBLE = Rule("double", _add(x, x), _mul(TWO, x))
DOUBLE_MUL = Rule("double mul", _add(_mul(a, b), _mul(b, a)), _mul(TWO, _mul(a, b)))
FOLD_MUL = Rule("fold mul", _mul(m, _mul(n, x)), _folded, _exact_product)
SAME_BRANCHES = Rule("same branches", _where(c, x, x), x)
TRUE_TWICE = Rule("true twice", _where(c, _where(c, a, b), d), _where(c, a, d))
FALSE_TWICE = Rule("false twice", _where(c, a, _where(c, b, d)), _where(c, a, d))
WHERE_NOT = Rule("where not", _where(_not(c), a, b), _where(c, b, a))

RULES = (
    MUL_ONE, ONE_MUL, MINUS_ONE_MUL, POW_ONE, NEG_NEG, NEG_MUL, MUL_NEG, NEG_DIV, DIV_NEG,
    ADD_NEG, NEG_ADD, SUB_NEG, DOUBLE, DOUBLE_MUL, FOLD_MUL,
    SAME_BRANCHES, TRUE_TWICE, FALSE_TWICE, WHERE_NOT,
)  # fmt: skip


def simplify(expr: Expr, rules: tuple[Rule, ...] = RULES) -> Expr:
    """`expr` with `rules` applied everywhere, innermost first, until none fits.

    For expressions of numbers: over truth values `x * 1` is an integer and not x.
    """
    by_op: dict[str, list[Rule]] = {}
    for rule in rules:
        assert isinstance(rule.pattern, Call)
        by_op.setdefault(rule.pattern.op, []).append(rule)

    def at_root(item: Expr) -> Expr:
        for rule in by_op.get(item.op, ()) if isinstance(item, Call) else ():
            better = rule.apply(item)
            if better is not None:
                return simplify(better, rules)
        return item

    return transform(expr, at_root)
