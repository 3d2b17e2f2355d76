"""Derivatives of scalar functions of the user's own, by sympy, in the simplest form that is found.

sympy differentiates and simplifies what is smooth. What chooses (`where`, max, abs) and what rounds
is kept as it is: to sympy it is a function without a name, whose derivative the table of
derivatives says, so that a branch which is not taken stays out of the result. Functions that have
accurate forms of their own (tanh, sigmoid, log1p ..) keep them. sympy is imported here only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..algo.tensor_expr.expr import Access, Call, Const, Expr, substitute, transform, walk
from ..algo.tensor_expr.scalar import VALUE, Scalar
from .accuracy import Scale, numbers
from .derivatives import Guarded, pullback
from .folding import folded

SMOOTH = {
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "pow",
    "sqrt",
    "rsqrt",
    "exp",
    "log",
    "erf",
    "sin",
    "cos",
}
"""What sympy knows as we do."""
OWN = ("cbrt", "exp2", "expm1", "log2", "log1p", "tanh", "sigmoid", "softplus")
"""What keeps its form; how it is differentiated the table says."""
POINTS = np.array([-2.3, -1.1, -0.4, 0.3, 0.9, 1.7, 3.1])
COSTLY = {"exp", "log", "erf", "sin", "cos", "pow", "sqrt", "rsqrt", *OWN}


@lru_cache(maxsize=1024)
def partials(function: Scalar, ties: str) -> tuple[Expr, ...]:
    """The derivative by each parameter, over the parameters and the function's `VALUE`."""
    if function.partials:
        return function.partials
    body = _spelled(function.body)
    return tuple(_derivative(body, Access(p, ()), ties, top=True) for p in function.params)


def _spelled(body: Expr) -> Expr:
    """The body with functions in it replaced by what they are, but those of given derivatives."""

    def rule(item: Expr) -> Expr:
        if isinstance(item, Call) and isinstance(item.op, Scalar) and not item.op.partials:
            return _spelled(item.op.expanded(item.args))
        return item

    return transform(body, rule)


def _derivative(body: Expr, by: Access, ties: str, top: bool = False) -> Expr:
    """The derivative of an expression of scalars; at the top its value may be read."""
    if isinstance(body, Call) and body.op == "where":
        condition, yes, no = body.args
        a, b = (_derivative(branch, by, ties) for branch in (yes, no))
        return a if a is b else Call("where", (condition, a, b))
    return _Smooth(body, by, ties).simplest(top)


