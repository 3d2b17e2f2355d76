"""Index expressions in canonical form, with what is decided taken out.

    for io in 0 .. 1:                               for ii in 0 .. 8:
        for ii in 0 .. min(8, 100 - io*8):   ==>        x[ii] = 0
            x[(io*8 + ii) - io*8] = 0

Bounds, conditions and indices are simplified by what the loops around say of their variables; a
loop of one iteration becomes its body, one of none disappears, and so do conditions that hold
always or never. Loops over GPU axes stay: they say how a kernel is launched.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.tensor_expr.affine import Interval, bounds, normalize
from ...algo.tensor_expr.build import sub
from ...algo.tensor_expr.expr import Call, Const, Expr, Index, transform
from ..ir import (
    AXES,
    Alloc,
    Block,
    For,
    Function,
    If,
    Let,
    Stmt,
    Store,
    Update,
    block,
    substitute,
)
from ..ranges import values_of

Known = Mapping[str, Interval]
NOTHING = Block(())


def simplify(function: Function) -> Function:
    """The function with its indices, bounds and conditions simplified."""
    return Function(function.name, function.params, _stmt(function.body, {}))


def _stmt(stmt: Stmt, known: Known) -> Stmt:
    match stmt:
        case Block(stmts):
            return block(*(_stmt(inner, known) for inner in stmts))
        case For():
            return _for(stmt, known)
        case If(cond, then, orelse):
            return _if(_expr(cond, known), then, orelse, known)
        case Let(var, value, body):
            value = _expr(value, known)
            if isinstance(value, (Const, Index)):
                return _stmt(substitute(body, {Index(var): value}), known)
            inner = _stmt(body, {**known, var: bounds(value, known)})
            return inner if inner is NOTHING else Let(var, value, inner)
        case Alloc(buffer, body):
            inner = _stmt(body, known)
            return inner if inner is NOTHING else Alloc(buffer, inner)
        case Store(buffer, index, value):
            return Store(buffer, tuple(_expr(e, known) for e in index), _expr(value, known))
        case Update(buffer, index, reducer, value):
            cell = tuple(_expr(e, known) for e in index)
            return Update(buffer, cell, reducer, _expr(value, known))
    return stmt


def _for(loop: For, known: Known) -> Stmt:
    lo, hi = _expr(loop.lo, known), _expr(loop.hi, known)
    least, most = bounds(sub(hi, lo), known)
    if most is not None and most <= 0:
        return NOTHING
    once = least is not None and least >= 1 and most is not None and most <= loop.step
    if once and loop.kind not in AXES:
        return _stmt(substitute(loop.body, {Index(loop.var): lo}), known)
    loop = For(loop.var, lo, hi, loop.body, loop.kind, loop.step, loop.lanes)
    body = _stmt(loop.body, {**known, loop.var: values_of(loop, known)})
    if body is NOTHING:
        return NOTHING
    return For(loop.var, lo, hi, body, loop.kind, loop.step, loop.lanes)


def _if(cond: Expr, then: Stmt, orelse: Stmt | None, known: Known) -> Stmt:
    if isinstance(cond, Const):
        chosen = then if cond.value else orelse
        return NOTHING if chosen is None else _stmt(chosen, known)
    then = _stmt(then, known)
    orelse = None if orelse is None else _stmt(orelse, known)
    if orelse is NOTHING:
        orelse = None
    return NOTHING if then is NOTHING and orelse is None else If(cond, then, orelse)


def _expr(expr: Expr, known: Known) -> Expr:
    return transform(normalize(expr, known), _decided)


def _decided(item: Expr) -> Expr:
    """`where` with a condition that is decided is its branch."""
    match item:
        case Call("where", (Const(bool() as value, _), a, b)):
            return a if value else b
    return item
