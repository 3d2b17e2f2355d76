"""The canonical form of index arithmetic: sums over atoms, quotients and folded remainders.

`affine.py` is the door; this file holds the arithmetic. While a form is worked on, `x % c` is
written `x - c*(x//c)`, so that `8*(i//8) + i%8` cancels to `i` by itself; remainders that are left
are folded again at the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .build import maximum, minimum, mod
from .expr import Call, Const, Expr, Index, Range, Reduce, Size, children, rebuild, walk

Interval = tuple[int | None, int | None]
"""Inclusive bounds; None where there is none."""


@dataclass(frozen=True, slots=True)
class Linear:
    """The sum of `terms` (atom -> coefficient, none of them 0) and `const`.

    Atoms are indices, sizes and the quotients, remainders, minima and maxima that are left.
    """

    terms: Mapping[Expr, int]
    const: int

    def of(self, atom: Expr) -> int:
        """The coefficient of an atom."""
        return self.terms.get(atom, 0)

    def inside(self, index: str) -> bool:
        """Does the index occur inside an atom, so that `of` does not tell all about it?"""
        target = Index(index)
        return any(a is not target and target in walk(a) for a in self.terms)

    @property
    def expr(self) -> Expr:
        """The canonical expression: positive terms first, larger coefficients first."""
        return expression(self)


class Reader:
    """Linear forms under given ranges, remembered. Forms hold quotients but no remainders."""

    def __init__(self, ranges: Mapping[str, Interval]) -> None:
        self.ranges = ranges
        self.forms: dict[Expr, Linear] = {}
        self.normals: dict[Expr, Expr] = {}  # filled by `affine.normalize`
        self._bounds: dict[Expr, Interval] = {}

    def linear(self, expr: Expr) -> Linear:
        found = self.forms.get(expr)
        if found is None:
            for item in walk(expr):
                if item not in self.forms:
                    self.forms[item] = self._form(item)
            found = self.forms[expr]
        return found

    def _form(self, item: Expr) -> Linear:
        match item:
            case Const(value, None) if type(value) is int:
                return Linear({}, value)
            case Index() | Size():
                return Linear({item: 1}, 0)
            case Call("add", (a, b)):
                return plus(self.forms[a], self.forms[b], 1)
            case Call("sub", (a, b)):
                return plus(self.forms[a], self.forms[b], -1)
            case Call("neg", (a,)):
                return times(self.forms[a], -1)
            case Call("mul", (a, b)):
                x, y = self.forms[a], self.forms[b]
                if not x.terms or not y.terms:
                    return times(x, y.const) if not y.terms else times(y, x.const)
            case Call("floordiv", (a, b)) if not self.forms[b].terms:
                return self._quotient(self.forms[a], self.forms[b].const)
            case Call("mod", (a, b)) if not self.forms[b].terms:
                by = self.forms[b].const
                if by == 0:
                    return Linear({}, 0)
                return plus(self.forms[a], self._quotient(self.forms[a], by), -by)
            case Call("min" | "max" as op, (a, b)):
                return self._extremum(op, self.forms[a], self.forms[b])
        return Linear({rebuild(item, tuple(self._part(c) for c in children(item))): 1}, 0)

    def _part(self, expr: Expr) -> Expr:
        return expr if isinstance(expr, (Range, Reduce)) else expression(self.forms[expr])

    def _quotient(self, form: Linear, by: int) -> Linear:
        if by == 0:
            return Linear({}, 0)
        if by < 0:
            form, by = times(form, -1), -by
        form = folded(form)
        whole = {atom: c // by for atom, c in form.terms.items() if c % by == 0}
        rest = {atom: c for atom, c in form.terms.items() if c % by}
        out = self._sum(whole, form.const // by)
        return plus(out, self._proper(Linear(rest, form.const % by), by), 1) if rest else out

    def _proper(self, rest: Linear, by: int) -> Linear:
        """The quotient of a folded form of which `by` divides no coefficient."""
        common = math.gcd(by, *rest.terms.values())
        if common > 1:
            scaled = {atom: c // common for atom, c in rest.terms.items()}
            return self._quotient(self._sum(scaled, rest.const // common), by // common)
        low, high = self._interval(rest)
        if low is not None and high is not None and low // by == high // by:
            return Linear({}, low // by)
        for step in sorted({math.gcd(by, c) for c in rest.terms.values()} - {1}, reverse=True):
            # floor((step*a + b)/by) is floor(step*a/by) where 0 <= b < step and step divides by.
            small = {atom: c for atom, c in rest.terms.items() if c % step}
            low, high = self._interval(Linear(small, rest.const % step))
            if low is not None and high is not None and low >= 0 and high < step:
                big = {atom: c for atom, c in rest.terms.items() if c % step == 0}
                return self._quotient(self._sum(big, rest.const - rest.const % step), by)
        if len(rest.terms) == 1:
            ((atom, c),) = rest.terms.items()
            if c == 1 and isinstance(atom, Call) and atom.op == "floordiv":
                # floor((floor(e/a) + b)/c) is floor((e + a*b)/(a*c)).
                inner = self.linear(atom.args[1]).const
                shifted = plus(self.linear(atom.args[0]), Linear({}, rest.const * inner), 1)
                return self._quotient(shifted, by * inner)
        return Linear({Call("floordiv", (expression(rest), Const(by))): 1}, 0)

    def _sum(self, terms: Mapping[Expr, int], const: int) -> Linear:
        """A folded form unfolded again."""
        out = Linear({}, const)
        for atom, c in terms.items():
            out = plus(out, self.linear(atom), c)
        return out

    def _extremum(self, op: str, a: Linear, b: Linear) -> Linear:
        parts: list[Linear] = []
        for form in (*self._parts(op, a), *self._parts(op, b)):
            # A part that another one makes superfluous is dropped.
            if any(self._decides(op, other, form) for other in parts):
                continue
            parts = [p for p in parts if not self._decides(op, form, p)] + [form]
        if len(parts) == 1:
            return parts[0]
        combine = minimum if op == "min" else maximum
        exprs = sorted((expression(p) for p in parts), key=_order)
        out = exprs[0]
        for part in exprs[1:]:
            out = combine(out, part)
        return Linear({out: 1}, 0)

    def _parts(self, op: str, form: Linear) -> list[Linear]:
        found: list[Linear] = []
        stack = [form]
        while stack:
            item = stack.pop()
            (atom, c), *more = item.terms.items() or ((None, 0),)
            if isinstance(atom, Call) and (atom.op, c, item.const) == (op, 1, 0) and not more:
                stack += [self.linear(arg) for arg in reversed(atom.args)]
            else:
                found.append(item)
        return found

    def _decides(self, op: str, a: Linear, b: Linear) -> bool:
        """Is a <= b for certain (for min; a >= b for max)?"""
        low, high = self.interval(plus(b, a, -1))
        return low is not None and low >= 0 if op == "min" else high is not None and high <= 0

    def bounds(self, expr: Expr) -> Interval:
        """Inclusive bounds of an expression."""
        found = self._bounds.get(expr)
        if found is None:
            for item in walk(expr):  # what lies deeper first
                if isinstance(item, Call) and item.op in ("floordiv", "min", "max"):
                    for arg in item.args:
                        if arg not in self._bounds:
                            self._bounds[arg] = self.interval(self.linear(arg))
            found = self._bounds[expr] = self.interval(self.linear(expr))
        return found

    def interval(self, form: Linear) -> Interval:
        """Inclusive bounds of a form."""
        return self._interval(folded(form))

    def _interval(self, form: Linear) -> Interval:
        low: int | None = form.const
        high: int | None = form.const
        for atom, c in form.terms.items():
            a, b = self._atom_interval(atom) if c > 0 else reversed(self._atom_interval(atom))
            low = None if low is None or a is None else low + c * a
            high = None if high is None or b is None else high + c * b
        return low, high

    def _atom_interval(self, atom: Expr) -> Interval:
        match atom:
            case Index(name):
                return self.ranges.get(name, (None, None))
            case Size():
                return 0, None
            case Call("floordiv", (a, Const(int() as by, _))):
                low, high = self.bounds(a)
                return None if low is None else low // by, None if high is None else high // by
            case Call("mod", (_, Const(int() as by, _))):
                return 0, by - 1
            case Call("min", (a, b)):
                (a0, a1), (b0, b1) = (self.bounds(x) for x in (a, b))
                known = [x for x in (a1, b1) if x is not None]
                low = None if a0 is None or b0 is None else min(a0, b0)
                return low, min(known, default=None)
            case Call("max", (a, b)):
                (a0, a1), (b0, b1) = (self.bounds(x) for x in (a, b))
                known = [x for x in (a0, b0) if x is not None]
                high = None if a1 is None or b1 is None else max(a1, b1)
                return max(known, default=None), high
        return None, None


def plus(a: Linear, b: Linear, factor: int) -> Linear:
    terms = dict(a.terms)
    for atom, c in b.terms.items():
        total = terms.get(atom, 0) + factor * c
        if total:
            terms[atom] = total
        else:
            del terms[atom]
    return Linear(terms, a.const + factor * b.const)


def times(a: Linear, factor: int) -> Linear:
    if factor == 0:
        return Linear({}, 0)
    return Linear({atom: c * factor for atom, c in a.terms.items()}, a.const * factor)


def folded(form: Linear) -> Linear:
    """The form with remainders instead of differences: x - 8*(x//8) is x % 8."""
    for atom, c in form.terms.items():
        by = _divisor(atom)
        found = None if by is None else _remainder(form, atom, by, c)
        if found is not None:
            return folded(found)
    return form


def _remainder(form: Linear, quotient: Expr, by: int, c: int) -> Linear | None:
    """Uses k*e - k*n*(e//n) = k*(e % n), and k*(e//d) - k*n*(e//(d*n)) = k*((e//d) % n)."""
    others = {atom: n for atom, n in form.terms.items() if atom is not quotient}
    for dividend, n in _dividends(children(quotient)[0], by, others):
        k = -c // n
        if c % n == 0 and all(others.get(a, 0) == k * m for a, m in dividend.terms.items()):
            rest = {a: m for a, m in others.items() if a not in dividend.terms}
            atom = mod(expression(dividend), Const(n))
            rest[atom] = rest.get(atom, 0) + k
            kept = {a: m for a, m in rest.items() if m}
            return Linear(kept, form.const - k * dividend.const)
    return None


def _dividends(arg: Expr, by: int, others: Mapping[Expr, int]) -> list[tuple[Linear, int]]:
    out = [(plain().linear(arg), by)]
    for atom in others:
        smaller = _divisor(atom)
        if smaller and by > smaller and by % smaller == 0 and children(atom)[0] is arg:
            out.append((Linear({atom: 1}, 0), by // smaller))
    return out


def _divisor(atom: Expr) -> int | None:
    match atom:
        case Call("floordiv", (_, Const(int() as by, _))):
            return by
    return None


_plain = Reader({})


def plain() -> Reader:
    """The reader of what holds for all values of indices."""
    global _plain
    if len(_plain.forms) + len(_plain.normals) > 1 << 16:
        _plain = Reader({})  # a new one: other threads may still be using the old
    return _plain


def constant(expr: Expr) -> int | None:
    """The value of an expression that is the same everywhere."""
    form = plain().linear(expr)
    return None if form.terms else form.const


def _order(expr: Expr) -> tuple[int, str | _Structure]:
    match expr:
        case Index(name):
            return 0, name
        case Size(name):
            return 1, name
    return 2, _Structure(expr)


class _Structure:
    """A place for every expression in one order: that of labels, outer parts first."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Structure) and self.expr is other.expr

    def __hash__(self) -> int:
        return hash(self.expr)

    def __lt__(self, other: _Structure) -> bool:
        a, b = self.expr, other.expr
        while True:  # two nodes that differ in parts only differ in the first that do
            x, y = _label(a), _label(b)
            if x != y:
                return x < y
            parts = zip(children(a), children(b), strict=True)
            differ = next((pair for pair in parts if pair[0] is not pair[1]), None)
            if differ is None:
                return False
            a, b = differ


def _label(expr: Expr) -> tuple[str, ...]:
    """What a node says besides its parts, and how many these are."""
    fields = (getattr(expr, name) for name in type(expr).__match_args__)
    own = (str(field) for field in fields if not isinstance(field, (Expr, tuple)))
    return (type(expr).__name__, *own, str(len(children(expr))))


def expression(form: Linear) -> Expr:
    """A form as an expression: positive terms first, larger coefficients first."""
    form = folded(form)
    terms = sorted(form.terms.items(), key=lambda t: (t[1] < 0, -abs(t[1]), _order(t[0])))
    if not terms:
        return Const(form.const)
    starts_negative = terms[0][1] < 0
    if starts_negative and form.const:  # 3 - i rather than -i + 3
        out: Expr = Const(form.const)
    else:
        atom, c = terms.pop(0)
        out = Call("neg", (atom,)) if c == -1 else _scaled(c, atom)
    for atom, c in terms:
        out = Call("add" if c > 0 else "sub", (out, _scaled(abs(c), atom)))
    if form.const == 0 or starts_negative:
        return out
    return Call("add" if form.const > 0 else "sub", (out, Const(abs(form.const))))


def _scaled(c: int, atom: Expr) -> Expr:
    return atom if c == 1 else Call("mul", (Const(c), atom))
