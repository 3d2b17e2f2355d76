"""The cotangent of one tensor: the sum of what its readers contribute, as equations.

Contributions that hold on part of the tensor are joined where their regions meet (the first
element and the others, in a recurrence), and guarded by `where` otherwise. The cotangent of a
recurrence reads itself; its equations stand on disjoint regions then, as a person writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..algo.dtypes import DType
from ..algo.tensor_expr.affine import is_affine, linear, normalize
from ..algo.tensor_expr.build import add, both, compare, sub
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    indices_of,
    substitute,
    walk,
)  # fmt: skip
from ..algo.tensor_expr.op import Equation
from .gather import Term, place, written
from .scatter import Scatter

Region = tuple[tuple[Expr, Expr], ...]
"""A box of elements: for each dimension lo (inclusive) and hi (exclusive)."""
NOTHING = Const(0)


def one(like: Expr, dtype: DType | None) -> Expr:
    """1 in the element type of `like`: a constant if that is known, else what is 1 for every
    number, NaN and infinity too."""
    return Call("pow", (like, Const(0))) if dtype is None else Const(1, dtype)


def zero(like: Expr, dtype: DType | None) -> Expr:
    """0 in the element type of `like`."""
    return Call("mul", (NOTHING, one(like, None))) if dtype is None else Const(0, dtype)


@dataclass(slots=True)
class Cotangent:
    """What is known so far of the cotangent of `tensor`, which `name` will hold.

    `seed` is the element that the caller gives, for a returned tensor; `dtype` is the element type
    where it is known; `scatters` has a name for
    each, of a tensor that holds that part where there are others.
    """

    tensor: str
    name: str
    shape: tuple[Expr, ...]
    dtype: DType | None = None
    seed: Access | None = None
    terms: list[Term] = field(default_factory=list)
    scatters: dict[str, Scatter] = field(default_factory=dict)

    @property
    def lhs(self) -> tuple[Expr, ...]:
        """The element: one placeholder index a dimension."""
        return tuple(place(dim) for dim in range(len(self.shape)))

    @property
    def is_given(self) -> bool:
        """Does it consist of the caller's cotangent alone?"""
        return self.seed is not None and not self.terms and not self.scatters

    def equations(self) -> list[Equation]:
        """The equations that define it, scattered parts first."""
        out = [
            Equation(name, s.lhs, s.value, s.ranges, _all(s.where), "sum")
            for name, s in zip(self.parts(), self.scatters.values(), strict=True)
        ]
        if len(out) == 1 and self.seed is None and not self.terms:
            return out
        addends = [Access(name, self.lhs) for name in self.parts()]
        terms = joined(self.terms, self.shape)
        full = tuple((Const(0), extent) for extent in self.shape)
        pieces = self._split(terms, full) if self._reads_itself() else [(full, terms)]
        for region, inside in pieces:
            parts = [*([self.seed] if self.seed else []), *map(_guarded, inside), *addends]
            # Of several regions the others say the type.
            nothing = (
                NOTHING if len(pieces) > 1 else zero(Access(self.tensor, self.lhs), self.dtype)
            )
            value: Expr = parts[0] if parts else nothing
            for part in parts[1:]:
                value = add(value, part)
            ranges = tuple(Range(place(dim).name, lo, hi) for dim, (lo, hi) in enumerate(region))
            out.append(Equation(self.name, self.lhs, value, ranges))
        return out

    def parts(self) -> list[str]:
        """The names of the tensors that hold the scattered parts."""
        if len(self.scatters) == 1 and self.seed is None and not self.terms:
            return [self.name]
        return list(self.scatters)

    def _reads_itself(self) -> bool:
        return any(
            isinstance(item, Access) and item.tensor == self.name
            for term in self.terms
            for item in walk(term.value)
        )

    def _split(self, terms: list[Term], full: Region) -> list[tuple[Region, list[Term]]]:
        """Regions along one dimension on which every term holds everywhere or nowhere, those
        without the partial terms (where a recurrence starts) first; the whole if there are none."""
        cuts = {cut for term in terms if (cut := _cut(term, self.shape)) is not None}
        partial = [term for term in terms if any(_on_places(c) for c in term.where)]
        if len(cuts) != 1 or not all(_cut(term, self.shape) for term in partial):
            return [(full, terms)]
        dim, lo, hi = cuts.pop()
        whole = [term for term in terms if term not in partial]
        held = [
            replace(term, where=tuple(c for c in term.where if not _on_places(c)))
            if term in partial
            else term
            for term in terms
        ]
        bounds = [(Const(0), lo, whole), (hi, full[dim][1], whole), (lo, hi, held)]
        return [
            ((*full[:dim], (low, high), *full[dim + 1 :]), inside)
            for low, high, inside in bounds
            if low is not high
        ]


