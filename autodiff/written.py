"""Polynomials as expressions that a person would write: what all terms have in common before them.

Products begin with what is surely a float, so that none is computed in integers that the original
computes in floats; what cannot be written so is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

from ..algo.tensor_expr.build import add, mul, sub
from ..algo.tensor_expr.expr import Access, Call, Const, Expr, Index, Range, Reduce
from ..algo.tensor_expr.simplify import is_float
from .polynomial import ONE, Atom, Beyond, Monomial, Polynomial, Sum, renamed


class Writer:
    """Writes polynomials. `names` says what an index is called by how far it runs, `floats` which
    tensors have float elements."""

    def __init__(self, names: Mapping[Expr, str], floats: Collection[str]) -> None:
        self.names, self.floats = names, floats

    def __call__(self, a: Polynomial) -> Expr:
        """Raises `Beyond` where the types might not be those of the original."""
        common = ONE
        for n, monomial in enumerate(a):
            common = monomial if n == 0 else common & monomial
        rest = {monomial - common: factor for monomial, factor in a.items()}
        if len(rest) == 1:
            ((_, factor),) = rest.items()
            product = self._product(common, abs(factor))
            return product if factor > 0 else Call("neg", (product,))
        inner: Expr | None = None
        ordered = sorted(rest.items(), key=lambda term: (term[1] < 0, self._order(term[0])))
        for monomial, factor in ordered:
            term = self._product(monomial, abs(factor))
            if inner is None:
                inner = term if factor > 0 else Call("neg", (term,))
            else:
                inner = (add if factor > 0 else sub)(inner, term)
        if inner is None or not common:
            return inner or Const(0)
        return mul(self._product(common, Fraction(1)), inner)

    def _product(self, monomial: Monomial, factor: Fraction) -> Expr:
        if not monomial and factor.denominator == 1:
            return Const(factor.numerator)
        ordered = self._sorted(monomial)
        if not any(self._sure(item) for item, n in ordered if n > 0):
            raise Beyond
        out: Expr | None = None if factor.numerator == 1 else Const(factor.numerator)
        for item, n in ordered:
            for _ in range(n):
                out = self._expr(item) if out is None else mul(out, self._expr(item))
        assert out is not None
        if factor.denominator != 1:
            out = Call("div", (out, Const(factor.denominator)))
        for item, n in ordered:
            for _ in range(-n):
                out = Call("div", (out, self._expr(item)))
        return out

    def _expr(self, item: Atom) -> Expr:
        if isinstance(item, Expr):
            return item
        name = f"{self.names.get(item.extent, '')}{item.index}"
        product = renamed(item.product, {Index(item.index): Index(name)})
        body = self._product(product, Fraction(1))
        return Reduce("sum", (name,), body, (Range(name, Const(0), item.extent),))

    def _sure(self, item: Atom) -> bool:
        """Is it a float whatever is not known?"""
        if isinstance(item, Sum):
            return any(self._sure(part) for part, n in item.product if n > 0)
        return is_float(item, self.floats)

    def _sorted(self, monomial: Monomial) -> list[tuple[Atom, int]]:
        return sorted(monomial, key=lambda pair: self._key(pair[0]))

    def _order(self, monomial: Monomial) -> list[tuple[bool, int, str]]:
        return [self._key(item) for item, _ in self._sorted(monomial)]

    def _key(self, item: Atom) -> tuple[bool, int, str]:
        """Elements before calls before sums; an order that depends on nothing else."""
        if isinstance(item, Sum):
            return not self._sure(item), 2, repr(self._order(item.product))
        return not self._sure(item), 0 if isinstance(item, Access) else 1, repr(item)
