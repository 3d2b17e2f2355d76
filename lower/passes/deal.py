"""Deals the iterations of a nest that no loop binds out to the threads of a block.

    for a in 0 .. 16:                     for turn in 0 .. 2:
        for k in 0 .. 24:         ==>         if turn*256 + t < 384:
            S[a, k] = A[..]                       S[(turn*256 + t) // 24, (turn*256 + t) % 24] = ..

Neighbouring threads get neighbouring iterations of the innermost loop, so global reads coalesce.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...algo.tensor_expr.build import add, both, compare, const, floordiv, mod, mul
from ...algo.tensor_expr.expr import Expr, Index, accesses, substitute
from ..ir import For, If, Stmt, Store, walk
from ..ir import substitute as substitute_in
from ..ranges import known_of, most_iterations, span, span_of, values_of


def deal(stmt: Stmt, threads: Sequence[tuple[str, int]], around: Sequence[For]) -> Stmt | None:
    """`stmt` with its loops dealt out to `threads` (variable and extent, fastest first).

    None where that cannot be done: where it is no perfect nest of loops around one store that
    reads nothing it writes, or a loop has no constant bound. That different iterations write
    different cells is proved later, by the pass that places the barriers.
    """
    loops, body = _nest(stmt)
    if not loops or not threads or not _independent(body):
        return None
    known = known_of(around)
    counts: list[int] = []
    for loop in loops:
        most = most_iterations(loop, known)
        if most is None:
            return None
        counts.append(most)
        known[loop.var] = values_of(loop, known)
    total, width = prod(counts), prod(extent for _, extent in threads)
    turns = -(-total // width)
    turn = f"{loops[-1].var}.turn"
    number = (
        add(mul(Index(turn), const(width)), _number(threads)) if turns > 1 else (_number(threads))
    )
    guard = compare("lt", number, const(total)) if turns * width != total else None
    where: dict[Expr, Expr] = {}
    step = total
    for loop, count in zip(loops, counts, strict=True):
        step //= max(count, 1)
        position = floordiv(number, const(step))
        if loop is not loops[0]:
            position = mod(position, const(count))
        if span_of(loop, {}) != (count, count):
            guard = both(guard, compare("lt", position, substitute(span(loop), where)))
        where[Index(loop.var)] = add(substitute(loop.lo, where), position)
    dealt = substitute_in(body, where)
    dealt = dealt if guard is None else If(guard, dealt)
    return dealt if turns == 1 else For(turn, const(0), const(turns), dealt)


def _nest(stmt: Stmt) -> tuple[list[For], Stmt]:
    """The perfectly nested loops of step 1 from the outside, but vector loops, and their body."""
    loops: list[For] = []
    while isinstance(stmt, For) and stmt.kind != "vector" and stmt.step == 1:
        if any(accesses(e) for e in (stmt.lo, stmt.hi)):
            break
        loops.append(stmt)
        stmt = stmt.body
    return loops, stmt


def _independent(body: Stmt) -> bool:
    """Is this one store, perhaps under conditions or in a vector loop, that reads others only?"""
    stores = [s for s in walk(body) if not isinstance(s, (If, For))]
    if len(stores) != 1 or not isinstance(stores[0], Store):
        return False
    store = stores[0]
    read = [a.tensor for e in (*store.index, store.value) for a in accesses(e)]
    return store.buffer not in read


def _number(threads: Sequence[tuple[str, int]]) -> Expr:
    """The number of a thread among all of them."""
    number: Expr = const(0)
    for name, extent in reversed(threads):
        number = add(mul(number, const(extent)), Index(name))
    return number
