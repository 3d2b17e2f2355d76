"""From "instance d adds v(d) to dX[h(d)]" to "dX[y] is the sum of v(d) over those d with h(d) = y".

The equalities y = h(d) stay in the domain. Those that determine an index by themselves are solved
by substitution: a bare index (`A[i,k]`: the element is named by i and k), one index with
coefficient 1 or -1 (`h[t-1]`: t is y+1), or an index of the result with such a coefficient
(`X[h+r]`: h is y-r, and the taps r stay loops). An index that is read by its quotient or its rest
(`A[i//3]`) is 3*y + u first, u in 0:3. What is left (`2*h + r == y`) is a condition of
the sum, and isl makes loops of it that visit no other instance. What a substituted index's range
says of the element remains as a condition, unless it holds for every element.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from ..algo.tensor_expr.affine import is_affine, linear, normalize
from ..algo.tensor_expr.build import add, both, compare, conjuncts, mul, sub
from ..algo.tensor_expr.canonical import Linear
from ..algo.tensor_expr.domains import counterexample
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
)  # fmt: skip
from .decided import Known, known, verdict
from .scatter import Scatter, by_data, guard, scattered
from .statements import Statement

_numbers = count()
MOST_VALUES = 16  # of an index, to be tried one by one


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a cotangent: the sum of `value` over `bound` where all of `where`; for `bound` ()
    the value itself where all of `where`, else 0.

    The element is named by the indices `place(0)`, `place(1)` ...; bound indices have names of
    their own that begin with the name in the source.
    """

    bound: tuple[Range, ...]
    where: tuple[Expr, ...]
    value: Expr
    hints: tuple[str | None, ...]


def place(dim: int) -> Index:
    """The index that names an element's position in dimension `dim` of a cotangent."""
    return Index(f"%{dim}")


def own(name: str) -> str:
    """A bound index of its own for every use, so that nothing is ever captured."""
    return f"{name.split('%')[0]}%b{next(_numbers)}"


def contributions(
    statement: Statement, access: Access, value: Expr, shape: Sequence[Expr]
) -> list[Term | Scatter]:
    """What the reads of `access` by all instances add to its tensor's cotangent.

    `value` is the cotangent of `access` at one instance, `shape` the tensor's extents.
    """
    data = by_data(access)
    parts = _addends(value) if _has_guards(value, data) else [value]
    if data:
        return [scattered(statement, access, part) for part in parts]
    return [_gathered(statement, access, part, shape) for part in parts]


def _gathered(statement: Statement, access: Access, value: Expr, shape: Sequence[Expr]) -> Term:
    fresh: dict[Expr, Expr] = {Index(r.index): Index(own(r.index)) for r in statement.ranges}
    ranges = {fresh[Index(r.index)]: r for r in statement.ranges}
    here = Access(access.tensor, tuple(place(d) for d in range(len(shape))))
    where = [
        compare("eq", e, place(dim)) if indices_of(e) else compare("eq", place(dim), e)
        for dim, e in enumerate(access.indices)
    ]
    where += statement.where
    of = known(statement.ranges)
    while (outermost := guard(value)) is not None:
        condition, value = outermost
        where += [c for c in conjuncts(condition) if not verdict(c, of)]
    system = _System(
        {index: r for index, r in ranges.items() if isinstance(index, Index)},
        [substitute(c, fresh) for c in where],
        substitute(substitute(value, {access: here}), fresh),
        {fresh[e] for e in statement.lhs if e in fresh},
    )
    system.solve()
    inside = [_between(place(dim), Const(0), extent) for dim, extent in enumerate(shape)]
    term = system.term([c for pair in inside for c in pair])
    return replace(term, hints=tuple(map(_hint, access.indices)))


def _has_guards(value: Expr, data: bool) -> bool:
    """Is an addend guarded? Asked once of each part, in however many sums it stands."""
    seen = {value}
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Call) and item.op == "add":
            stack += [arg for arg in item.args if arg not in seen]
            seen.update(item.args)
        elif guard(item, data) is not None:
            return True
    return False


def _addends(value: Expr) -> list[Expr]:
    found: list[Expr] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Call) and item.op == "add":
            stack.extend(reversed(item.args))
        else:
            found.append(item)
    return found