class _Smooth:
    """An expression as sympy sees it."""

    def __init__(self, body: Expr, by: Access, ties: str) -> None:
        import sympy

        self.sp, self.body, self.by, self.ties = sympy, body, by, ties
        self.params = [e for e in walk(body) if isinstance(e, Access)]
        self.symbols = {e: sympy.Symbol(f"x{n}", real=True) for n, e in enumerate(self.params)}
        self.value = sympy.Symbol("value", real=True)
        self.back: dict[Any, Expr] = {s: e for e, s in self.symbols.items()}
        self.back[self.value] = VALUE
        self.opaque: dict[Any, Expr] = {}
        self.classes: dict[Expr, Any] = {}

    def simplest(self, top: bool) -> Expr:
        """The derivative in the form that is finite most often, then accurate most often, then of
        the fewest and cheapest operations, of those that are nowhere worse than what the table of
        derivatives gives; numbers tell which are equal to that."""
        plain = pullback(self.body, (Guarded((), Const(1)),), None, self.ties)
        exact = folded(plain.get(self.by, Const(0)), (self.by.tensor, VALUE.tensor))
        if isinstance(exact, Const):
            return exact
        sp, f = self.sp, self.forward()
        raw = sp.diff(f, self.symbols[self.by]).doit()
        simple = sp.simplify(raw)
        forms = [raw, simple, simple.rewrite(sp.exp), sp.factor(raw), sp.factor_terms(raw)]
        if raw.has(sp.exp):  # as sums of exp(x) and exp(-x), of which none overflows alone
            forms.append(sp.factor_terms(sp.simplify(raw.rewrite(sp.cosh)).rewrite(sp.exp)))
        if top and not f.is_Symbol and not f.is_number:
            forms += self.by_value(f, raw, simple)
        written = [self.expr(form, last) for last in (False, True) for form in forms]
        found = [e for e in written if e is not None and self.equal(e, exact)]
        scale = Scale(self.body, exact, self.params)
        ranks = {e: scale.rank(e) for e in dict.fromkeys([*found, exact])}
        return min((e for e, rank in ranks.items() if rank), key=lambda e: (ranks[e], _cost(e)))

    def by_value(self, f: Any, d: Any, simple: Any) -> list[Any]:
        """Forms that read the value, without a division that the derivative has not."""
        sp, y = self.sp, self.value
        written = (simple, sp.expand(simple), d, sp.factor_terms(d))
        forms = [form.subs(f, y) for form in written]
        ratio = sp.simplify(d / f)
        below = sp.fraction(sp.together(ratio))[1]
        if (below.is_number or below.is_nonzero) and not ratio.has(sp.log):
            forms.append(y * ratio)
        for sign in (1, -1):
            rest = self.constant(d / f - sign * f)
            forms += [] if rest is None else [y * (rest + sign * y)]
            rest = self.constant(d - sign * f**2)
            forms += [] if rest is None else [rest + sign * y**2]
        return forms

    def constant(self, e: Any) -> Any:
        """The number of halves that an expression is wherever it is tried, if it is one."""
        found = self.expr(e)
        if found is None:
            return None
        values = np.broadcast_to(numbers(found, self.grid(POINTS)), POINTS.shape)
        values = values[np.isfinite(values)]
        halves = round(2 * float(values[0])) if values.size else 0
        same = values.size > 2 and np.allclose(values, halves / 2, rtol=0, atol=1e-12)
        return self.sp.Rational(halves, 2) if same else None

    def grid(self, points: Any) -> dict[Access, Any]:
        """Numbers for each parameter, of one not those of another, and the value there."""
        grid = {p: np.roll(points, 2 * n) for n, p in enumerate(self.params)}
        grid[VALUE] = numbers(self.body, grid)
        return grid

    def forward(self) -> Any:
        """The expression in sympy's terms."""
        done: dict[Expr, Any] = {}
        for item in walk(self.body, parts=_parts):
            done[item] = self.symbols[item] if isinstance(item, Access) else self.term(item, done)
        return done[self.body]

    def term(self, item: Expr, done: dict[Expr, Any]) -> Any:
        """One node, its smooth parts being `done`."""
        sp = self.sp
        if isinstance(item, Const) and not isinstance(item.value, bool):
            if isinstance(item.value, int):
                return sp.Integer(item.value)
            exact = item.value.is_integer() or (item.value * 1024).is_integer()
            finite = math.isfinite(item.value)
            return sp.Rational(item.value) if finite and exact else sp.Float(item.value)
        if isinstance(item, Call) and item.op in SMOOTH and _parts(item):
            return _forward(sp, str(item.op), [done[a] for a in item.args])
        if isinstance(item, Call) and item.op in OWN:
            return self.function(item, [done[a] for a in item.args])
        return self.function(item, [self.symbols[p] for p in _reads(item)])

    def function(self, item: Expr, args: list[Any]) -> Any:
        """A node of which sympy knows nothing but its derivatives."""
        sp, outer = self.sp, self
        if not args:  # a number
            made = sp.Symbol(f"n{len(self.back)}", real=True)
            self.back[made] = item
            return made
        own = isinstance(item, Call) and item.op in OWN
        key = Call(item.op, (VALUE,)) if own and isinstance(item, Call) else item
        if key not in self.classes:
            reads = _reads(key)

            def fdiff(self: Any, argindex: int = 1) -> Any:
                found = outer.partial(key, reads[argindex - 1])
                return outer.again(found, dict(zip(reads, self.args, strict=True)))

            rules = {"fdiff": fdiff, "_eval_is_real": lambda self: True}
            name = str(key.op) if own and isinstance(key, Call) else f"u{len(self.opaque)}"
            made = self.classes[key] = type(name, (sp.Function,), rules)
            self.opaque[made] = key
        return self.classes[key](*args)

    def partial(self, item: Expr, by: Access) -> Expr:
        """The derivative of a node that is no smooth function of its parts."""
        if isinstance(item, Call) and item.op == "where":
            return _derivative(item, by, self.ties)
        found = pullback(item, (Guarded((), Const(1)),), None, self.ties)
        return folded(found.get(by, Const(0)), (by.tensor, VALUE.tensor))

    def again(self, expr: Expr, given: dict[Expr, Any]) -> Any:
        """An expression in sympy's terms, where `given` says what it reads."""
        done: dict[Expr, Any] = {}
        for item in walk(expr, parts=_parts):
            done[item] = given[item] if item in given else self.term(item, done)
        return done[expr]

    def expr(self, found: Any, backwards: bool = False) -> Expr | None:
        """What sympy found, as an expression of ours; None if it needs functions we have not.
        Sums are written in the order in which sympy prints them, or `backwards`, numbers first."""
        try:
            return _Back(self.sp, self.back, self.opaque, backwards).expr(found)
        except _Unknown:
            return None

    def equal(self, found: Expr, exact: Expr) -> bool:
        """Are two forms the same function, as far as numbers tell?"""
        grid = self.grid(POINTS)
        a, b = numbers(found, grid), numbers(exact, grid)
        return bool(np.all(np.isclose(a, b, rtol=1e-9, atol=1e-12) | ~np.isfinite(b)))


