"""Polynomials as expressions that a person would write: what terms have in common before them.

Products begin with numbers and then with what is surely a float, so that none is computed in
integers that the original computes in floats; what cannot be written so is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from functools import cmp_to_key, reduce
from typing import Any

from ..algo.tensor_expr.build import add, mul, sub
from ..algo.tensor_expr.expr import Access, Call, Const, Expr, Index, Range, Reduce, accesses
from ..algo.tensor_expr.simplify import is_float
from .polynomial import ONE, Atom, Beyond, Monomial, Polynomial, Sum, free, minus, renamed


class Writer:
    """Writes polynomials. `names` says what an index is called by how far it runs, `floats` which
    tensors have float elements, `powers` up to which power what may be written as one: a power of
    itself may overflow where what it is multiplied by is 0."""

    def __init__(
        self, names: Mapping[Expr, str], floats: Collection[str], powers: Callable[[Expr], int]
    ) -> None:
        self.names, self.floats, self.powers = names, floats, powers

    def __call__(self, a: Polynomial) -> Expr:
        """Raises `Beyond` where the types might not be those of the original."""
        if len(a) == 1:
            ((monomial, factor),) = a.items()
            return self._term(monomial, factor)
        common = ONE
        for n, monomial in enumerate(a):
            common = monomial if n == 0 else common & monomial
        if not any(map(self._leads, common)):
            common = frozenset(pair for pair in common if pair[1] < 0)
            rest = {monomial - common: factor for monomial, factor in a.items()}
            return self._divided(self._sum(rest), common, 1)
        rest = {monomial - common: factor for monomial, factor in a.items()}
        return mul(self._product(common, Fraction(1)), self._sum(rest))

    def _leads(self, power: tuple[Atom, int]) -> bool:
        """Can a product begin with this?"""
        return power[1] > 0 and self._sure(power[0])

    def _sum(self, a: Polynomial) -> Expr:
        """A sum of terms that have nothing in common; those that share most are put together."""
        if not a:
            return Const(0)
        counts: dict[tuple[Atom, int], int] = {}
        for pair in (pair for monomial in a for pair in monomial if self._leads(pair)):
            counts[pair] = counts.get(pair, 0) + 1
        often = max(counts.values(), default=0)
        addends: dict[Monomial, Fraction] = dict(a)
        parts: list[tuple[bool, Expr, Expr]] = []  # is it negative, its amount, itself
        if 1 < often < len(a):
            most = [pair for pair, n in counts.items() if n == often]
            shared = min(most, key=lambda pair: (self._key(pair[0]), pair[1]))
            inside = {m: f for m, f in a.items() if shared in m}
            negative = all(f < 0 for f in inside.values())
            amount = self(minus(inside) if negative else inside)
            parts = [(negative, amount, Call("neg", (amount,)) if negative else amount)]
            addends = {m: f for m, f in a.items() if shared not in m}
        ordered = sorted(addends.items(), key=lambda term: (term[1] < 0, self._order(term[0])))
        parts += [(f < 0, self._product(m, abs(f)), self._term(m, f)) for m, f in ordered]
        # What is a sum itself needs no parentheses where it is first.
        parts.sort(key=lambda part: (part[0], not _is_sum(part[1])))
        (_, _, out), *others = parts
        for negative, amount, _ in others:
            out = (sub if negative else add)(out, amount)
        return out

    def _term(self, monomial: Monomial, factor: Fraction) -> Expr:
        """A product with its sign at its number, if it has one."""
        if factor > 0 or abs(factor.numerator) != 1:
            return self._product(monomial, factor)
        return Call("neg", (self._product(monomial, -factor),))

    def _product(self, monomial: Monomial, factor: Fraction) -> Expr:
        if not monomial and factor.denominator == 1:
            return Const(factor.numerator)
        ordered = self._sorted(monomial)
        if not any(self._sure(item) for item, n in ordered if n > 0):
            raise Beyond
        exact = factor.denominator & (factor.denominator - 1) == 0
        half = factor.denominator != 1 and (factor.numerator == 1 or not exact)
        number = factor.numerator if half or factor.denominator == 1 else float(factor)
        out: Expr | None = None if number == 1 else Const(number)
        for item, n in ordered:
            for power in self._powers(item, n) if n > 0 else ():
                out = power if out is None else mul(out, power)
        assert out is not None
        return self._divided(out, monomial, factor.denominator if half else 1)

    def _divided(self, out: Expr, monomial: Monomial, number: int) -> Expr:
        """What is divided by a number and by the negative powers of a monomial."""
        below = [self._expr(item) for item, n in self._sorted(monomial) for _ in range(-n)]
        sizes = [e for e in below if not accesses(e)]  # whose product is exact
        parts = [*(e for e in below if accesses(e)), *([reduce(mul, sizes)] if sizes else [])]
        if number != 1:
            if sizes:
                parts[-1] = mul(Const(number), parts[-1])
            elif parts and is_float(parts[0], self.floats):
                parts[0] = mul(Const(number), parts[0])
            else:
                parts.insert(0, Const(number))
        for e in parts:
            out = Call("div", (out, e))
        return out

    def _powers(self, item: Atom, n: int) -> list[Expr]:
        """The factors of a power: of what may be integers each by itself, after the floats."""
        base = self._expr(item)
        most = self.powers(base) if self._sure(item) else 1
        whole, rest = divmod(n, most) if most > 1 else (0, n)
        parts = [most] * whole + ([rest] if most > 1 and rest else [1] * rest)
        return [base if p == 1 else Call("pow", (base, Const(p))) for p in parts]

    def _expr(self, item: Atom) -> Expr:
        if isinstance(item, Expr):
            return item
        bound, product = _flat(item)
        ranges = []
        for index, extent in bound:
            name = f"{self.names.get(extent, '')}{index}"
            product = renamed(product, {Index(index): Index(name)})
            ranges.append(Range(name, Const(0), extent))
        body = self._product(product, Fraction(1))
        return Reduce("sum", tuple(r.index for r in ranges), body, tuple(ranges))

    def _sure(self, item: Atom) -> bool:
        """Is it a float whatever is not known, and no number?"""
        if isinstance(item, Sum):
            return any(self._sure(part) for part, n in item.product if n > 0)
        return not isinstance(item, Const) and is_float(item, self.floats)

    def _sorted(self, monomial: Monomial) -> list[tuple[Atom, int]]:
        return sorted(monomial, key=lambda pair: self._key(pair[0]))

    def _order(self, monomial: Monomial) -> list[Key]:
        return [self._key(item) for item, _ in self._sorted(monomial)]

    def _key(self, item: Atom) -> Key:
        """Numbers, then floats, elements before calls before sums; an order that depends on nothing
        else."""
        if isinstance(item, Const):
            return 0, 0, _place(item)
        if isinstance(item, Sum):
            return 1 + (not self._sure(item)), 2, [*self._order(item.product), LAST]
        return 1 + (not self._sure(item)), 0 if isinstance(item, Access) else 1, _place(item)


Key = tuple[int, int, Any]
LAST: Key = (3, 0, None)
"""After the keys of a product, so that a longer one is before its beginning."""


def _alphabetic(a: Any, b: Any) -> int:
    """The order of the texts of two expressions, found where they first differ: as parts that are
    the same are one object, that costs their depth, where their texts may be as long as trees."""
    while a.__class__ is b.__class__ and isinstance(a, (Expr, tuple)) and not isinstance(a, Const):
        if isinstance(a, Expr):
            a, b = (tuple(getattr(e, name) for name in e.__match_args__) for e in (a, b))
        differ = ((x, y) for x, y in zip(a, b, strict=False) if x != y)
        a, b = next(differ, (len(b), len(a)))
    one, two = (e.__class__.__name__ if isinstance(e, Expr) and not isinstance(e, Const)
                else repr(e) for e in (a, b))  # fmt: skip
    return (one > two) - (one < two)


_place = cmp_to_key(_alphabetic)


def _is_sum(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.op in ("add", "sub")


def _flat(item: Sum) -> tuple[list[tuple[str, Expr]], Monomial]:
    """The indices of a sum, with those of a sum in it that has as many instances as it is, and what
    is added."""
    bound, product = [(item.index, item.extent)], item.product
    while True:
        inner = next((p for p, n in product if isinstance(p, Sum) and n == 1), None)
        if inner is None or not {name for name, _ in bound} <= free(inner):
            return bound, product
        bound.append((inner.index, inner.extent))
        powers = dict(product - {(inner, 1)})
        for part, n in inner.product:
            powers[part] = powers.get(part, 0) + n
        product = frozenset(pair for pair in powers.items() if pair[1])
