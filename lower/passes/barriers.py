"""Derives the barriers of a kernel from which threads touch which cells.

    S[t] = A[..]                            S[t] = A[..]
    acc += S[15 - t]          ==>           barrier
                                            acc += S[15 - t]

A write and another access of the same cell by different threads of a block, in this or in an
earlier turn of a loop, are separated by a barrier. isl says where that is so; nothing that needs
no barrier gets one. A barrier is put as late as possible and as far outside as possible, only
where all threads of a block come by. What barriers cannot order is refused: threads that meet
inside one statement, and blocks that meet anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...algo.errors import InternalError, ScheduleError
from ...algo.tensor_expr.expr import Access, Expr, Index, walk
from ..ir import AXES, Alloc, Barrier, Block, For, Function, If, Let, Stmt, block
from ..ir import walk as statements
from ..ir_print import print_expr
from ..sharing import Meeting, Place, Touch, touches


def barriers(function: Function) -> Function:
    """The function, in the form that `axes` gives, with the barriers that its threads need."""
    return Function(function.name, function.params, _top(function.body))


def _top(stmt: Stmt) -> Stmt:
    match stmt:
        case Block(stmts):
            return block(*map(_top, stmts))
        case Alloc(buffer, body) if buffer.scope == "heap":
            return Alloc(buffer, _top(body))
        case For(kind=kind) if kind in AXES:
            return _nest(stmt, (), frozenset())
    return stmt


def _nest(stmt: Stmt, loops: tuple[For, ...], shared: frozenset[str]) -> Stmt:
    """Down through the axes and the shared buffers to the program of a thread."""
    match stmt:
        case For(var, lo, hi, body, kind) if kind in AXES:
            return For(var, lo, hi, _nest(body, (*loops, stmt), shared), kind)
        case Alloc(buffer, body) if buffer.scope == "shared":
            return Alloc(buffer, _nest(body, loops, shared | {buffer.name}))
    own = {item.buffer.name for item in statements(stmt) if isinstance(item, Alloc)}
    placing = _Placing(loops, own)
    placing.check_blocks(stmt, shared)
    return placing.place(stmt, _Pending(()), Place(loops))[0]


@dataclass(frozen=True, slots=True)
class _Pending:
    """The accesses since the last barrier, on any way that leads here."""

    touches: tuple[Touch, ...]

    def plus(self, more: Iterable[Touch]) -> _Pending:
        return _Pending(tuple(dict.fromkeys((*self.touches, *more))))


class _Placing:
    def __init__(self, loops: Sequence[For], own: set[str]) -> None:
        # What a thread allocates is its own; shared buffers were allocated outside.
        self.own = own
        self.threads = [loop.var for loop in loops if loop.kind.startswith("thread")]
        blocks = [loop.var for loop in loops if loop.kind.startswith("block")]
        self.blocks = Meeting(blocks)
        self.meeting = Meeting(self.threads, blocks)
        self.loops = tuple(loops)

    def touches(self, stmt: Stmt, at: Place) -> tuple[Touch, ...]:
        """The accesses of a statement to memory that threads share."""
        found = dict.fromkeys(touches(stmt, at))
        return tuple(touch for touch in found if touch.buffer not in self.own)

    def check_blocks(self, body: Stmt, shared: frozenset[str]) -> None:
        """Refuses blocks that meet on a cell of global memory: nothing orders them."""
        found = [t for t in self.touches(body, Place(self.loops)) if t.buffer not in shared]
        for touch in found:
            for other in found:
                if touch.write and self.blocks.conflict(touch, other):
                    raise ScheduleError(
                        f"{_cell(touch)} is written by one block and "
                        f"{'written' if other.write else 'read'} by another as {_cell(other)}, "
                        f"which run in any order; bind other loops to the block axes"
                    )

    def meets(self, before: _Pending, after: Iterable[Touch]) -> bool:
        """Would some thread meet another one if there were no barrier between?"""
        return any(self.meeting.conflict(a, b) for b in after for a in before.touches)

    def place(self, stmt: Stmt, before: _Pending, at: Place) -> tuple[Stmt, _Pending]:
        """The statement with its barriers, and what is pending after it."""
        if isinstance(stmt, Barrier):
            return stmt, _Pending(())
        if isinstance(stmt, Block):
            placed = []
            for part in stmt.stmts:
                new, before = self.place(part, before, at)
                placed.append(new)
            return block(*placed), before
        here = self.touches(stmt, at)
        if self.meets(before, here):
            new, after = self.place(stmt, _Pending(()), at)
            return block(Barrier(), new), after
        if not _has_barrier(stmt) and not self.meets(_Pending(here), here):
            return stmt, before.plus(here)
        return self.inside(stmt, before, at)

    def inside(self, stmt: Stmt, before: _Pending, at: Place) -> tuple[Stmt, _Pending]:
        """A statement in which threads meet: barriers go into it, if all threads come by there."""
        match stmt:
            case Alloc(buffer, body):
                new, after = self.place(body, before, at)
                return Alloc(buffer, new), after
            case Let(var, value, body):
                new, after = self.place(body, before, at.let(var, value))
                return Let(var, value, new), after
            case If(cond, then, orelse) if self.uniform(cond, at):
                then, after = self.place(then, before, at.where(cond))
                if orelse is None:
                    return If(cond, then), before.plus(after.touches)
                orelse, other = self.place(orelse, before, at.where(cond, False))
                return If(cond, then, orelse), after.plus(other.touches)
            case For(var, lo, hi, body, kind, step, lanes) if (
                kind != "vector" and self.uniform(lo, at) and self.uniform(hi, at)
            ):
                new, after = self.place(body, before, at.under(stmt))
                # What is pending at the end of a turn is so at the start of the next.
                new, after = self.place(new, before.plus(after.touches), at.under(stmt))
                return For(var, lo, hi, new, kind, step, lanes), before.plus(after.touches)
        raise self.unordered(self.touches(stmt, at))

    def unordered(self, here: Sequence[Touch]) -> Exception:
        for a in here:
            for b in here:
                if self.meeting.conflict(a, b):
                    return ScheduleError(
                        f"threads of a block meet on {_cell(a)} and {_cell(b)} where not all of "
                        f"them come by, so no barrier can stand between; bind the loops so that "
                        f"each thread uses cells of its own there"
                    )
        return InternalError("a barrier stands where not all threads of a block come by")

    def uniform(self, expr: Expr, at: Place) -> bool:
        """Has the expression certainly one value for all threads of a block?"""
        known = {loop.var for loop in at.loops} - set(self.threads)
        return all(
            not isinstance(item, Access) and (not isinstance(item, Index) or item.name in known)
            for item in walk(at.value(expr))
        )


def _has_barrier(stmt: Stmt) -> bool:
    return any(isinstance(item, Barrier) for item in statements(stmt))


def _cell(touch: Touch) -> str:
    return print_expr(Access(touch.buffer, touch.cell))
