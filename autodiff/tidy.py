"""Leaving out equations that compute nothing new: copies, duplicates, what nobody needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from ..algo.tensor_expr.affine import normalize
from ..algo.tensor_expr.build import compare, sub
from ..algo.tensor_expr.components import components
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    Size,
    accesses,
    indices_of,
    substitute,
    transform,
)
from ..algo.tensor_expr.folds import groups
from ..algo.tensor_expr.op import Equation
from .length import nodes
from .signs import amount_of
from .statements import reads

Shapes = Mapping[str, tuple[Expr, ...]]
Likeness = tuple[int, tuple[str, ...]]


def mapped(eq: Equation, change: Callable[[Expr], Expr]) -> Equation:
    """The equation with every value and condition changed."""
    where = None if eq.where is None else change(eq.where)
    return Equation(
        eq.tensor, tuple(map(change, eq.lhs)), change(eq.rhs), eq.ranges, where, eq.reducer
    )


def single(eq: Equation) -> Equation:
    """The equation with indices that take one value only replaced by it: `T[I-1] = ..`.

    A size stays: alone in a place of the left side its name would be an index.
    """
    values: dict[Expr, Expr] = {
        Index(r.index): r.lo
        for r in eq.ranges
        if normalize(sub(r.hi, r.lo)) is Const(1)
        and not indices_of(r.lo)
        and not isinstance(r.lo, Size)
    }
    if not values or eq.reducer is not None:
        return eq
    fixed = mapped(eq, lambda e: normalize(substitute(e, values)))
    ranges = tuple(r for r in fixed.ranges if Index(r.index) not in values)
    where = None if fixed.where is None else transform(fixed.where, _number_last)
    return Equation(eq.tensor, fixed.lhs, fixed.rhs, ranges, where)


def _number_last(item: Expr) -> Expr:
    """A comparison as it is written: `N > 0` for `0 < N`."""
    match item:
        case Call("lt", (Const() as number, other)) if not isinstance(other, Const):
            return compare("gt", other, number)
    return item


def rereading(eq: Equation, sources: Mapping[str, str]) -> Equation:
    """The equation with tensors renamed where they are read."""
    if all(access.tensor not in sources for access in reads(eq)):
        return eq

    def rule(item: Expr) -> Expr:
        if isinstance(item, Access) and item.tensor in sources:
            return Access(sources[item.tensor], item.indices)
        return item

    return mapped(eq, lambda e: transform(e, rule))


def renamed(eq: Equation, new: Mapping[str, str]) -> Equation:
    """The equation with tensors renamed, its own too."""
    fresh = rereading(eq, new)
    tensor = new.get(eq.tensor, eq.tensor)
    return Equation(tensor, fresh.lhs, fresh.rhs, fresh.ranges, fresh.where, fresh.reducer)


def without_copies(
    equations: Sequence[Equation],
    returns: Sequence[str],
    shapes: Shapes,
    kept: Collection[str] = (),
) -> list[Equation]:
    """Drops `T[i,j] = U[j]`, whose readers read U instead. Where T is returned and U not, a copy
    `T[i] = U[i]` of the whole is dropped too, and U computed under the name of T. Tensors of `kept`
    stay as they are."""
    out = list(equations)

    def drops(eq: Equation) -> bool:
        names = {eq.tensor, eq.rhs.tensor} if isinstance(eq.rhs, Access) else {eq.tensor}
        return names.isdisjoint(kept) and _is_copy(eq, out, returns, shapes)

    while (eq := next(filter(drops, out), None)) is not None:
        source = eq.rhs
        assert isinstance(source, Access)
        out.remove(eq)
        if eq.tensor in returns:
            out = [renamed(e, {source.tensor: eq.tensor}) for e in out]
        else:
            out = [_reading(e, eq, source) for e in out]
    return out


def _is_copy(
    eq: Equation, equations: Sequence[Equation], returns: Sequence[str], shapes: Shapes
) -> bool:
    source = eq.rhs
    if eq.reducer is not None or not isinstance(source, Access) or source.tensor == eq.tensor:
        return False
    if sum(e.tensor == eq.tensor for e in equations) > 1 or len(set(eq.lhs)) < len(eq.lhs):
        return False
    if eq.tensor not in returns:
        return all(isinstance(i, Index) and i in eq.lhs for i in source.indices)
    made_here = any(e.tensor == source.tensor for e in equations)
    whole = source.indices == eq.lhs and shapes.get(source.tensor) == shapes[eq.tensor]
    return made_here and whole and source.tensor not in returns


def _reading(eq: Equation, copy: Equation, source: Access) -> Equation:
    def rule(item: Expr) -> Expr:
        if isinstance(item, Access) and item.tensor == copy.tensor:
            return substitute(source, dict(zip(copy.lhs, item.indices, strict=True)))
        return item

    if all(access.tensor != copy.tensor for access in reads(eq)):
        return eq
    return mapped(eq, lambda e: transform(e, rule))


def without_duplicates(
    equations: Sequence[Equation], returns: Collection[str], kept: Collection[str] = ()
) -> list[Equation]:
    """Drops a tensor whose single equation says what that of an earlier tensor says. One of
    `returns` is that tensor then, or its negative: `dy[i] = -dx[i]`. Tensors of `kept` stay."""
    counts: dict[str, int] = {}
    for eq in equations:
        counts[eq.tensor] = counts.get(eq.tensor, 0) + 1
    first: dict[Equation, tuple[str, bool]] = {}
    sources: dict[str, str] = {}
    out: list[Equation] = []
    for written in equations:
        eq = rereading(written, sources)
        negative, amount = amount_of(eq.rhs)
        anonymous = Equation("", eq.lhs, amount, eq.ranges, eq.where, eq.reducer)
        known, other = first.get(anonymous, (None, False))
        if counts[eq.tensor] > 1 or known is None or eq.tensor in kept:
            out.append(eq)
            if counts[eq.tensor] == 1:
                first.setdefault(anonymous, (eq.tensor, negative))
        elif eq.tensor not in returns and negative == other:
            sources[eq.tensor] = known
        elif eq.tensor in returns and eq.reducer is None and all(map(_is_index, eq.lhs)):
            same = Access(known, eq.lhs)
            rhs = same if negative == other else Call("neg", (same,))
            out.append(Equation(eq.tensor, eq.lhs, rhs, eq.ranges, eq.where))
        else:
            out.append(eq)
    return [rereading(eq, sources) for eq in out]  # in a cycle some are read before


def _is_index(expr: Expr) -> bool:
    return isinstance(expr, Index)


def reusing(equations: Sequence[Equation]) -> list[Equation]:
    """Reads an earlier tensor where a sum's body says the same again: `db[f] = sum(dx[n,f])`.

    The earlier tensor is defined by one equation over all its elements, and the sum runs over the
    same ranges.
    """
    counts = Counter(eq.tensor for eq in equations)
    earlier: dict[Likeness, list[Equation]] = {}
    out: list[Equation] = []
    for eq in equations:
        out.append(mapped(eq, partial(_shortened, eq.ranges, earlier)))
        plain = all(isinstance(i, Index) for i in eq.lhs) and len(set(eq.lhs)) == len(eq.lhs)
        whole = plain and eq.where is None and eq.reducer is None and isinstance(eq.rhs, Call)
        if whole and counts[eq.tensor] == 1:
            earlier.setdefault(_likeness(eq.rhs), []).append(eq)
    return out


def _likeness(expr: Expr) -> Likeness:
    """What expressions have in common that are the same up to the names of indices."""
    return nodes(expr), tuple(a.tensor for a in accesses(expr))


def _shortened(
    outer: Sequence[Range], earlier: Mapping[Likeness, Sequence[Equation]], expr: Expr
) -> Expr:
    def rule(item: Expr) -> Expr:
        if not isinstance(item, Reduce):
            return item
        ranges = {r.index: r for r in (*outer, *item.ranges)}
        reads = (_read(eq, item.body, ranges) for eq in earlier.get(_likeness(item.body), ()))
        body = next((access for access in reads if access is not None), item.body)
        return Reduce(item.reducer, item.indices, body, item.ranges, item.where, item.dtype)

    return transform(expr, rule)


def _read(eq: Equation, body: Expr, ranges: Mapping[str, Range]) -> Access | None:
    """The element of `eq`'s tensor that is `body`, whose indices have these ranges."""
    mine, theirs = indices_of(eq.rhs), indices_of(body)
    if len(mine) != len(theirs) or {Index(name) for name in mine} != set(eq.lhs):
        return None
    new: dict[Expr, Expr] = {Index(a): Index(b) for a, b in zip(mine, theirs, strict=True)}
    own = {r.index: r for r in eq.ranges}
    for a, b in zip(mine, theirs, strict=True):
        if b not in ranges or (own[a].lo, own[a].hi) != (ranges[b].lo, ranges[b].hi):
            return None
    if substitute(eq.rhs, new) is not body:
        return None
    return Access(eq.tensor, tuple(new[i] for i in eq.lhs))


