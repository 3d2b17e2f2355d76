"""The cotangent of one tensor: the sum of what its readers contribute, as equations.

Contributions that hold on part of the tensor are joined where their regions meet (the first
element and the others, in a recurrence), and guarded by `where` otherwise. The cotangent of a
recurrence reads itself; its equations stand on disjoint regions then, as a person writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter

from ..algo.dtypes import DType
from ..algo.tensor_expr.affine import is_affine, linear, normalize
from ..algo.tensor_expr.build import add, both, compare, sub
from ..algo.tensor_expr.domains import always
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
)  # fmt: skip
from ..algo.tensor_expr.op import Equation
from .gather import Term, place, written
from .scatter import Scatter

Region = tuple[tuple[Expr, Expr], ...]
"""A box of elements: for each dimension lo (inclusive) and hi (exclusive)."""
Piece = tuple[Region, Expr | None, list["Term"]]
"""A box, a further condition on its elements, and what is added there."""
NOTHING = Const(0)
MOST_REGIONS = 4  # into which one cotangent is split


def one(like: Expr, dtype: DType | None) -> Expr:
    """1 in the element type of `like`."""
    return Call("ones_like", (like,)) if dtype is None else Const(1, dtype)


def zero(like: Expr, dtype: DType | None) -> Expr:
    """0 in the element type of `like`."""
    return Call("zeros_like", (like,)) if dtype is None else Const(0, dtype)


@dataclass(slots=True)
class Cotangent:
    """What is known so far of the cotangent of `tensor`, which `name` will hold.

    `seed` is the element that the caller gives, for a returned tensor; `dtype` is the element type
    where it is known; `recurs` that it needs elements of itself; `scatters` has a name for each, of
    a tensor that holds that part where there are others; `filled` are dimensions whose extent is
    not 0 wherever the tensor is defined.
    """

    tensor: str
    name: str
    shape: tuple[Expr, ...]
    dtype: DType | None = None
    recurs: bool = False
    seed: Access | None = None
    terms: list[Term] = field(default_factory=list)
    scatters: dict[str, Scatter] = field(default_factory=dict)
    filled: frozenset[int] = frozenset()

    @property
    def lhs(self) -> tuple[Expr, ...]:
        """The element: one placeholder index a dimension."""
        return tuple(place(dim) for dim in range(len(self.shape)))

    def values(self) -> list[Expr]:
        """What is added to its elements."""
        return [*(term.value for term in self.terms), *(s.value for s in self.scatters.values())]

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
        pieces: list[Piece] = [(full, None, terms)]
        if self.recurs or (self.seed is None and not addends and len(terms) > 1):
            split = self._split(terms, full)
            alone = all(len(inside) == 1 for _, _, inside in split)
            pieces = split if self.recurs or alone else pieces
        for region, where, inside in pieces:
            parts = [*([self.seed] if self.seed else []), *map(_guarded, inside), *addends]
            # Of several regions the others say the type.
            nothing = (
                NOTHING if len(pieces) > 1 else zero(Access(self.tensor, self.lhs), self.dtype)
            )
            value: Expr = parts[0] if parts else nothing
            for part in parts[1:]:
                value = add(value, part)
            ranges = tuple(Range(place(dim).name, lo, hi) for dim, (lo, hi) in enumerate(region))
            out.append(Equation(self.name, self.lhs, value, ranges, where))
        return out

    def parts(self) -> list[str]:
        """The names of the tensors that hold the scattered parts."""
        if len(self.scatters) == 1 and self.seed is None and not self.terms:
            return [self.name]
        return list(self.scatters)

    def _split(self, terms: list[Term], full: Region) -> list[Piece]:
        """Regions along one dimension on which every term holds everywhere or nowhere, those of
        fewer partial terms (where a recurrence starts) first; the whole if there are none."""
        found = {n: _cut(term, self.shape) for n, term in enumerate(terms)
                 if any(map(_on_places, term.where))}  # fmt: skip
        cuts = {n: cut for n, cut in found.items() if cut is not None}
        dims = {dim for dim, _, _ in cuts.values()}
        if len(dims) != 1 or len(cuts) < len(found):
            return [(full, None, terms)]
        dim = dims.pop()
        bounds = _ascending(list(dict.fromkeys(cut[1:] for cut in cuts.values())), *full[dim])
        if bounds is None or len(bounds) > MOST_REGIONS + 1:
            return [(full, None, terms)]
        pieces = []
        for at, (lo, hi) in enumerate(pairwise(bounds)):
            partial = [
                n
                for n, (_, first, end) in cuts.items()
                if bounds.index(first) <= at < bounds.index(end)
            ]
            inside = [
                _without_place(term) if n in cuts and _is_less(cuts[n][1], lo) else term
                for n, term in enumerate(terms)
                if n not in cuts or n in partial
            ]
            where = _before(place(dim), hi, bounds[at + 2 : -1])
            if dim not in self.filled:
                where = both(where, inside_of(place(dim), (lo, hi), full[dim]))
            region = (*full[:dim], (lo, hi), *full[dim + 1 :])
            pieces.append((len(partial), (region, where, inside)))
        return [piece for _, piece in sorted(pieces, key=itemgetter(0))]


def _without_place(term: Term) -> Term:
    """The term for elements known to have it."""
    return replace(term, where=tuple(c for c in term.where if not _on_places(c)))


def _ascending(cuts: Sequence[tuple[Expr, Expr]], start: Expr, end: Expr) -> list[Expr] | None:
    """All ends of intervals inside of one from `start` to `end` in order, None if that is not
    proved, as of N - 2 where N may be 1."""
    ends = dict.fromkeys(bound for cut in cuts for bound in cut)
    out = [start, end]
    for bound in ends:
        if bound in out:
            continue
        at = next((n for n, other in enumerate(out) if always(compare("le", bound, other))), 0)
        if at == 0 or not always(compare("le", out[at - 1], bound)):
            return None
        out.insert(at, bound)
    return out


def inside_of(at: Index, part: tuple[Expr, Expr], whole: tuple[Expr, Expr]) -> Expr | None:
    """That an element of an interval, which lies in `whole` if sizes are not 0, does lie there."""
    (lo, hi), (start, end) = part, whole
    where = None if _is_less(start, lo) else compare("lt", start, add(at, Const(1)))
    return where if _is_less(hi, end) else both(where, compare("lt", at, end))


def _before(at: Index, hi: Expr, starts: Sequence[Expr]) -> Expr | None:
    """That an element of a region which ends with `hi` is in none of later ones, which all begin
    after that only if sizes are not 0."""
    where: Expr | None = None
    for start in starts:
        if not _is_less(hi, start):
            where = both(where, compare("lt", at, start))
    return where


def _is_less(a: Expr, b: Expr) -> bool:
    """Is a <= b also where sizes are 0, if it is where they are at least 1?"""
    form = linear(sub(b, a))
    return form is not None and form.const >= 0


def joined(terms: Sequence[Term], shape: Sequence[Expr]) -> list[Term]:
    """Terms that hold on the same instances as one, and those whose regions touch and whose values
    agree."""
    out: list[Term] = []
    waiting = list(reversed(terms))
    while waiting:
        term = waiting.pop()
        for n, other in enumerate(out):
            term = _bound_alike(term, other)
            union = _both(other, term) or _union(other, term, shape) or _union(term, other, shape)
            if union is not None:
                del out[n]
                waiting.append(union)
                break
        else:
            out.append(term)
    return out


def _bound_alike(a: Term, b: Term) -> Term:
    """`a` with the bound indices of `b` if they have the same ranges."""
    if not a.bound or [(r.lo, r.hi) for r in a.bound] != [(r.lo, r.hi) for r in b.bound]:
        return a
    names: dict[Expr, Expr] = {
        Index(mine.index): Index(other.index) for mine, other in zip(a.bound, b.bound, strict=True)
    }
    where = tuple(substitute(c, names) for c in a.where)
    return replace(a, bound=b.bound, where=where, value=substitute(a.value, names))


def _both(a: Term, b: Term) -> Term | None:
    """`a` and `b` as one term if they hold under the same conditions; what is summed under none
    stays two sums, each a contraction of its own."""
    if a.bound != b.bound or not a.where or {*a.where} != {*b.where}:
        return None
    hints = tuple(x or y for x, y in zip(a.hints, b.hints, strict=True))
    return Term(a.bound, a.where, add(a.value, b.value), hints)


def _union(a: Term, b: Term, shape: Sequence[Expr]) -> Term | None:
    """`a` and `b` as one term if `b` goes on where `a` ends."""
    one, two = region(a, shape), region(b, shape)
    if one is None or two is None or a.bound != b.bound:
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
    return Term(a.bound, conditions(whole, shape), value, hints)


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