def _parts(item: Expr) -> tuple[Expr, ...]:
    """The parts that sympy sees; of 0 to a power that varies it would say nothing finite."""
    if not isinstance(item, Call) or (item.op == "pow" and not isinstance(item.args[1], Const)):
        return ()
    return item.args if item.op in SMOOTH or item.op in OWN else ()


def _reads(item: Expr) -> list[Access]:
    return [e for e in walk(item) if isinstance(e, Access)]


def _forward(sp: Any, op: str, args: Sequence[Any]) -> Any:
    table: dict[str, Callable[..., Any]] = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b, "neg": lambda a: -a, "pow": lambda a, b: a**b,
        "sqrt": sp.sqrt, "rsqrt": lambda a: 1 / sp.sqrt(a), "exp": sp.exp, "log": sp.log,
        "erf": sp.erf, "sin": sp.sin, "cos": sp.cos,
    }  # fmt: skip
    return table[op](*args)


class _Unknown(Exception):
    """A function that operators have not."""


class _Back:
    """From sympy's terms to ours."""

    def __init__(
        self, sp: Any, back: dict[Any, Expr], opaque: dict[Any, Expr], backwards: bool
    ) -> None:
        self.sp, self.back, self.opaque, self.backwards = sp, back, opaque, backwards

    def expr(self, e: Any) -> Expr:
        sp = self.sp
        if e in self.back:
            return self.back[e]
        if e.is_number:
            if not e.is_real:
                raise _Unknown
            return Const(int(e)) if e.is_Integer else Const(float(e))
        if e.func in self.opaque:
            item = self.opaque[e.func]
            reads = _reads(item)
            return substitute(item, {r: self.expr(a) for r, a in zip(reads, e.args, strict=True)})
        if e.is_Add:
            return self.sum(e)
        if e.is_Mul:
            return self.product(e)
        if e.is_Pow and e.base == sp.E:
            return Call("exp", (self.expr(e.exp),))
        if e.is_Pow:
            return self.power(e.base, e.exp)
        names = {sp.exp: "exp", sp.log: "log", sp.erf: "erf", sp.sin: "sin", sp.cos: "cos"}
        if e.func is sp.tan:
            return Call("div", (self.expr(sp.sin(e.args[0])), self.expr(sp.cos(e.args[0]))))
        if e.func not in names:
            raise _Unknown
        return Call(names[e.func], (self.expr(e.args[0]),))

    def sum(self, e: Any) -> Expr:
        terms = list(e.as_ordered_terms())
        if self.backwards:
            terms.reverse()
        terms.sort(key=lambda t: t.could_extract_minus_sign())
        total = self.expr(terms[0])
        for term in terms[1:]:
            minus = term.could_extract_minus_sign()
            total = Call("sub" if minus else "add", (total, self.expr(-term if minus else term)))
        return total

    def product(self, e: Any) -> Expr:
        sp = self.sp
        number, above, below = sp.Integer(1), [], []
        for factor in e.as_ordered_factors():
            if factor.is_number:
                number *= factor
            elif factor.is_Pow and factor.exp.is_number and factor.exp.is_negative:
                below.append(1 / factor)
            else:
                above.append(factor)
        if not number.is_real:
            raise _Unknown
        if not number.is_Rational:
            whole = float(number).is_integer()
            number = sp.Integer(int(number)) if whole else sp.Float(float(number))
        negative = bool(number < 0)
        number = abs(number)
        top, under = (number.p, number.q) if number.is_Rational else (number, 1)
        factors = [*([sp.sympify(top)] if top != 1 or not above else []), *above]
        if under != 1:
            below.insert(0, sp.Integer(under))
        out = self.all(factors)
        if below:
            out = Call("div", (out, self.all(below)))
        return Call("neg", (out,)) if negative else out

    def all(self, factors: Sequence[Any]) -> Expr:
        out = self.expr(factors[0])
        for factor in factors[1:]:
            out = Call("mul", (out, self.expr(factor)))
        return out

    def power(self, base: Any, exponent: Any) -> Expr:
        sp, a = self.sp, self.expr(base)
        if exponent == sp.Rational(1, 2):
            return Call("sqrt", (a,))
        if exponent.is_number and exponent.is_negative:
            return Call("div", (Const(1), self.power(base, -exponent)))
        if exponent == 1:
            return a
        if exponent == 2:
            return Call("mul", (a, a)) if isinstance(a, Access) else Call("pow", (a, Const(2)))
        return Call("pow", (a, self.expr(exponent)))


def _cost(expr: Expr) -> int:
    """Operations, of which the costly ones count for several."""
    calls = [item for item in walk(expr) if isinstance(item, Call)]
    return sum(6 if item.op in COSTLY else 2 if item.op == "div" else 1 for item in calls)
