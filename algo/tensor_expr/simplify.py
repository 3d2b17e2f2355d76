"""Rewriting scalar expressions to what a person would write, exact on every value.

A rule is a named value: a pattern, what replaces it, and a condition on what the pattern matched.
No rule changes a result, be it inf, NaN, -0.0 or rounded: `x * 0` and `x - x` stay, and so do
products whose factors would be multiplied in another order. Negation of integers wraps, so most
rules ask that something be a float; which tensors are, the caller says. The tests compare both
sides of every rule bit for bit. Each rule makes the expression smaller, or moves a negation
outwards, or turns a sum into a product, so that rewriting ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ..dtypes import DType
from ..errors import InternalError
from ..node import node
from .expr import Access, Call, Cast, Const, Expr, Reduce, children, rebuild, walk
from .operations import OPERATIONS


@node
class Wild(Expr):
    """Stands for any expression in a pattern, the same one wherever the name occurs."""

    name: str


Found = dict[str, Expr]
Floats = Collection[str]
When = Callable[[Found, Floats], bool]


def floats(*names: str) -> When:
    """The condition that one of the named wilds is surely a float."""
    return lambda found, known: any(is_float(found[name], known) for name in names)


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` becomes `result` where `when` holds of the expressions that the wilds stand for."""

    name: str
    pattern: Call
    result: Expr | Callable[[Found], Expr]
    when: When = lambda found, known: True

    def __post_init__(self) -> None:
        if isinstance(self.result, Expr):
            unbound = _wilds(self.result) - _wilds(self.pattern)
            if unbound:
                raise InternalError(f"rule {self.name}: {sorted(unbound)} not in its pattern")

    def apply(self, expr: Expr, known: Floats = ()) -> Expr | None:
        """What the rule makes of `expr`, at its root; None if it does not fit."""
        found: Found = {}
        if not _match(self.pattern, expr, found) or not self.when(found, known):
            return None
        return fill(self.result, found) if isinstance(self.result, Expr) else self.result(found)


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


class _Known(frozenset[str]):
    """Tensors whose elements are floats, with what they have told of expressions so far."""

    told: dict[Expr, bool]

    def __new__(cls, names: Iterable[str]) -> _Known:
        made = super().__new__(cls, names)
        made.told = {}
        return made


def is_float(expr: Expr, known: Floats) -> bool:
    """Has `expr` surely a float type, given that the tensors `known` have?"""
    told = known.told if isinstance(known, _Known) else {}
    stack = [expr]
    while stack:
        item = stack[-1]
        sure, promoted = _of_itself(item, known)
        left = [part for part in promoted if part not in told]
        sure = sure or any(told[part] for part in promoted if part in told)
        if sure or not left:
            told[stack.pop()] = sure
        else:
            stack.append(left[0])
    return told[expr]


def _of_itself(expr: Expr, known: Floats) -> tuple[bool, tuple[Expr, ...]]:
    """Is an expression a float whatever its parts are, and else, which parts would make it one?"""
    match expr:
        case Access(tensor, _):
            return tensor in known, ()
        case Const(value, dtype):
            return isinstance(value, float) if dtype is None else dtype.is_float, ()
        case Cast(dtype, _) | Reduce(_, _, _, _, _, DType() as dtype):
            return dtype.is_float, ()
        case Reduce(_, _, body):
            return False, (body,)
        case Call(op, args):
            if not isinstance(op, str):
                return False, (op.expanded(args),)
            result = OPERATIONS[op].result
            if result in ("float", "bool"):
                return result == "float", ()
            return False, args[1:] if result == "arg1" else args
    return False, ()


def _weak(found: Found, known: Floats) -> bool:
    """Is b a weak literal beside floats, so that the type of the whole does not depend on it?"""
    dropped = found["b"]
    literal = isinstance(dropped, Const) and dropped.dtype is None
    return literal and any(is_float(found[name], known) for name in ("a", "d"))


def _integer(expr: Expr) -> int | None:
    if isinstance(expr, Const) and expr.dtype is None and type(expr.value) is int:
        return expr.value
    return None


def _exact_product(found: Found, known: Floats) -> bool:
    """m * (n * x) and (m * n) * x round alike: one factor is a power of two, neither makes x
    smaller, and their product is exact in the narrowest float."""
    m, n = _integer(found["m"]), _integer(found["n"])
    if m is None or n is None or m < 1 or n < 1 or m * n > 256:
        return False
    return (m & (m - 1) == 0 or n & (n - 1) == 0) and is_float(found["x"], known)


