"""Full tiles apart from partial ones, so that the bounds of inner loops are constants.

    for io in 0 .. 13:                                 for io in 0 .. 13:
        for k in 0 .. K:                                   if 100 - io*8 >= 8:
            for ii in 0 .. min(8, 100 - io*8) unroll: S        for k: for ii in 0 .. 8 unroll: S
                                                ==>        else:
                                                               for k: for ii in 0 .. 4 unroll: S

Only loops that are unrolled, vectorized or split with tail="separate" matter. All of a nest are
decided together, under the innermost loop that any of their bounds depends on, and so outside of
reduction loops further in. A register buffer belongs to one version, so the branches stand around
it.

What is left for a partial tile is one number where all else in the bound moves by whole tiles.
Each of the first few such bounds is decided by itself, so that every version has constant bounds;
the others together, and their partial version keeps its bounds as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from ...algo.tensor_expr.affine import Interval, bounds, linear, normalize
from ...algo.tensor_expr.build import add, both, compare, const
from ...algo.tensor_expr.expr import Const, Expr, indices_of
from ..ir import AXES, Alloc, Barrier, Block, For, Function, If, Let, Stmt, block, rebuild, with_
from ..ir import walk as statements
from ..ranges import least, parts_of, span, span_of, values_of

Known = Mapping[str, Interval]

EXACT = 3
"""Bounds that are decided each by itself; every one doubles the versions."""


@dataclass(frozen=True, slots=True)
class _End:
    """A part of the least number of iterations, and the most that they are."""

    left: Expr
    most: int


Conditions = dict[Expr, _End]
"""Conditions, all of which make a tile full, in order; what each is about."""
Facts = Mapping[Expr, int]
"""Iterations that are left by the part of a bound that a condition is about."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """The bounds of the variables around, and the loops that bind them, outermost first."""

    known: Known
    loops: tuple[For, ...] = ()

    def within(self, stmt: For | Let) -> _Scope:
        if isinstance(stmt, Let):
            return _Scope({**self.known, stmt.var: bounds(stmt.value, self.known)}, self.loops)
        known = {**self.known, stmt.var: values_of(stmt, self.known)}
        return _Scope(known, (*self.loops, stmt))


def separate(function: Function) -> Function:
    """The function with a version for full tiles wherever a bound of an inner loop varies."""
    scope = _Scope({})
    body, pending = _visit(function.body, scope)
    return Function(function.name, function.params, _version(body, pending, scope))


def _visit(stmt: Stmt, scope: _Scope) -> tuple[Stmt, Conditions]:
    """The statement with versions inside, and the conditions that are left to decide outside."""
    match stmt:
        case Block(stmts):
            found = [_visit(inner, scope) for inner in stmts]
            return block(*(s for s, _ in found)), _union(*(c for _, c in found))
        case For(var=var, body=body, kind=kind):
            body, pending = _under(body, var if kind not in AXES else None, scope.within(stmt))
            return with_(stmt, body=body), _union(_full(stmt, scope.known), pending)
        case Let(var, value, body):
            body, pending = _under(body, var, scope.within(stmt))
            return Let(var, value, body), pending
        case Alloc(buffers, body):
            body, pending = _visit(body, scope)
            return Alloc(buffers, body), pending
        case If(cond, then, orelse):
            then, pending = _visit(then, scope)
            if orelse is None:
                return If(cond, then), pending
            orelse, more = _visit(orelse, scope)
            return If(cond, then, orelse), _union(pending, more)
    return stmt, {}


def _under(stmt: Stmt, var: str | None, scope: _Scope) -> tuple[Stmt, Conditions]:
    """The body of a binder. Whatever has to be decided here is; `var` None: all of it."""
    match stmt:
        case Block(stmts):
            found = [_under(inner, var, scope) for inner in stmts]
            return block(*(s for s, _ in found)), _union(*(c for _, c in found))
        case Alloc(buffers, body) if stmt.scope != "register":
            body, pending = _under(body, var, scope)
            return Alloc(buffers, body), pending
        case For(kind=kind) if var is None and kind in AXES:
            return _visit(stmt, scope)
    stmt, pending = _visit(stmt, scope)
    if var is None or any(var in indices_of(cond) for cond in pending):
        return _version(stmt, pending, scope), {}
    return stmt, pending


def _version(stmt: Stmt, pending: Conditions, scope: _Scope) -> Stmt:
    if not pending or any(isinstance(item, Barrier) for item in statements(stmt)):
        return stmt
    rests = {cond: _rest(end, scope) for cond, end in pending.items()}
    exact = [cond for cond, rest in rests.items() if rest is not None][:EXACT]
    return _versions(stmt, exact, pending, rests, {}, scope.known)


def _versions(
    stmt: Stmt,
    exact: list[Expr],
    pending: Conditions,
    rests: Mapping[Expr, int | None],
    facts: Facts,
    known: Known,
) -> Stmt:
    """Two versions for the first of `exact`, in each two for the next, and last for all others."""
    if exact:
        cond, *others = exact
        versions = []
        for left in (pending[cond].most, rests[cond]):
            assert left is not None
            versions.append(
                _versions(stmt, others, pending, rests, {**facts, cond: left}, known)
                if left else None
            )  # fmt: skip
        full, partial = versions
        assert full is not None
        return full if partial is None else If(cond, full, partial)
    rest = {cond: end.most for cond, end in pending.items() if cond not in facts}
    partial = _assume(stmt, facts, known)
    if not rest:
        return partial
    all_full: Expr | None = None
    for cond in rest:
        all_full = both(all_full, cond)
    assert all_full is not None
    return If(all_full, _assume(stmt, {**facts, **rest}, known), partial)


def _rest(end: _End, scope: _Scope) -> int | None:
    """What is left of a partial tile where that is known: 0 if no tile is partial.

    If all that varies moves by whole tiles, and something is always left, it is the remainder.
    """
    form = linear(end.left, scope.known)
    if form is None or gcd(0, *form.terms.values()) % end.most:
        return None
    low = least(end.left, scope.loops, scope.known)
    return form.const % end.most if low is not None and low > 0 else None


def _assume(stmt: Stmt, facts: Facts, known: Known) -> Stmt:
    """The statement where `facts` hold: loops whose ends they tell have constant bounds."""
    match stmt:
        case For(var, lo, hi, body):
            needed = _full(stmt, known)
            if needed and all(cond in facts for cond in needed):
                hi = normalize(add(lo, const(min(facts[cond] for cond in needed))), known)
            inside = {**known, var: values_of(stmt, known)}
            return with_(stmt, hi=hi, body=_assume(body, facts, inside))
        case Let(var, value, body):
            inside = {**known, var: bounds(value, known)}
            return Let(var, value, _assume(body, facts, inside))
    return rebuild(stmt, lambda inner: _assume(inner, facts, known))


def _full(loop: For, known: Known) -> Conditions:
    """The conditions under which a loop has its largest number of iterations; none if always."""
    if loop.kind not in ("unroll", "vector", "dot") and not loop.separate:
        return {}
    low, most = span_of(loop, known)
    if most is None or most <= 1 or low == most:
        return {}
    found: Conditions = {}
    limits = [normalize(part, known) for part in parts_of("min", span(loop))]
    tile = loop.separate or any(isinstance(part, Const) for part in limits)
    if loop.kind == "vector" and not tile:  # a row of a triangle, say, which is hardly ever full
        return {}
    for part in limits:
        cond = normalize(compare("ge", part, const(most)), known)
        if not isinstance(cond, Const):
            found[cond] = _End(part, most)
        elif not cond.value:  # the bound is not reached
            return {}
    return found


def _union(*sets: Conditions) -> Conditions:
    return {cond: end for conditions in sets for cond, end in conditions.items()}
