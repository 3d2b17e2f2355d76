"""Sums in sums, which are the same in whichever order they stand.

A polynomial has one sum in another, what does not depend on an index before its sum, so that
`sum(p[j] * sum(v[j,e] * d[e]))` and `sum(d[e] * sum(v[j,e] * p[j]))` are two atoms. Here both are
one sum over j and e.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, permutations

from ..algo.tensor_expr.expr import Expr, Index
from .polynomial import Atom, Monomial, Polynomial, Sum, renamed

MOST = 4
"""Indices of a sum up to which all orders of them are tried."""


@dataclass(frozen=True, slots=True)
class Nest:
    """The sum of a product over several indices, called by their places among the extents."""

    extents: tuple[Expr, ...]
    product: Monomial


def is_zero(a: Polynomial) -> bool:
    """Is a polynomial zero, whatever the order of its sums?"""
    if not a or not any(map(_is_nested, a)):
        return not a
    totals: dict[frozenset[tuple[Atom | Nest, int]], Fraction] = {}
    for monomial, factor in a.items():
        powers: Counter[Atom | Nest] = Counter()
        for item, n in monomial:
            powers[_nest(item) or item] += n
        flat = frozenset((item, n) for item, n in powers.items() if n)
        totals[flat] = totals.get(flat, Fraction(0)) + factor
    return not any(totals.values())


def _is_nested(monomial: Monomial) -> bool:
    return any(isinstance(item, Sum) and item.depth > 1 for item, _ in monomial)


def _nest(item: Atom) -> Nest | None:
    """A sum with sums in it as one, its indices in the order that reads first."""
    if not isinstance(item, Sum) or item.depth == 1:
        return None
    extents: dict[str, Expr] = {}
    product = _opened(item, extents)
    if len(extents) > MOST:
        return None
    ways = (_ordered(order, extents, product) for order in permutations(extents))
    return min(ways, key=_text)


def _ordered(order: tuple[str, ...], extents: Mapping[str, Expr], product: Monomial) -> Nest:
    names: dict[Expr, Expr] = {Index(old): Index(f"%n{n}") for n, old in enumerate(order)}
    return Nest(tuple(extents[name] for name in order), renamed(product, names))


def _text(nest: Nest) -> tuple[str, list[str]]:
    return repr(nest.extents), sorted(map(repr, nest.product))


def _opened(item: Sum, extents: dict[str, Expr]) -> Monomial:
    """What a sum with the sums in it adds; adds their indices, called anew, to `extents`."""
    name = next(name for n in count() if (name := f"%o{n}") not in extents)
    extents[name] = item.extent
    powers: Counter[Atom] = Counter()
    for part, n in renamed(item.product, {Index(item.index): Index(name)}):
        inner = _opened(part, extents) if isinstance(part, Sum) and n == 1 else [(part, n)]
        for other, m in inner:
            powers[other] += m
    return frozenset((other, n) for other, n in powers.items() if n)
