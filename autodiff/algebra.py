"""What the real numbers say of cotangents: which are zero whatever they are.

The maximum that a softmax subtracts, the mean that a variance subtracts: the result does not depend
on them, so their cotangents are sums that vanish, and all that is behind them with them. There a
choice is a product: `where(c, a, b)` is a where c is 1 and b where it is 0, and c*c is c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction

from ..algo.steps import Steps, finish
from ..algo.tensor_expr.affine import normalize
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    Range,
    accesses,
    substitute,
    walk,
)
from . import polynomial as ring
from .cotangent import Cotangent
from .gather import own
from .nests import is_zero
from .polynomial import Beyond, Polynomial
from .statements import Normal

Meaning = tuple[tuple[Expr, ...], Sequence[tuple[tuple[Range, ...], Expr]]]
"""What a tensor is: its element T[lhs] as the sum of terms, each a sum over ranges."""
MeaningOf = Callable[[str], Meaning | None]
MOST = 1024
"""Numerators and denominators of numbers up to this, the latter powers of two, are exact in every
float."""
NEAR = 4
"""Definitions of tensors through which it is looked for what cancels."""
ELEMENTS = 64
"""Elements of tensors, at different places, that are written as what they are: each may read
several others at several places."""


class Algebra:
    """Expressions as polynomials, in which elements of tensors with a meaning are that, what is
    `whole` an atom, and `choices` products."""

    def __init__(
        self,
        meaning: MeaningOf,
        whole: Callable[[Expr], bool] = lambda e: False,
        choices: bool = False,
    ) -> None:
        self.meaning, self.whole, self.choices = meaning, whole, choices
        self.names: dict[Expr, str] = {}  # of the indices of sums, by how far they run
        self.known: dict[Expr, Polynomial] = {}
        self.open: set[str] = set()
        self.left = ELEMENTS

    def of(self, expr: Expr) -> Polynomial:
        """The polynomial of an expression. Raises `Beyond`."""
        found: Polynomial = finish(self._of(expr))
        return found

    def total(self, parts: Iterable[tuple[tuple[Range, ...], Expr]]) -> Polynomial:
        """The polynomial of a sum of sums over ranges. Raises `Beyond`."""
        found: Polynomial = finish(self._total(parts))
        return found

    def _total(self, parts: Iterable[tuple[tuple[Range, ...], Expr]]) -> Steps:
        out: Polynomial = {}
        for ranges, value in parts:
            found = yield self._of(value)
            for r in reversed(ranges):
                if r.lo is not Const(0):
                    raise Beyond
                found = ring.summed(found, r.index, r.hi)
                self.names.setdefault(r.hi, r.index.split("%")[0])
            out = ring.plus(out, found)
        return out

    def _of(self, expr: Expr) -> Steps:
        found = self.known.get(expr)
        if found is None:
            found = self.known[expr] = yield self._made(expr)
        return found

    def _made(self, expr: Expr) -> Steps:
        if self.whole(expr):
            return ring.atom(normalize(expr))
        match expr:
            case Const(value, None) if (number := _exact(value)) is not None:
                return ring.constant(number)
            case Call("neg", (a,)):
                return ring.minus((yield self._of(a)))
            case Call("add", (a, b)):
                return ring.plus((yield self._of(a)), (yield self._of(b)))
            case Call("sub", (a, b)):
                one = yield self._of(a)
                return ring.plus(one, ring.minus((yield self._of(b))))
            case Call("mul", (a, b)):
                return ring.times((yield self._of(a)), (yield self._of(b)))
            case Call("div", (a, b)):
                return ring.times((yield self._of(a)), (yield self._inverse(b)))
            case Call("pow", (a, Const(int(n), None))) if 0 < n <= 4:
                return ring.power((yield self._of(a)), n)
            case Call("where", (c, a, b)) if self.choices:
                yes, no = (yield self._of(a)), (yield self._of(b))
                return ring.plus(no, ring.times(_chosen(c), ring.plus(yes, ring.minus(no))))
            case Access():
                return (yield self._element(expr))
        return ring.atom(normalize(expr))

    def _inverse(self, expr: Expr) -> Steps:
        try:
            return ring.power((yield self._of(expr)), -1)
        except Beyond:
            return ring.power(ring.atom(normalize(expr)), -1)

    def _element(self, access: Access) -> Steps:
        meaning = None if access.tensor in self.open else self.meaning(access.tensor)
        if meaning is None or not self.left:
            return ring.atom(access)
        self.left -= 1
        lhs, parts = meaning
        at = dict(zip(lhs, access.indices, strict=True))
        self.open.add(access.tensor)
        try:
            return (yield self._total([_at(ranges, value, at) for ranges, value in parts]))
        except Beyond:
            return ring.atom(access)
        finally:
            self.open.remove(access.tensor)


def _exact(value: object) -> Fraction | None:
    """A number that every type of floats has; not 0.0, whose products are not 0 for all floats."""
    if type(value) is int:
        return Fraction(value)
    if type(value) is not float or not 0 < abs(value) <= MOST:
        return None
    found = Fraction(value)
    return found if abs(found.numerator) <= MOST and found.denominator <= MOST else None


def _chosen(condition: Expr) -> Polynomial:
    """1 where a condition holds, else 0."""
    match condition:
        case Const(value, _):
            return ring.constant(1 if value else 0)
        case Call("not", (other,)):
            return ring.plus(ring.constant(1), ring.minus(_chosen(other)))
        case Call("and", (a, b)):
            return ring.times(_chosen(a), _chosen(b))
    return ring.atom(Call("where", (normalize(condition), *ring.CHOICE)))


def _under(conditions: Iterable[Expr], value: Expr) -> Expr:
    """A value where all conditions hold, else 0."""
    for condition in conditions:
        value = Call("where", (condition, value, Const(0)))
    return value


def _at(
    ranges: tuple[Range, ...], value: Expr, at: Mapping[Expr, Expr]
) -> tuple[tuple[Range, ...], Expr]:
    """A term at other indices, its bound ones called anew."""
    fresh = {r.index: own(r.index) for r in ranges}
    bound: dict[Expr, Expr] = {Index(old): Index(new) for old, new in fresh.items()}
    return (
        tuple(Range(fresh[r.index], r.lo, r.hi) for r in ranges),
        substitute(value, {**at, **bound}),
    )


def forward_meaning(normal: Normal, tensor: str) -> Meaning | None:
    """The meaning of a tensor of the operator, where one plain equation or sum says it."""
    statements = normal.of(tensor)
    if len(statements) != 1:
        return None
    (s,) = statements
    names = [e.name for e in s.lhs if isinstance(e, Index)]
    plain = len(set(names)) == len(s.lhs) and s.reducer in (None, "sum")
    if not plain or any(isinstance(a, Access) and a.tensor == tensor for a in walk(s.body)):
        return None
    bound = tuple(r for r in s.ranges if r.index not in names)
    return s.lhs, [(bound, _under(s.where, s.body))]


def meaning_of(c: Cotangent) -> Meaning | None:
    """The meaning of a cotangent to which nothing is added by data."""
    if c.scatters:
        return None
    given: list[tuple[tuple[Range, ...], Expr]] = [] if c.seed is None else [((), c.seed)]
    return c.lhs, given + [(t.bound, _under(t.where, t.value)) for t in c.terms]


def without_zeros(c: Cotangent, normal: Normal, cotangents: Mapping[str, Cotangent]) -> None:
    """Leaves out terms of a cotangent that vanish, and all if their sum does."""
    by_name = {other.name: other for other in cotangents.values()}

    def forward(tensor: str) -> Meaning | None:
        return None if tensor in by_name else forward_meaning(normal, tensor)

    def both(tensor: str) -> Meaning | None:
        return meaning_of(by_name[tensor]) if tensor in by_name else forward(tensor)

    parts = [(t.bound, _under(t.where, t.value)) for t in c.terms]
    # The short way first: the other may be beyond us.
    ways = [Algebra(_near(parts, meaning), choices=True) for meaning in (forward, both)]

    def vanish(parts: Sequence[tuple[tuple[Range, ...], Expr]]) -> bool:
        for algebra in ways:
            with suppress(Beyond):
                if is_zero(algebra.total(parts)):
                    return True
        return False

    if parts and vanish(parts):
        c.terms = []
    c.terms = [
        t for t, part in zip(c.terms, parts, strict=False) if not t.bound or not vanish([part])
    ]


def _near(parts: Sequence[tuple[tuple[Range, ...], Expr]], meaning: MeaningOf) -> MeaningOf:
    """The meanings of tensors that a sum reads, or that those read, and so on `NEAR` times: what
    cancels is near, and so the work does not grow with the operator."""
    found: dict[str, Meaning | None] = {}
    for _ in range(NEAR):
        read = {a.tensor for _, value in parts for a in accesses(value)} - found.keys()
        found |= {tensor: meaning(tensor) for tensor in read}
        parts = [part for tensor in read for part in (found[tensor] or ((), ()))[1]]
    return found.get
