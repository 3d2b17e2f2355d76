"""Full tiles apart from partial ones, so that in full tiles the inner bounds are constants.

    for io in 0 .. 13:                                 for io in 0 .. 13:
        for k in 0 .. K:                                   if 100 - io*8 >= 8:
            for ii in 0 .. min(8, 100 - io*8) unroll: S        for k: for ii in 0 .. 8 unroll: S
                                                ==>        else:
                                                               for k: for ii in 0 .. min(..): S

Only loops that are unrolled, vectorized or split with tail="separate" matter. All of a nest are
decided together, by one branch under the innermost loop that any of their bounds depends on, and
so outside of reduction loops further in. A register buffer belongs to one version, so the branch
stands around it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.tensor_expr.affine import Interval, bounds, normalize
from ...algo.tensor_expr.build import add, both, compare, const
from ...algo.tensor_expr.expr import Const, Expr, indices_of
from ..ir import AXES, Alloc, Barrier, Block, For, Function, If, Let, Stmt, block, rebuild, with_
from ..ir import walk as statements
from ..ranges import parts_of, span, span_of, values_of

Known = Mapping[str, Interval]
Conditions = dict[Expr, None]
"""An ordered set of conditions, all of which make a tile full."""


def separate(function: Function) -> Function:
    """The function with a version for full tiles wherever a bound of an inner loop varies."""
    body, pending = _visit(function.body, {})
    return Function(function.name, function.params, _version(body, pending, {}))


def _visit(stmt: Stmt, known: Known) -> tuple[Stmt, Conditions]:
    """The statement with versions inside, and the conditions that are left to decide outside."""
    match stmt:
        case Block(stmts):
            found = [_visit(inner, known) for inner in stmts]
            return block(*(s for s, _ in found)), _union(*(c for _, c in found))
        case For(var=var, body=body, kind=kind):
            inside = {**known, var: values_of(stmt, known)}
            body, pending = _under(body, var if kind not in AXES else None, inside)
            return with_(stmt, body=body), _union(_full(stmt, known), pending)
        case Let(var, value, body):
            body, pending = _under(body, var, {**known, var: bounds(value, known)})
            return Let(var, value, body), pending
        case Alloc(buffers, body):
            body, pending = _visit(body, known)
            return Alloc(buffers, body), pending
        case If(cond, then, orelse):
            then, pending = _visit(then, known)
            if orelse is None:
                return If(cond, then), pending
            orelse, more = _visit(orelse, known)
            return If(cond, then, orelse), _union(pending, more)
    return stmt, {}


def _under(stmt: Stmt, var: str | None, known: Known) -> tuple[Stmt, Conditions]:
    """The body of a binder. Whatever has to be decided here is; `var` None: all of it."""
    match stmt:
        case Block(stmts):
            found = [_under(inner, var, known) for inner in stmts]
            return block(*(s for s, _ in found)), _union(*(c for _, c in found))
        case Alloc(buffers, body) if stmt.scope != "register":
            body, pending = _under(body, var, known)
            return Alloc(buffers, body), pending
        case For(kind=kind) if var is None and kind in AXES:
            return _visit(stmt, known)
    stmt, pending = _visit(stmt, known)
    if var is None or any(var in indices_of(cond) for cond in pending):
        return _version(stmt, pending, known), {}
    return stmt, pending


def _version(stmt: Stmt, pending: Conditions, known: Known) -> Stmt:
    if not pending or any(isinstance(item, Barrier) for item in statements(stmt)):
        return stmt
    cond: Expr | None = None
    for part in pending:
        cond = both(cond, part)
    assert cond is not None
    return If(cond, _assume(stmt, pending, known), stmt)


def _assume(stmt: Stmt, facts: Conditions, known: Known) -> Stmt:
    """The statement where `facts` hold: loops that they make full have constant bounds."""
    match stmt:
        case For(var, lo, hi, body):
            needed = _full(stmt, known)
            if needed and all(cond in facts for cond in needed):
                most = span_of(stmt, known)[1]
                assert most is not None
                hi = normalize(add(lo, const(most)), known)
            inside = {**known, var: values_of(stmt, known)}
            return with_(stmt, hi=hi, body=_assume(body, facts, inside))
        case Let(var, value, body):
            inside = {**known, var: bounds(value, known)}
            return Let(var, value, _assume(body, facts, inside))
    return rebuild(stmt, lambda inner: _assume(inner, facts, known))


def _full(loop: For, known: Known) -> Conditions:
    """The conditions under which a loop has its largest number of iterations; none if always."""
    if loop.kind not in ("unroll", "vector") and not loop.separate:
        return {}
    least, most = span_of(loop, known)
    if most is None or most <= 1 or least == most:
        return {}
    found: Conditions = {}
    for part in parts_of("min", span(loop)):
        cond = normalize(compare("ge", part, const(most)), known)
        if not isinstance(cond, Const):
            found[cond] = None
        elif not cond.value:  # the bound is not reached
            return {}
    return found


def _union(*sets: Conditions) -> Conditions:
    return {cond: None for conditions in sets for cond in conditions}
