"""Simpler forms of cotangents, by what the real numbers say: `dx = dy*e/s - e*sum(dy*e/s)/s` reads,
with y = e/s, as `dx = y*(dy - sum(y*dy))`.

Differences of what the operator computes stay as they are, for elsewhere their digits cancel; so
does what a choice guards, each branch of which has a form of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ..algo.tensor_expr.affine import normalize
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Range,
    Reduce,
    accesses,
    children,
    indices_of,
    transform,
    walk,
)
from . import polynomial as ring
from .algebra import Algebra, Meaning, MeaningOf, forward_meaning, meaning_of
from .cotangent import Cotangent
from .gather import Term
from .length import Length, length, nodes
from .polynomial import Beyond, Polynomial
from .statements import Normal
from .written import Writer

BOUNDED = ("tanh", "sigmoid", "erf", "sin", "cos", "sign")
"""Operations whose results are from -1 to 1."""
ZERO = Const(0)
MOST = 4  # th power that is written as one
Parts = Sequence[tuple[tuple[Range, ...], Expr]]


def simpler(
    cotangents: Sequence[Cotangent],
    normal: Normal,
    floats: Collection[str],
    returns: Collection[str],
    saved: Collection[str],
) -> dict[str, Cotangent]:
    """Other forms of cotangents, by name: what can stand before a sum does, and those that one
    other reads, outside of sums, are written where they are read. Tensors of `saved` need not be
    computed to be read."""
    made = {c.name: c for c in cotangents}
    once = _read_once(cotangents, made)

    def meaning(tensor: str) -> Meaning | None:
        return meaning_of(made[tensor]) if tensor in once else None

    at_hand = {*saved, *(a.tensor for c in cotangents for e in c.values() for a in accesses(e))}
    forms = [_Forms(meaning, normal, made, floats, at_hand, sums) for sums in (True, False)]
    out: dict[str, Cotangent] = {}
    for c in cotangents:
        if c.name not in returns and _is_copy(c):
            continue
        best = _whole(c, forms)
        found = best if best is not None else _by_terms(c, forms)
        if found is not c:
            out[c.name] = found
    return out


def _is_copy(c: Cotangent) -> bool:
    """Is it what it reads, so that those who read it read that?"""
    return len(c.terms) == 1 and isinstance(c.terms[0].value, Access) and not c.terms[0].bound


def _read_once(cotangents: Sequence[Cotangent], made: Mapping[str, Cotangent]) -> set[str]:
    """The cotangents without a seed that one other reads, once, outside of sums and conditions."""
    outside: dict[str, int] = {}
    inside: set[str] = set()
    for c in cotangents:
        values = [(bool(term.bound or term.where), term.value) for term in c.terms]
        values += [(True, s.value) for s in c.scatters.values()]
        for within, value in values:
            read = [a.tensor for a in accesses(value) if a.tensor in made]
            inside.update(read if within else ())
            for tensor in read if not within else ():
                outside[tensor] = outside.get(tensor, 0) + 1
    return {
        t for t, n in outside.items()
        if n == 1 and t not in inside and made[t].seed is None
        and not any(term.where for term in made[t].terms)
    }  # fmt: skip


def _whole(c: Cotangent, forms: Sequence[_Forms]) -> Cotangent | None:
    """A cotangent as one value without conditions, if that is shorter."""
    mine = meaning_of(c)
    if mine is None or not c.terms or c.seed is not None or any(t.where for t in c.terms):
        return None
    best = _shortest(mine[1], forms)
    if best is None or length(best) >= forms[0].written_out(mine[1]):
        return None
    hints = next((t.hints for t in c.terms if any(t.hints)), c.terms[0].hints)
    return _without_nothing(replace(c, terms=[Term((), (), _value(best, forms), hints)]))


def _by_terms(c: Cotangent, forms: Sequence[_Forms]) -> Cotangent:
    """A cotangent whose terms are simpler, each by itself; itself if none is."""
    terms = [replace(t, value=_value(t.value, forms)) for t in c.terms]
    scatters = {n: replace(s, value=_value(s.value, forms)) for n, s in c.scatters.items()}
    same = all(a.value is b.value for a, b in zip(terms, c.terms, strict=True))
    same = same and all(scatters[n].value is s.value for n, s in c.scatters.items())
    return c if same else _without_nothing(replace(c, terms=terms, scatters=scatters))


def _without_nothing(c: Cotangent) -> Cotangent:
    """A cotangent without parts that have cancelled: a number 0 has not its type."""
    scatters = {n: s for n, s in c.scatters.items() if s.value is not ZERO}
    return replace(c, terms=[t for t in c.terms if t.value is not ZERO], scatters=scatters)


def _value(value: Expr, forms: Sequence[_Forms]) -> Expr:
    """A value in its shortest form, and so each branch of the choices in it."""

    def branches(item: Expr) -> Expr:
        match item:
            case Call("where", (condition, a, b)):
                yes, no = shorter(a), shorter(b)
                return yes if yes is no else Call("where", (condition, yes, no))
        return item

    def shorter(expr: Expr) -> Expr:
        best = _shortest([((), expr)], forms, own=True)
        return expr if best is None or length(best) >= length(expr) else best

    return shorter(transform(value, branches))


def _shortest(parts: Parts, forms: Sequence[_Forms], own: bool = False) -> Expr | None:
    """The shortest form found, None if there is none; of tensors alone if it is their `own`."""
    seen: list[Polynomial] = []
    found: list[tuple[Expr, int]] = []
    for f in forms:
        with suppress(Beyond):
            meant = (f.alone if own else f.algebra).total(parts)
            if meant not in seen:
                seen.append(meant)
                forms_of = _forms(meant, f.known, f.writer(parts))
                found += [form for form in forms_of if f.reads_what_is_there(form[0], parts)]
    return min(found, key=lambda form: length(*form), default=(None, 0))[0]


class _Forms:
    """Ways to write what is meant by sums of products."""

    def __init__(
        self,
        meaning: MeaningOf,
        normal: Normal,
        made: Mapping[str, Cotangent],
        floats: Collection[str],
        at_hand: Collection[str],
        sums: bool,
    ) -> None:
        """With `sums` those that the operator computes are multiplied out where they add products:
        what has been rounded loses no digits by that."""
        self.meaning = meaning

        def whole(expr: Expr) -> bool:
            if not isinstance(expr, Call) or expr.op not in ("add", "sub", "div"):
                return False
            if expr.op == "div" and not (whole(expr.args[0]) and accesses(expr.args[1])):
                return False
            if sums and expr.op == "add" and any(map(_is_product, expr.args)):
                return False
            tensors = {a.tensor for a in accesses(expr)}
            return bool(tensors) and tensors <= normal.shapes.keys() - made.keys()

        self.algebra = Algebra(meaning, whole)
        self.alone = Algebra(lambda tensor: None, whole)
        self.known = [
            (*pair, 0 if t in at_hand else nodes(normal.of(t)[0].body))
            for t in normal.shapes
            for pair in _definitions(t, normal, self.algebra)
        ]
        self.normal, self.floats = normal, floats

    def writer(self, parts: Parts) -> Writer:
        """What writes forms of a sum."""
        powers: dict[Expr, int] = {}
        for item in (item for _, value in parts for item in walk(value)):
            match item:
                case Call("pow", (base, Const(int() as n, None))):
                    powers[normalize(base)] = max(n, powers.get(normalize(base), 1))

        def most(expr: Expr) -> int:
            return MOST if self._is_bounded(expr) else powers.get(expr, 1)

        return Writer(self.algebra.names, self.floats, most)

    def reads_what_is_there(self, form: Expr, parts: Parts) -> bool:
        """Does it read no first element, say, before a sum that had it inside, and may be of
        nothing?"""
        before = {place for ranges, value in parts if not ranges for place in self._fixed(value)}
        return before.issuperset(self._fixed(form))

    def _fixed(self, expr: Expr) -> Iterator[tuple[str, int, Expr]]:
        """Where an expression reads at places that no index says, outside of sums."""
        stack, seen = [expr], {expr}
        while stack:
            match stack.pop():
                case Reduce():
                    pass
                case Access(tensor, indices):
                    shape = self.normal.shapes.get(tensor, (None,) * len(indices))
                    for dim, (index, extent) in enumerate(zip(indices, shape, strict=True)):
                        if not indices_of(index) and not isinstance(extent, Const):
                            yield tensor, dim, index
                case item:
                    stack += [child for child in children(item) if child not in seen]
                    seen.update(children(item))

    def _is_bounded(self, expr: Expr) -> bool:
        """Has it no powers that overflow, as a tanh?"""
        if isinstance(expr, Access):
            found = [s.body for s in self.normal.of(expr.tensor) if s.reducer is None]
            return bool(found) and all(isinstance(e, Call) and e.op in BOUNDED for e in found)
        match expr:
            case Call("sub", (Const(1), inside)):
                return self._is_bounded(inside)
            case Call("pow", (base, Const(2))):
                return self._is_bounded(base)
        return isinstance(expr, Call) and expr.op in BOUNDED

    def written_out(self, parts: Parts) -> Length:
        """The length of a sum as it is, with the equations of what is written where it is read."""
        total, waiting = [-1, 0, 0], list(parts)
        while waiting:
            ranges, value = waiting.pop()
            whole, summed, brackets = length(value)
            total[0] += whole + 1 + (1 + 2 * len(ranges) if ranges else 0)
            total[1] += whole if ranges else summed
            total[2] += brackets
            for a in accesses(value):
                inner = self.meaning(a.tensor)
                if inner is not None:
                    waiting += inner[1]
                    total[0] += nodes(a)
        return total[0], total[1], total[2]


def _is_product(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.op in ("mul", "div")


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
    whole = ring.atom(Access(tensor, lhs))
    elements = [item for item, n in monomial if isinstance(item, (Access, Call)) and n == 1]
    out: list[tuple[Expr, Polynomial]] = []
    for item in sorted(elements, key=repr):  # a set has no order that is the same tomorrow
        if _everywhere(item, lhs, normal.shapes[tensor], normal):
            with suppress(Beyond):
                rest = ring.power({monomial - {(item, 1)}: factor}, -1)
                out.append((item, ring.times(whole, rest)))
    return out


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
    found: Polynomial, known: Sequence[tuple[Expr, Polynomial, int]], write: Writer
) -> Iterator[tuple[Expr, int]]:
    """Ways to write a polynomial: as it is, and in terms of a known tensor; with the nodes that
    computing this takes."""
    with suppress(Beyond):
        yield write(found), 0
    allowed = ring.divisors(found)
    tensors = ring.tensors(found)
    for old, new, more in known:
        if not tensors.issuperset(a.tensor for a in accesses(old)):
            continue
        with suppress(Beyond):
            other = ring.replaced(found, old, new)
            if other is None:
                continue
            # What is divided by now and was not before may be 0.
            if all(n <= allowed.get(item, 0) for item, n in ring.divisors(other).items()):
                yield write(other), more