def _hint(index: Expr) -> str | None:
    """The name of an index that alone, with coefficient 1 or -1, says where an access goes."""
    form = linear(index)
    names = indices_of(index)
    alone = form is not None and len(names) == 1 and form.of(Index(names[0])) in (1, -1)
    return names[0] if alone else None


class _System:
    """The conditions on a contribution, and the indices that they determine."""

    def __init__(
        self, bound: dict[Index, Range], where: list[Expr], value: Expr, outer: set[Expr]
    ) -> None:
        self.bound = bound
        self.outer = outer
        self.given = [c for c in where if _is_bound(c)]
        self.where = [c for c in where if c not in self.given]
        self.limits: list[Expr] = []
        self.value = value

    def solve(self) -> None:
        """Substitutes indices until no equality determines one."""
        while (found := self._determined() or self._single() or self._parted()) is not None:
            index, meaning = found
            limits = self.bound.pop(index)
            self.limits += _between(meaning, limits.lo, limits.hi)
            values: dict[Expr, Expr] = {index: meaning}
            self.value = substitute(self.value, values)
            self.where, self.given, self.limits = (
                [c for c in (_put(c, values) for c in conditions) if c is not None]
                for conditions in (self.where, self.given, self.limits)
            )

    def _parted(self) -> tuple[Index, Expr] | None:
        """An index i that alone stands in an equality, there as i // n or i % n, as n times a
        quotient and a rest, indices of their own; A[i//3] is read by three neighbours."""
        for condition in self.where:
            if not (isinstance(condition, Call) and condition.op == "eq" and is_affine(condition)):
                continue
            here = [i for i in map(Index, indices_of(condition)) if i in self.bound]
            if len(here) != 1:
                continue
            for item in walk(condition):
                match item:
                    case Call("floordiv" | "mod", (Index() as i, Const(int() as n))) if (
                        i is here[0] and n > 1
                    ):
                        return i, self._parts(i, n)
        return None

    def _parts(self, index: Index, n: int) -> Expr:
        """What an index is of the quotient and the rest, which take its place in such terms."""
        rest, limits = Index(own(index.name)), self.bound[index]
        ends = limits.lo, add(limits.hi, Const(n - 1))
        quotient, hi = (normalize(Call("floordiv", (end, Const(n)))) for end in ends)
        if normalize(sub(hi, quotient)) is not Const(1):
            through = Range(own(index.name), quotient, hi)
            quotient = Index(through.index)
            self.bound[quotient] = through
        self.bound[rest] = Range(rest.name, Const(0), Const(n))
        parts: dict[Expr, Expr] = {
            Call("floordiv", (index, Const(n))): quotient, Call("mod", (index, Const(n))): rest
        }  # fmt: skip
        self.value = substitute(self.value, parts)
        self.where = [substitute(c, parts) for c in self.where]
        return add(mul(Const(n), quotient), rest)

    def _determined(self) -> tuple[Index, Expr] | None:
        equalities = [c for c in self.where if isinstance(c, Call) and c.op == "eq"]
        for condition in equalities:
            for side, other in (condition.args, reversed(condition.args)):
                if not isinstance(side, Index) or side not in self.bound:
                    continue
                if is_affine(other) and side not in walk(other):
                    return side, normalize(other)
        for condition in equalities:
            form = linear(sub(*condition.args)) if all(map(is_affine, condition.args)) else None
            if form is None:
                continue
            here = [i for i in self.bound if form.of(i) or form.inside(i.name)]
            for index in here:
                plain = form.of(index) in (1, -1) and not form.inside(index.name)
                if plain and (len(here) == 1 or index in self.outer):
                    return index, _solved(form, index)
        return None

    def _single(self) -> tuple[Index, Expr] | None:
        """An index of few values, and the only one at which conditions on it alone hold."""
        for index, r in self.bound.items():
            asked = [c for c in self.where if indices_of(c) == [index.name] and is_affine(c)]
            match r.lo, r.hi:
                case Const(int() as lo), Const(int() as hi) if asked and hi - lo <= MOST_VALUES:
                    at: list[dict[Expr, Expr]] = [{index: Const(n)} for n in range(lo, hi)]
                    left = [v for v in at if all(_is_true(substitute(c, v)) for c in asked)]
                    if len(left) == 1:
                        return index, left[0][index]
        return None

    def term(self, known: list[Expr]) -> Term:
        """The contribution, without conditions that hold anyway where all of `known` do.

        Of an instance that a substituted index puts outside its range, the value is 0: a guard in
        the value, as at the border of a padded image, keeps the loops whole. Other conditions
        bound the sum, and so do these where one of them reads tensors, at such instances too.
        """
        ranges = tuple(Range(index.name, r.lo, r.hi) for index, r in self.bound.items())
        for index, r in self.bound.items():
            known = known + _between(index, r.lo, r.hi)
        known = known + [c for c in self.where if is_affine(c)]
        needed = [c for c in dict.fromkeys(self.given + self.limits) if not implied(c, known)]
        for condition in list(needed):
            others = [c for c in needed if c is not condition]
            if implied(condition, known + others):
                needed = others
        names = {r.index for r in ranges}
        free = () if any(any(accesses(c)) for c in self.where) else needed
        guards = [c for c in free if c not in self.given and names & set(indices_of(c))]
        where = [*self.where, *(written(c) for c in needed if c not in guards)]
        guarding = _conjunction(guards)
        value = self.value
        if guarding is not None:
            value = Call("where", (guarding, value, Const(0)))
        return Term(ranges, tuple(dict.fromkeys(where)), normalize(value), ())