def _product(found: Found) -> Expr:
    m, n = _integer(found["m"]), _integer(found["n"])
    assert m is not None and n is not None
    return Call("mul", (Const(m * n), found["x"]))


def _call(op: str) -> Callable[..., Call]:
    return lambda *args: Call(op, args)


_add, _sub, _mul, _div, _neg, _pow, _where, _not = map(
    _call, ("add", "sub", "mul", "div", "neg", "pow", "where", "not")
)
a, b, c, d, m, n, x = map(Wild, "abcdmnx")
ONE, TWO = Const(1), Const(2)

MUL_ONE = Rule("mul one", _mul(x, ONE), x, floats("x"))
ONE_MUL = Rule("one mul", _mul(ONE, x), x, floats("x"))
MINUS_ONE_MUL = Rule("minus one mul", _mul(Const(-1), x), _neg(x), floats("x"))
POW_ONE = Rule("pow one", _pow(x, ONE), x, floats("x"))
NEG_NEG = Rule("neg neg", _neg(_neg(x)), x, floats("x"))
NEG_MUL = Rule("neg mul", _mul(_neg(a), b), _neg(_mul(a, b)), floats("a"))
MUL_NEG = Rule("mul neg", _mul(a, _neg(b)), _neg(_mul(a, b)), floats("b"))
NEG_DIV = Rule("neg div", _div(_neg(a), b), _neg(_div(a, b)), floats("a"))
DIV_NEG = Rule("div neg", _div(a, _neg(b)), _neg(_div(a, b)), floats("b"))
ADD_NEG = Rule("add neg", _add(a, _neg(b)), _sub(a, b), floats("b"))
NEG_ADD = Rule("neg add", _add(_neg(a), b), _sub(b, a), floats("a"))
SUB_NEG = Rule("sub neg", _sub(a, _neg(b)), _add(a, b), floats("b"))
DOUBLE = Rule("double", _add(x, x), _mul(TWO, x), floats("x"))
DOUBLE_MUL = Rule(
    "double mul", _add(_mul(a, b), _mul(b, a)), _mul(TWO, _mul(a, b)), floats("a", "b")
)
FOLD_MUL = Rule("fold mul", _mul(m, _mul(n, x)), _product, _exact_product)
SAME_BRANCHES = Rule("same branches", _where(c, x, x), x)
TRUE_TWICE = Rule("true twice", _where(c, _where(c, a, b), d), _where(c, a, d), _weak)
FALSE_TWICE = Rule("false twice", _where(c, a, _where(c, b, d)), _where(c, a, d), _weak)
WHERE_NOT = Rule("where not", _where(_not(c), a, b), _where(c, b, a))

RULES = (
    MUL_ONE, ONE_MUL, MINUS_ONE_MUL, POW_ONE, NEG_NEG, NEG_MUL, MUL_NEG, NEG_DIV, DIV_NEG,
    ADD_NEG, NEG_ADD, SUB_NEG, DOUBLE, DOUBLE_MUL, FOLD_MUL,
    SAME_BRANCHES, TRUE_TWICE, FALSE_TWICE, WHERE_NOT,
)  # fmt: skip

_BY_OP = {op: tuple(r for r in RULES if r.pattern.op == op) for op in {r.pattern.op for r in RULES}}


def simplify(expr: Expr, known: Floats = ()) -> Expr:
    """`expr` with the rules applied everywhere, innermost first, until none fits.

    `known` are tensors of which it is known that their elements are floats.
    """
    return Simplifier(known)(expr)


class Simplifier:
    """`simplify` for several expressions, whose common parts are rewritten once."""

    def __init__(self, known: Floats = ()) -> None:
        self.known = _Known(known)
        self.simple: dict[Expr, Expr] = {}

    def __call__(self, expr: Expr) -> Expr:
        simple = self.simple
        for item in walk(expr, simple):
            found = self._at_root(rebuild(item, tuple(simple[child] for child in children(item))))
            simple[item] = simple[found] = found
        return simple[expr]

    def _at_root(self, item: Expr) -> Expr:
        for rule in _BY_OP.get(item.op, ()) if isinstance(item, Call) else ():
            better = rule.apply(item, self.known)
            if better is not None:
                return self(better)
        return item