def needed(equations: Iterable[Equation], returns: Iterable[str]) -> list[Equation]:
    """The equations that the returned tensors depend on, in order."""
    by_tensor: dict[str, list[Equation]] = {}
    for eq in equations:
        by_tensor.setdefault(eq.tensor, []).append(eq)
    found = closure(returns, lambda name: by_tensor.get(name, []))
    return [eq for name, group in by_tensor.items() if name in found for eq in group]


def closure(start: Iterable[str], equations_of: Callable[[str], Iterable[Equation]]) -> set[str]:
    """The tensors that those of `start` depend on, themselves included."""
    found: set[str] = set()
    stack = list(start)
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack += [a.tensor for eq in equations_of(name) for a in reads(eq)]
    return found


def in_order(
    equations: Sequence[Equation], instead: Mapping[str, Iterable[str]] | None = None
) -> list[Equation]:
    """Each tensor after those that it reads, or that it has `instead`: what is saved, or given by a
    rule, may have opened a cycle of tensors."""
    needs: dict[str, set[str]] = {}
    for group in groups(equations):
        together = {equations[n].tensor for n in group}
        for n in group:
            read = {a.tensor for a in reads(equations[n])} | together
            needs.setdefault(equations[n].tensor, set()).update(read)
    for name, others in (instead or {}).items():
        needs[name] = set(others)
    parts = components(list(needs), needs)
    return [eq for part in parts for eq in equations if eq.tensor in part]
