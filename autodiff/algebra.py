"""What the real numbers say of cotangents: which are zero whatever they are, and simpler forms.

The maximum that a softmax subtracts, the mean that a variance subtracts: the result does not depend
on them, so their cotangents are sums that vanish, and all that is behind them with them. And
`dx = dy*e/s - e*sum(dy*e/s)/s` reads, with y = e/s, as `dx = y*(dy - sum(y*dy))`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

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
    indices_of,
    substitute,
    walk,
)
from . import polynomial as ring
from .cotangent import Cotangent
from .gather import Term, own
from .polynomial import Beyond, Polynomial
from .statements import Normal
from .written import Writer

Meaning = tuple[tuple[Expr, ...], Sequence[tuple[tuple[Range, ...], Expr]]]
"""What a tensor is: its element T[lhs] as the sum of terms, each a sum over ranges."""
MeaningOf = Callable[[str], Meaning | None]


class Algebra:
    """Expressions as polynomials, in which elements of tensors with a meaning are that."""

    def __init__(self, meaning: MeaningOf, whole: Callable[[Expr], bool] = lambda e: False) -> None:
        self.meaning, self.whole = meaning, whole
        self.names: dict[Expr, str] = {}  # of the indices of sums, by how far they run
        self.known: dict[Expr, Polynomial] = {}
        self.open: set[str] = set()

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
            case Const(value, None) if type(value) is int:
                return ring.constant(value)
            case Call("neg", (a,)):
                return ring.times(ring.constant(-1), (yield self._of(a)))
            case Call("add", (a, b)):
                return ring.plus((yield self._of(a)), (yield self._of(b)))
            case Call("sub", (a, b)):
                one = yield self._of(a)
                return ring.plus(one, ring.times(ring.constant(-1), (yield self._of(b))))
            case Call("mul", (a, b)):
                return ring.times((yield self._of(a)), (yield self._of(b)))
            case Call("div", (a, b)):
                return ring.times((yield self._of(a)), (yield self._inverse(b)))
            case Call("pow", (a, Const(int(n), None))) if 0 < n <= 4:
                return ring.power((yield self._of(a)), n)
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
        if meaning is None:
            return ring.atom(access)
        lhs, parts = meaning
        at = dict(zip(lhs, access.indices, strict=True))
        self.open.add(access.tensor)
        try:
            return (yield self._total([_at(ranges, value, at) for ranges, value in parts]))
        except Beyond:
            return ring.atom(access)
        finally:
            self.open.remove(access.tensor)


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
    plain = len(set(names)) == len(s.lhs) and s.reducer in (None, "sum") and not s.where
    if not plain or any(isinstance(a, Access) and a.tensor == tensor for a in walk(s.body)):
        return None
    bound = tuple(r for r in s.ranges if r.index not in names)
    return s.lhs, [(bound, s.body)]


def meaning_of(c: Cotangent) -> Meaning | None:
    """The meaning of a cotangent to which nothing is added under conditions or by data."""
    if c.scatters or any(term.where for term in c.terms):
        return None
    given: list[tuple[tuple[Range, ...], Expr]] = [] if c.seed is None else [((), c.seed)]
    return c.lhs, given + [(term.bound, term.value) for term in c.terms]


def without_zeros(c: Cotangent, normal: Normal, cotangents: Mapping[str, Cotangent]) -> None:
    """Leaves out terms of a cotangent that vanish, and all if their sum does."""
    by_name = {other.name: other for other in cotangents.values()}

    def forward(tensor: str) -> Meaning | None:
        return None if tensor in by_name else forward_meaning(normal, tensor)

    def both(tensor: str) -> Meaning | None:
        return meaning_of(by_name[tensor]) if tensor in by_name else forward(tensor)

    ways = (Algebra(forward), Algebra(both))  # the short one first: the other may be beyond us

    def vanish(terms: Sequence[Term]) -> bool:
        for algebra in ways:
            with suppress(Beyond):
                if not algebra.total([(term.bound, term.value) for term in terms]):
                    return True
        return False

    if c.terms and not any(term.where for term in c.terms) and vanish(c.terms):
        c.terms = []
    c.terms = [t for t in c.terms if not t.bound or t.where or not vanish([t])]


def simpler(
    cotangents: Sequence[Cotangent], normal: Normal, floats: Collection[str]
) -> dict[str, Cotangent]:
    """Other forms of cotangents, by name: what can stand before a sum does, and those that one
    other reads, outside of sums, are written where they are read."""
    made = {c.name: c for c in cotangents}
    outside: dict[str, int] = {}
    inside: dict[str, int] = {}
    for c in cotangents:
        values = [(term.bound, term.value) for term in c.terms]
        values += [(s.ranges, s.value) for s in c.scatters.values()]
        for bound, value in values:
            counts = inside if bound else outside
            for a in walk(value):
                if isinstance(a, Access) and a.tensor in made:
                    counts[a.tensor] = counts.get(a.tensor, 0) + 1

    def meaning(tensor: str) -> Meaning | None:
        if outside.get(tensor) != 1 or tensor in inside or made[tensor].seed is not None:
            return None
        return meaning_of(made[tensor])

    def whole(expr: Expr) -> bool:
        if not isinstance(expr, Call) or expr.op not in ("add", "sub"):
            return False
        tensors = {a.tensor for a in walk(expr) if isinstance(a, Access)}
        return bool(tensors) and tensors <= normal.shapes.keys() - made.keys()

    algebra = Algebra(meaning, whole)
    known = [pair for t in normal.shapes for pair in _definitions(t, normal, algebra)]
    out: dict[str, Cotangent] = {}
    for c in cotangents:
        mine = meaning_of(c)
        if mine is None or not c.terms or c.seed is not None:
            continue
        try:
            found = algebra.total(mine[1])
        except Beyond:
            continue
        best = min(_forms(found, known, Writer(algebra.names, floats)), key=_weight, default=None)
        if best is None or _weight(best) >= _written_out(mine[1], meaning):
            continue
        hints = next((t.hints for t in c.terms if any(t.hints)), c.terms[0].hints)
        out[c.name] = replace(c, terms=[Term((), (), best, hints)])
    return out


def _definitions(tensor: str, normal: Normal, algebra: Algebra) -> list[tuple[Expr, Polynomial]]:
    """Of a tensor y = e/s: (e[i,j], y[i,j]*s[i]), to write y where e is; for each such factor."""
    meaning = forward_meaning(normal, tensor)
    if meaning is None or meaning[1][0][0]:
        return []
    lhs, ((_, body),) = meaning
    try:
        found = algebra.of(body)
    except Beyond:
        return []
    if len(found) != 1:
        return []
    ((monomial, factor),) = found.items()
    if len(monomial) < 2 or factor != 1:
        return []
    elements = [item for item, n in monomial if isinstance(item, (Access, Call)) and n == 1]
    return [
        (item, ring.times(whole, ring.power({monomial - {(item, 1)}: factor}, -1)))
        for whole in [ring.atom(Access(tensor, lhs))]
        for item in sorted(elements, key=repr)  # a set has no order that is the same tomorrow
        if _everywhere(item, lhs, normal.shapes[tensor], normal)
    ]


def _everywhere(item: Expr, lhs: Sequence[Expr], shape: Sequence[Expr], normal: Normal) -> bool:
    """Wherever there is an `item`, is there an element T[lhs] of that shape?"""
    read = {
        (index, normal.shapes[a.tensor][dim])
        for a in accesses(item)
        if a.tensor in normal.shapes
        for dim, index in enumerate(a.indices)
    }
    own = set(ring.free(item)) == {i for e in lhs for i in indices_of(e)}
    return own and all(pair in read for pair in zip(lhs, shape, strict=True))


def _forms(
    found: Polynomial, known: Sequence[tuple[Expr, Polynomial]], write: Writer
) -> Iterator[Expr]:
    """Ways to write a polynomial: as it is, and in terms of a known tensor."""
    with suppress(Beyond):
        yield write(found)
    allowed = ring.divisors(found)
    for old, new in known:
        with suppress(Beyond):
            other = ring.replaced(found, old, new)
            if other is None:
                continue
            # What is divided by now and was not before may be 0.
            if all(n <= allowed.get(item, 0) for item, n in ring.divisors(other).items()):
                yield write(other)


def _written_out(parts: Iterable[tuple[tuple[Range, ...], Expr]], meaning: MeaningOf) -> int:
    """The weight of a sum as it is, with what is written where it is read."""
    total, waiting = -1, list(parts)
    while waiting:
        ranges, value = waiting.pop()
        total += _weight(value) + 2 * len(ranges) + 1
        for a in walk(value):
            inner = meaning(a.tensor) if isinstance(a, Access) else None
            waiting += inner[1] if inner is not None else ()
    return total


def _weight(expr: Expr) -> int:
    """About how much there is to read."""
    return sum(1 for _ in walk(expr))
