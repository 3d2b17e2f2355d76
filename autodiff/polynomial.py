"""Expressions as polynomials over the reals, in which sums are linear: two are equal if their
normal forms are.

A monomial is a product of powers of atoms: elements of tensors, calls of other operations, sizes
and indices, and sums over one index of a product that depends on it. What a sum does not depend on
stands before it, so `sum(a[i] * x[i,j])` is a[i] times the sum of x[i,j], and a sum of nothing that
varies is its number of instances. Bound indices have names of their own by depth.

This is algebra, not arithmetic: it says nothing of rounding, infinities and NaN, and serves to
choose a form of a derivative, which `written.py` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ..algo.tensor_expr.affine import normalize
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    accesses,
    indices_of,
    substitute,
)
from .length import nodes

LIMIT = 48
"""Monomials of a polynomial, and factors of one: with more it is no simpler form of anything."""


CHOICE = (Const(True), Const(False))
"""What a choice is between, as an atom: 1 where its condition holds, else 0."""
ROOTS = {"sqrt": 1, "rsqrt": -1}
"""Square roots, and the power of the root that each is."""


class Beyond(Exception):
    """No polynomial, or a large one."""


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum over an index, called by its depth, from 0 to `extent`, of a product."""

    index: str
    extent: Expr
    product: Monomial

    @property
    def depth(self) -> int:
        """1 for a sum without sums inside."""
        return int(self.index[2:])


Atom = Expr | Sum
Monomial = frozenset[tuple[Atom, int]]
Polynomial = Mapping[Monomial, Fraction]
ONE: Monomial = frozenset()


def constant(value: int | Fraction) -> Polynomial:
    """A number."""
    return {ONE: Fraction(value)} if value else {}


def atom(item: Atom) -> Polynomial:
    """An atom by itself."""
    return {frozenset(((item, 1),)): Fraction(1)}


def plus(a: Polynomial, b: Polynomial) -> Polynomial:
    """The sum of two polynomials."""
    out = dict(a)
    for monomial, factor in b.items():
        total = out.pop(monomial, Fraction(0)) + factor
        if total:
            out[monomial] = total
    if len(out) > LIMIT:
        raise Beyond
    return out


def minus(a: Polynomial) -> Polynomial:
    """The negative of a polynomial."""
    return {monomial: -factor for monomial, factor in a.items()}


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    """The product of two polynomials."""
    if len(a) * len(b) > LIMIT:
        raise Beyond
    out: Polynomial = {}
    for one, factor in a.items():
        for two, other in b.items():
            out = plus(out, {_joined(one, two): factor * other})
    return out


