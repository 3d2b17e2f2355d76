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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...algo.errors import InternalError, ScheduleError
from ...algo.tensor_expr.expr import Access, Expr, Index, accesses, indices_of, walk
from ..ir import (
    AXES,
    Alloc,
    Barrier,
    Block,
    For,
    Function,
    If,
    Let,
    Stmt,
    Store,
    Update,
    allocated,
    block,
    with_,
)
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
        case Alloc(buffers, body) if stmt.scope == "heap":
            return Alloc(buffers, _top(body))
        case For(kind=kind) if kind in AXES:
            return _nest(stmt, (), frozenset())
    return stmt


def _nest(stmt: Stmt, loops: tuple[For, ...], shared: frozenset[str]) -> Stmt:
    """Down through the axes and the shared buffers to the program of a thread."""
    match stmt:
        case For(body=body, kind=kind) if kind in AXES:
            return with_(stmt, body=_nest(body, (*loops, stmt), shared))
        case Alloc(buffers, body) if stmt.scope == "shared":
            return Alloc(buffers, _nest(body, loops, shared | {buffer.name for buffer in buffers}))
    own = {buffer.name for buffer in allocated(stmt)}
    placing = _Placing(loops, own, _sizes(stmt))
    placing.check_blocks(stmt, shared)
    return placing.place(stmt, NOTHING, Place(loops))[0]


def _sizes(stmt: Stmt) -> frozenset[str]:
    """Names of values that are read from one cell each, which nothing here writes."""
    written = {item.buffer for item in statements(stmt) if isinstance(item, (Store, Update))}
    lets = [item for item in statements(stmt) if isinstance(item, Let)]
    read = {let.var: accesses(let.value) for let in lets}
    return frozenset(
        var
        for var, cells in read.items()
        if cells and not any(a.tensor in written or indices_of(a) for a in cells)
    )


@dataclass(frozen=True, slots=True)
class _Pending:
    """The accesses since the last barrier, on any way that leads here.

    With each goes the number of loops around it, from the outside, that are still in the same
    iteration.
    """

    touches: Mapping[Touch, int]

    def plus(self, more: Mapping[Touch, int]) -> _Pending:
        touches = dict(self.touches)
        for touch, depth in more.items():
            touches[touch] = min(depth, touches.get(touch, depth))
        return _Pending(touches)

    def after_turn(self, loops: int) -> _Pending:
        """What was pending at the end of a turn of the loop inside `loops` others, in the next."""
        return _Pending({touch: min(depth, loops) for touch, depth in self.touches.items()})


NOTHING = _Pending({})


class _Placing:
    def __init__(self, loops: Sequence[For], own: set[str], sizes: frozenset[str]) -> None:
        # `sizes` have one value for all threads, although it is read from memory.
        # What a thread allocates is its own; shared buffers were allocated outside.
        self.own = own
        self.sizes = sizes
        self.threads = [loop.var for loop in loops if loop.kind.startswith("thread")]
        self.blocks = Meeting([loop.var for loop in loops if loop.kind.startswith("block")])
        self.meeting = Meeting(self.threads)
        self.loops = tuple(loops)

    def touches(self, stmt: Stmt, at: Place) -> dict[Touch, int]:
        """The accesses of a statement to memory that threads share, as pending."""
        depth = len(at.loops)
        return {touch: depth for touch in touches(stmt, at) if touch.buffer not in self.own}

    def check_blocks(self, body: Stmt, shared: frozenset[str]) -> None:
        """Refuses blocks that meet on a cell of global memory: nothing orders them."""
        found = [t for t in self.touches(body, Place(self.loops)) if t.buffer not in shared]
        for touch in found:
            for other in found:
                if touch.write and _race(self.blocks, touch, other, self.sizes):
                    raise ScheduleError(
                        f"{_cell(touch)} is written by one block and "
                        f"{'written' if other.write else 'read'} by another as {_cell(other)}, "
                        f"which run in any order; bind other loops to the block axes"
                    )

    def meeting_pair(
        self, before: Mapping[Touch, int], after: Iterable[Touch]
    ) -> tuple[Touch, Touch] | None:
        """Two accesses by which a thread may meet another one, if no barrier were between."""
        late_ones = list(after)
        for early, depth in before.items():
            for late in late_ones:
                fixed = {loop.var for loop in late.loops[:depth]} - set(self.threads)
                if _race(self.meeting, early, late, self.sizes | fixed):
                    return early, late
        return None

    def place(self, stmt: Stmt, before: _Pending, at: Place) -> tuple[Stmt, _Pending]:
        """The statement with its barriers, and what is pending after it."""
        if isinstance(stmt, Barrier):
            return stmt, NOTHING
        if isinstance(stmt, Block):
            placed = []
            for part in stmt.stmts:
                new, before = self.place(part, before, at)
                placed.append(new)
            return block(*placed), before
        here = self.touches(stmt, at)
        if self.meeting_pair(before.touches, here) is not None:
            new, after = self.place(stmt, NOTHING, at)
            return block(Barrier(), new), after
        if not _has_barrier(stmt) and self.meeting_pair(here, here) is None:
            return stmt, before.plus(here)
        return self.inside(stmt, before, at)

    def inside(self, stmt: Stmt, before: _Pending, at: Place) -> tuple[Stmt, _Pending]:
        """A statement in which threads meet: barriers go into it, if all threads come by there."""
        match stmt:
            case Alloc(buffers, body):
                new, after = self.place(body, before, at)
                return Alloc(buffers, new), after
            case Let(var, value, body):
                new, after = self.place(body, before, at.let(var, value))
                return Let(var, value, new), after
            case If(cond, then, orelse) if self.uniform(cond, at):
                then, after = self.place(then, before, at.where(cond))
                if orelse is None:
                    return If(cond, then), before.plus(after.touches)
                orelse, other = self.place(orelse, before, at.where(cond, False))
                return If(cond, then, orelse), after.plus(other.touches)
            case For(_, lo, hi, body, kind) if (
                kind != "vector" and self.uniform(lo, at) and self.uniform(hi, at)
            ):
                new, after = self.place(body, before, at.under(stmt))
                # What is pending at the end of a turn is so at the start of the next.
                turned = after.after_turn(len(at.loops))
                new, after = self.place(new, before.plus(turned.touches), at.under(stmt))
                return with_(stmt, body=new), before.plus(after.touches)
        here = self.touches(stmt, at)
        pair = self.meeting_pair(here, here)
        if pair is None:
            raise InternalError("a barrier stands where not all threads of a block come by")
        raise ScheduleError(
            f"threads of a block meet on {_cell(pair[0])} and {_cell(pair[1])} where not all of "
            f"them come by, so no barrier can stand between; bind the loops so that each thread "
            f"uses cells of its own there"
        )

    def uniform(self, expr: Expr, at: Place) -> bool:
        """Has the expression certainly one value for all threads of a block?"""
        known = ({loop.var for loop in at.loops} - set(self.threads)) | self.sizes
        return all(
            not isinstance(item, Access) and (not isinstance(item, Index) or item.name in known)
            for item in walk(at.value(expr))
        )


def _race(meeting: Meeting, a: Touch, b: Touch, fixed: frozenset[str] = frozenset()) -> bool:
    """May the two meet, and does it matter? Atomic updates of one reducer may."""
    together = a.atomic is not None and a.atomic == b.atomic
    return not together and meeting.conflict(a, b, fixed)


def _has_barrier(stmt: Stmt) -> bool:
    return any(isinstance(item, Barrier) for item in statements(stmt))


def _cell(touch: Touch) -> str:
    return print_expr(Access(touch.buffer, touch.cell))
