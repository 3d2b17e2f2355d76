"""What adds nothing where a condition fails is left out there, a whole block at once if it can be.

    for k: for j in 0 .. 16 vector(16):              for k:
        c[0, j] sum= where(k > 0 & p, x, 0)    ==>       if p:
    for j in 0 .. 16 vector(16):                             if k > 0: for j: c[0, j] sum= x
        c[1, j] sum= where(p, y, 0)                          for j: c[1, j] sum= y

The number beside is the reducer's identity. Conditions on what runs in lanes stay with the values,
as do those that read memory. Gradients of borders have such conditions, which hold in the interior.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...algo.dtypes import DType
from ...algo.tensor_expr.build import all_of, conjuncts
from ...algo.tensor_expr.expr import Call, Const, Expr, accesses, indices_of
from ...algo.tensor_expr.reducers import REDUCERS
from ..ir import Block, For, Function, If, Let, Stmt, Update, block, rebuild, with_

Conditions = tuple[Expr, ...]


def guards(function: Function) -> Function:
    """The function with updates under the conditions without which they change nothing."""
    return Function(function.name, function.params, _closed(function.body))


def _closed(stmt: Stmt) -> Stmt:
    return _under(*_opened(stmt))


def _under(stmt: Stmt, conditions: Sequence[Expr]) -> Stmt:
    return If(all_of(conditions), stmt) if conditions else stmt


def _opened(stmt: Stmt) -> tuple[Stmt, Conditions]:
    """The statement as it is where the conditions hold, without which it does nothing."""
    match stmt:
        case Update():
            return _update(stmt, None)
        case For(var, _, _, Update() as update, "vector"):
            update, found = _update(update, var)
            return with_(stmt, body=update), found
        case For(var, _, _, body, "serial"):
            body, found = _opened(body)
            inner = [c for c in found if var in indices_of(c)]
            return with_(stmt, body=_under(body, inner)), _without(found, inner)
        case Let(var, value, body):
            body, found = _opened(body)
            inner = [c for c in found if var in indices_of(c)]
            return Let(var, value, _under(body, inner)), _without(found, inner)
        case Block(stmts) if stmts:
            return _block([_opened(item) for item in stmts])
    return rebuild(stmt, _closed), ()


def _update(update: Update, lanes: str | None) -> tuple[Update, Conditions]:
    """An update without conditions that are the same for all lanes."""
    match update.value:
        case Call("where", (cond, value, Const(number, DType() as dtype) as other)):
            reducer = REDUCERS.get(update.reducer)
            if reducer is not None and number == reducer.identity(dtype):
                every = conjuncts(cond)
                out = [c for c in every if lanes not in indices_of(c) and not accesses(c)]
                if out:
                    kept = _without(every, out)
                    value = Call("where", (all_of(kept), value, other)) if kept else value
                    return Update(
                        update.buffer, update.index, update.reducer, value, update.atomic
                    ), tuple(out)
    return update, ()


def _block(parts: Sequence[tuple[Stmt, Conditions]]) -> tuple[Stmt, Conditions]:
    """What all statements have in common is around all; neighbours share the rest."""
    first, *others = (conditions for _, conditions in parts)
    common = tuple(c for c in first if all(c in conditions for conditions in others))
    rows: list[tuple[Conditions, list[Stmt]]] = []
    for stmt, conditions in parts:
        left = _without(conditions, common)
        if not rows or rows[-1][0] != left:
            rows.append((left, []))
        rows[-1][1].append(stmt)
    return block(*(_under(block(*stmts), left) for left, stmts in rows)), common


def _without(conditions: Iterable[Expr], gone: Sequence[Expr]) -> Conditions:
    return tuple(c for c in conditions if c not in gone)
