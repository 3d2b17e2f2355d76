"""Loops over the cells of a register buffer start where that does not vary.

    for i in max(k, 8) .. 16 unroll: S   ==>   if max(k, 8) <= 8: for i in 8 .. 16 unroll: S
                                               else: for i in 8 .. 16 unroll:
                                                         if max(k, 8) <= i: S

Registers are indexed by constants. Counted from a start that varies, as a triangular domain gives
it, the cells would be known only if all that it depends on were unrolled too. The start is the
least that the loops around allow: before it there may be no cell.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.tensor_expr.affine import Interval
from ...algo.tensor_expr.build import compare, const
from ...algo.tensor_expr.expr import Index, indices_of
from ..ir import Alloc, For, Function, If, Stmt, rebuild, with_
from ..ranges import inside, least
from .unroll import indexed

Known = Mapping[str, Interval]


def anchor(function: Function) -> Function:
    """The function with conditions in place of varying starts of loops over registers."""
    return Function(function.name, function.params, _stmt(function.body, {}, (), frozenset()))


def _stmt(stmt: Stmt, known: Known, loops: tuple[For, ...], registers: frozenset[str]) -> Stmt:
    if isinstance(stmt, Alloc):
        registers |= {buffer.name for buffer in stmt.buffers if buffer.scope == "register"}
    within = inside(stmt, known)
    around = (*loops, stmt) if isinstance(stmt, For) else loops
    done = rebuild(stmt, lambda inner: _stmt(inner, within, around, registers))
    return _anchored(done, known, loops, registers) if isinstance(done, For) else done


def _anchored(loop: For, known: Known, loops: tuple[For, ...], registers: frozenset[str]) -> Stmt:
    start = least(Index(loop.var), (*loops, loop), known)
    if start is None or not _drifts(loop, registers):
        return loop
    whole = with_(loop, lo=const(start))
    some = with_(whole, body=If(compare("le", loop.lo, Index(loop.var)), loop.body))
    return If(compare("le", loop.lo, const(start)), whole, some)


def _drifts(loop: For, registers: frozenset[str]) -> bool:
    """Does a loop start at a varying cell of a register buffer? Not so where its cells are counted
    from what varies in its start."""
    if loop.step != 1 or loop.kind not in ("serial", "unroll", "vector"):
        return False
    varying = set(indices_of(loop.lo))
    parts = (set(indices_of(expr)) for cell in indexed(loop, registers) for expr in cell.indices)
    return bool(varying) and any(loop.var in part and not part & varying for part in parts)
