"""Conditions that a loop does not change move out of it.

    for i in 0 .. n: if c: S(i)     ==>     if c: for i in 0 .. n: S(i)

Only a condition around the whole body moves, and only one that reads no memory. Loops over GPU axes
stay outermost, for they say how a kernel is launched.
"""

from __future__ import annotations

from ...algo.tensor_expr.expr import accesses, indices_of
from ..ir import AXES, For, Function, If, Stmt, rebuild, with_


def hoist(function: Function) -> Function:
    """The function with loop-invariant guards as far outside as they can be."""
    return Function(function.name, function.params, _stmt(function.body))


def _stmt(stmt: Stmt) -> Stmt:
    stmt = rebuild(stmt, _stmt)
    match stmt:
        case For(var=var, body=If(cond, then, None), kind=kind) if kind not in AXES:
            if var not in indices_of(cond) and not accesses(cond):
                return If(cond, with_(stmt, body=then))
    return stmt