def _is_bound(condition: Expr) -> bool:
    """Is it an affine comparison other than = and !=?"""
    orders = ("lt", "le", "gt", "ge")
    return isinstance(condition, Call) and condition.op in orders and is_affine(condition)


def _put(condition: Expr, values: Mapping[Expr, Expr]) -> Expr | None:
    """The condition after substitution; None where it has become true."""
    fresh = substitute(condition, values)
    if _is_true(fresh):
        return None
    if isinstance(fresh, Call) and fresh.op == "eq" and all(map(is_affine, fresh.args)):
        form = linear(sub(*fresh.args))
        if form is not None and not form.terms and form.const == 0:
            return None
    return fresh


def _is_true(condition: Expr) -> bool:
    return verdict(condition, Known()) is True


def _solved(form: Linear, index: Index) -> Expr:
    """What form = 0 says of an index that it has with coefficient 1 or -1."""
    sign = form.of(index)
    rest = Linear(
        {a: -sign * c for a, c in form.terms.items() if a is not index}, -sign * form.const
    )
    return rest.expr


def _between(value: Expr, lo: Expr, hi: Expr) -> list[Expr]:
    return [compare("ge", value, lo), compare("lt", value, hi)]


def written(condition: Expr) -> Expr:
    """A comparison by `ge` or `lt` as a person writes it: an index alone on the left."""
    assert isinstance(condition, Call)
    op, (a, b) = condition.op, condition.args
    form = linear(sub(a, b))
    if form is None or op not in ("ge", "lt"):
        return condition
    indices = [atom for atom in form.terms if indices_of(atom)]
    if len(indices) == 1 and form.of(indices[0]) in (1, -1):
        atom = indices[0]
        sign = form.of(atom)
        rest = Linear({x: -sign * c for x, c in form.terms.items() if x is not atom},
                      -sign * form.const)  # fmt: skip
        if sign == 1:
            return compare(op, atom, rest.expr)
        if op == "ge":  # rest - atom >= 0
            return compare("lt", atom, normalize(add(rest.expr, Const(1))))
        return compare("ge", atom, normalize(add(rest.expr, Const(1))))  # rest - atom < 0
    return compare(op, normalize(a), normalize(b))


def _conjunction(conditions: Sequence[Expr]) -> Expr | None:
    """All of the conditions; two bounds of one value stand together, as in 0 <= y - r < N."""
    groups: dict[Expr, Expr | None] = {}
    for condition in map(written, conditions):
        assert isinstance(condition, Call)
        groups[condition.args[0]] = both(groups.get(condition.args[0]), condition)
    out: Expr | None = None
    for group in groups.values():
        out = both(out, group)
    return out


def implied(condition: Expr, known: Iterable[Expr]) -> bool:
    """Is it proved that `condition` holds wherever all of `known` do, for all sizes, 0 too?"""
    facts = [c for c in known if is_affine(c)]
    if not is_affine(condition):
        return False
    if condition in facts:
        return True
    dims = list(dict.fromkeys(name for c in (*facts, condition) for name in indices_of(c)))
    return counterexample(dims, facts, (condition,), least=0) is None