def joined(terms: Sequence[Term], shape: Sequence[Expr]) -> list[Term]:
    """Terms whose regions touch and whose values agree, as one."""
    out: list[Term] = []
    waiting = list(reversed(terms))
    while waiting:
        term = waiting.pop()
        for n, other in enumerate(out):
            union = _union(other, term, shape) or _union(term, other, shape)
            if union is not None:
                del out[n]
                waiting.append(union)
                break
        else:
            out.append(term)
    return out


def _union(a: Term, b: Term, shape: Sequence[Expr]) -> Term | None:
    """`a` and `b` as one term if `b` goes on where `a` ends."""
    one, two = region(a, shape), region(b, shape)
    if one is None or two is None or a.bound or b.bound:
        return None
    apart = [dim for dim, (x, y) in enumerate(zip(one, two, strict=True)) if x != y]
    if len(apart) != 1 or one[apart[0]][1] is not two[apart[0]][0]:
        return None
    dim = apart[0]
    value = _common(a.value, b.value, place(dim), one[dim], two[dim])
    if value is None:
        return None
    whole = (*one[:dim], (one[dim][0], two[dim][1]), *one[dim + 1 :])
    hints = tuple(x or y for x, y in zip(b.hints, a.hints, strict=True))
    return Term((), conditions(whole, shape), value, hints)


def _common(
    a: Expr, b: Expr, at: Index, one: tuple[Expr, Expr], two: tuple[Expr, Expr]
) -> Expr | None:
    """An expression equal to `a` on the interval `one` and to `b` on `two`."""
    if a is b:
        return a
    for single, value, other in ((one, a, b), (two, b, a)):
        one_element = normalize(sub(single[1], single[0])) is Const(1)
        if one_element and normalize(substitute(other, {at: single[0]})) is value:
            return other
    return None


def region(term: Term, shape: Sequence[Expr]) -> Region | None:
    """The box on which a term holds, None where its conditions describe no box."""
    box: list[tuple[Expr, Expr]] = [(NOTHING, extent) for extent in shape]
    for condition in term.where:
        bounds = _bounds(condition)
        if bounds is None:
            return None
        dim, lo, hi = bounds
        if (lo is not None and box[dim][0] is not NOTHING) or (
            hi is not None and box[dim][1] is not shape[dim]
        ):
            return None
        box[dim] = (lo or box[dim][0], hi or box[dim][1])
    return tuple(box)


def _bounds(condition: Expr) -> tuple[int, Expr | None, Expr | None] | None:
    """(dimension, lo, hi) of a condition on one placeholder and sizes."""
    if not isinstance(condition, Call) or not is_affine(condition):
        return None
    names = indices_of(condition)
    if condition.op not in ("lt", "ge", "eq") or len(names) != 1 or names[0][0] != "%":
        return None
    at = Index(names[0])
    form = linear(sub(*condition.args))
    if form is None or form.of(at) not in (1, -1) or form.inside(names[0]):
        return None
    if condition.op == "eq":
        rest = normalize(sub(at, form.expr) if form.of(at) == 1 else add(at, form.expr))
        return int(names[0][1:]), rest, normalize(add(rest, Const(1)))
    plain = written(condition)
    assert isinstance(plain, Call)
    bound = plain.args[1]
    return (int(names[0][1:]), *((bound, None) if plain.op == "ge" else (None, bound)))


def conditions(box: Region, shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """What is to be asked of an element to lie in `box`."""
    out: list[Expr] = []
    for dim, ((lo, hi), extent) in enumerate(zip(box, shape, strict=True)):
        if normalize(sub(hi, lo)) is Const(1) and (lo, hi) != (NOTHING, extent):
            out.append(compare("eq", place(dim), lo))
            continue
        out += [compare("ge", place(dim), lo)] if lo is not NOTHING else []
        out += [compare("lt", place(dim), hi)] if hi is not extent else []
    return tuple(out)


def _cut(term: Term, shape: Sequence[Expr]) -> tuple[int, Expr, Expr] | None:
    """The one dimension, and its interval, to which conditions on the element restrict a term."""
    mine = [c for c in term.where if _on_places(c)]
    box = region(replace(term, where=tuple(mine)), shape)
    if box is None:
        return None
    dims = [dim for dim, extent in enumerate(shape) if box[dim] != (NOTHING, extent)]
    return (dims[0], *box[dims[0]]) if len(dims) == 1 else None


def _on_places(condition: Expr) -> bool:
    """Is it a condition on the element alone?"""
    names = indices_of(condition)
    return bool(names) and all(name[0] == "%" for name in names)


def _guarded(term: Term) -> Expr:
    if term.bound:
        names = tuple(r.index for r in term.bound)
        return Reduce("sum", names, term.value, term.bound, _all(term.where))
    value = term.value  # what is affine outside: elsewhere the others may not be asked
    for affine in (False, True):
        condition = _all([c for c in term.where if is_affine(c) is affine])
        value = value if condition is None else Call("where", (condition, value, NOTHING))
    return value


def _all(where: Sequence[Expr]) -> Expr | None:
    out: Expr | None = None
    for condition in where:
        out = both(out, condition)
    return out
