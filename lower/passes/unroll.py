"""Unroll loops become copies of their bodies.

    for i in 0 .. min(2, n) unroll: S(i)     ==>     if 0 < n: S(0)
                                                     if 1 < n: S(1)

So does a serial loop whose variable indexes a register buffer, which must be indexed by constants.
A loop without a constant bound, or one whose copies would be more than `BUDGET` statements, is left
serial: unrolling is a wish about speed, not about meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.tensor_expr.affine import Interval, bounds, normalize
from ...algo.tensor_expr.build import add, compare, const
from ...algo.tensor_expr.expr import Access, Const, Expr, Index, indices_of
from ...algo.tensor_expr.expr import accesses as reads
from ..ir import (
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
    expressions,
    rebuild,
    substitute,
    with_,
)
from ..ir import walk as statements
from ..ranges import most_iterations, values_of

BUDGET = 2048
"""Statements that the copies of one loop may be."""

Known = Mapping[str, Interval]


def unroll(function: Function) -> Function:
    """The function without unroll loops."""
    return Function(function.name, function.params, _stmt(function.body, {}, frozenset()))


def _stmt(stmt: Stmt, known: Known, registers: frozenset[str]) -> Stmt:
    match stmt:
        case For(var=var, body=body, kind=kind):
            body = _stmt(body, {**known, var: values_of(stmt, known)}, registers)
            loop = with_(stmt, body=body)
            if kind == "unroll" or (kind == "serial" and _indexes(loop, registers)):
                return _copies(loop, known)
            return loop
        case Alloc(buffer, body):
            inside = registers | {buffer.name} if buffer.scope == "register" else registers
            return Alloc(buffer, _stmt(body, known, inside))
        case Let(var, value, body):
            inner = _stmt(body, {**known, var: bounds(value, known)}, registers)
            return Let(var, value, inner)
    return rebuild(stmt, lambda inner: _stmt(inner, known, registers))


def _indexes(loop: For, registers: frozenset[str]) -> bool:
    """Does the loop's variable occur in an index of a register buffer?"""
    if not registers:
        return False
    for stmt in statements(loop.body):
        cells = [item for expr in expressions(stmt) for item in reads(expr)]
        if isinstance(stmt, (Store, Update)):
            cells.append(Access(stmt.buffer, stmt.index))
        for cell in cells:
            if cell.tensor in registers and any(loop.var in indices_of(e) for e in cell.indices):
                return True
    return False


def _copies(loop: For, known: Known) -> Stmt:
    count = most_iterations(loop, known)
    if count is None or count * sum(1 for _ in statements(loop.body)) > BUDGET:
        return with_(loop, kind="serial")
    copies: list[Stmt] = []
    for n in range(count):
        value = normalize(add(loop.lo, const(n * loop.step)), known)
        copy = substitute(loop.body, {Index(loop.var): value})
        guard: Expr = normalize(compare("lt", value, loop.hi), known)
        if not isinstance(guard, Const):
            copies.append(If(guard, copy))
        elif guard.value:
            copies.append(copy)
    return block(*copies) if copies else Block(())