def _joined(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for item, power in b:
        total = powers.pop(item, 0) + power
        if total:
            powers[item] = 1 if is_choice(item) else total
    for item in [item for item in powers if isinstance(item, Call) and item.op in ROOTS]:
        _reduce_root(powers, item)
    if sum(map(abs, powers.values())) > LIMIT:
        raise Beyond
    return frozenset(powers.items())


def _reduce_root(powers: dict[Atom, int], root: Call) -> None:
    """Writes powers of a root, and of what is under it, with the root itself once at most."""
    (inside,) = root.args
    if not isinstance(inside, Access) and not (
        isinstance(inside, Call) and inside.op in ("add", "sub")
    ):
        return
    sign = ROOTS[str(root.op)]
    halves = 2 * powers.pop(inside, 0) + sign * powers.pop(root)
    once = 0 if halves % 2 == 0 else 1 if sign < 0 or halves > 0 else -1
    if once:
        powers[root] = once
    if halves != sign * once:
        powers[inside] = (halves - sign * once) // 2


def is_choice(item: Atom) -> bool:
    """Is an atom 1 where a condition holds, else 0, and so each of its powers?"""
    return isinstance(item, Call) and item.op == "where" and item.args[1:] == CHOICE


def power(a: Polynomial, n: int) -> Polynomial:
    """A whole power; a negative one of a single monomial only."""
    if n < 0:
        if len(a) != 1:
            raise Beyond
        ((monomial, factor),) = a.items()
        if any(is_choice(item) for item, _ in monomial):
            raise Beyond
        a, n = {frozenset((item, -p) for item, p in monomial): 1 / factor}, -n
    if n > 4:
        raise Beyond
    out = constant(1)
    for _ in range(n):
        out = times(out, a)
    return out


def summed(a: Polynomial, index: str, extent: Expr) -> Polynomial:
    """The sum of a polynomial over an index from 0 to `extent`."""
    out: Polynomial = {}
    for monomial, factor in a.items():
        inside = frozenset(pair for pair in monomial if index in free(pair[0]))
        before: Polynomial = {monomial - inside: factor}
        if inside:
            depth = 1 + max((i.depth for i, _ in inside if isinstance(i, Sum)), default=0)
            name = f"%s{depth}"
            product = renamed(inside, {Index(index): Index(name)})
            out = plus(out, times(before, atom(Sum(name, extent, product))))
        else:
            out = plus(out, times(before, _of_size(extent)))
    return out


def _of_size(extent: Expr) -> Polynomial:
    if isinstance(extent, Const) and type(extent.value) is int:
        return constant(extent.value)
    return atom(extent)


def renamed(monomial: Monomial, names: Mapping[Expr, Expr]) -> Monomial:
    """A monomial with free indices replaced; atoms that become the same are one, to a power."""
    out: dict[Atom, int] = {}
    for item, n in monomial:
        made: Atom
        if isinstance(item, Sum):
            made = Sum(item.index, item.extent, renamed(item.product, names))
        else:
            made = _renamed(item, tuple(names.items()))
        out[made] = out.get(made, 0) + n
    return frozenset((item, n) for item, n in out.items() if n)


@lru_cache(maxsize=1 << 14)
def _renamed(item: Expr, names: tuple[tuple[Expr, Expr], ...]) -> Expr:
    return normalize(substitute(item, dict(names)))


def free(item: Atom) -> set[str]:
    """The free indices of an atom."""
    if isinstance(item, Sum):
        return {name for part, _ in item.product for name in free(part)} - {item.index}
    return set(indices_of(item))


def tensors(a: Polynomial) -> set[str]:
    """The tensors whose elements are in a polynomial, inside sums too."""
    out: set[str] = set()
    stack = list(a)
    while stack:
        for item, _ in stack.pop():
            if isinstance(item, Sum):
                stack.append(item.product)
            else:
                out.update(a.tensor for a in accesses(item))
    return out


def divisors(a: Polynomial) -> dict[Atom, int]:
    """By what a polynomial divides, and to which power at most, inside sums too."""
    out: dict[Atom, int] = {}
    stack = list(a)
    while stack:
        for item, n in stack.pop():
            if n < 0:
                out[item] = max(out.get(item, 0), -n)
            if isinstance(item, Sum):
                stack.append(item.product)
    return out


def replaced(a: Polynomial, old: Expr, new: Polynomial) -> Polynomial | None:
    """A polynomial with every element that is `old`, up to its indices, replaced by `new`; None if
    it has no such element.

    The indices of `old` are distinct; `new` has these.
    """
    atoms = dict.fromkeys(item for monomial in a for item, _ in monomial)
    instead = {item: other for item in atoms if (other := _replaced(item, old, new)) is not None}
    if not instead:
        return None
    out: Polynomial = {}
    for monomial, factor in a.items():
        changed = frozenset(pair for pair in monomial if pair[0] in instead)
        product: Polynomial = {monomial - changed: factor}
        for item, n in changed:
            product = times(product, power(instead[item], n))
        out = plus(out, product)
    return out


def _replaced(item: Atom, old: Expr, new: Polynomial) -> Polynomial | None:
    if isinstance(item, Sum):
        inside = replaced({item.product: Fraction(1)}, old, new)
        return None if inside is None else summed(inside, item.index, item.extent)
    values = matched(old, item)
    if values is None:
        return None
    out: Polynomial = {}
    for monomial, factor in new.items():
        out = plus(out, {renamed(monomial, values): factor})
    return out


def matched(pattern: Expr, item: Expr) -> dict[Expr, Expr] | None:
    """What the indices of `pattern` have to be so that it is `item`."""
    mine: list[Expr] = [Index(name) for name in indices_of(pattern)]
    if isinstance(pattern, Access) and isinstance(item, Access):
        if pattern.tensor != item.tensor or set(pattern.indices) != set(mine):
            return None
        values = dict(zip(pattern.indices, item.indices, strict=True))
    else:
        theirs = indices_of(item)
        if len(mine) != len(theirs):
            return None
        values = dict(zip(mine, map(Index, theirs), strict=True))
    if pattern is item or type(pattern) is not type(item):
        return values if pattern is item else None
    if nodes(pattern) != nodes(item):
        return None
    if isinstance(pattern, Call) and isinstance(item, Call) and pattern.op != item.op:
        return None
    return values if substitute(pattern, values) is item else None
