"""Buffers that lie around thread loops and hold cells of single threads become each thread's own.

    alloc acc: register f32[16, 64]:                 alloc acc: register f32[1, 4]:
        .. acc[ty, tx*4 + j] ..            ==>           .. acc[0, j] ..

The part of an index that depends on the thread is the same for all accesses of that thread, so
taking it away renames the thread's cells. What remains is a thread's share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.affine import Interval, Linear, bounds, linear
from ...algo.tensor_expr.build import const, sub
from ...algo.tensor_expr.expr import Access, Expr, Index, transform
from ..ir import Buffer, For, Stmt, Store, Update, contiguous, with_
from ..ir import rebuild as rebuild_stmt
from ..ranges import known_of
from ..sharing import Meeting, Place, Touch, touches

Split = tuple[tuple[tuple[str, int], ...], Expr]


def private(
    buffer: Buffer, body: Stmt, threads: Sequence[str], around: tuple[For, ...]
) -> tuple[Buffer, Stmt]:
    """A thread's own share of `buffer`, and what `body` does with it.

    `threads` are the variables of the thread axes whose loops are inside the allocation, `around`
    the loops outside. Raises `ScheduleError` where two threads use one cell.
    """
    uses = [touch for touch in touches(body, Place(around)) if touch.buffer == buffer.name]
    _check(buffer, uses, threads, around, "thread")
    shares = [
        _share([(use.cell[axis], known_of(use.loops)) for use in uses], threads)
        for axis in range(len(buffer.shape))
    ]
    if all(share is None for share in shares):
        return buffer, body
    shape = tuple(
        extent if share is None else share[1] - share[0] + 1
        for extent, share in zip(buffer.shape, shares, strict=True)
    )
    small = with_(buffer, shape=shape, strides=contiguous(shape))

    def axis_index(part: Expr, share: tuple[int, int] | None) -> Expr:
        pair = None if share is None else split(part, threads)
        return part if share is None or pair is None else sub(pair[1], const(share[0]))

    def cell(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(axis_index(*pair) for pair in zip(index, shares, strict=True))

    def expr(e: Expr) -> Expr:
        return transform(
            e,
            lambda item: (
                Access(item.tensor, cell(item.indices))
                if isinstance(item, Access) and item.tensor == buffer.name
                else item
            ),
        )

    def stmt(s: Stmt) -> Stmt:
        new = rebuild_stmt(s, stmt, expr)
        match new:
            case Store(name, index, value) if name == buffer.name:
                return Store(name, cell(index), value)
            case Update(name, index, reducer, value, _) if name == buffer.name:
                return Update(name, cell(index), reducer, value)  # its cells are one thread's
        return new

    return small, stmt(body)


def split(expr: Expr, threads: Sequence[str]) -> Split | None:
    """An index as a linear form in the thread variables and a rest without them, or None."""
    form = linear(expr)
    if form is None or any(form.inside(name) for name in threads):
        return None
    atoms = [Index(name) for name in threads]
    part = tuple((atom.name, form.of(atom)) for atom in atoms if form.of(atom))
    others = {atom: by for atom, by in form.terms.items() if atom not in atoms}
    return part, Linear(others, form.const).expr


def _share(
    parts: Sequence[tuple[Expr, Mapping[str, Interval]]], threads: Sequence[str]
) -> tuple[int, int] | None:
    """The bounds of what is left of an axis' indices without the thread part they share."""
    common: tuple[tuple[str, int], ...] | None = None
    lows, highs = [], []
    for part, known in parts:
        pair = split(part, threads)
        if pair is None or pair[0] != (common or pair[0]):
            return None
        common = pair[0]
        low, high = bounds(pair[1], known)
        if low is None or high is None:
            return None
        lows.append(low)
        highs.append(high)
    return (min(lows), max(highs)) if common else None


def check_blocks(
    buffer: Buffer, body: Stmt, blocks: Sequence[str], around: tuple[For, ...]
) -> None:
    """Raises `ScheduleError` where two blocks use one cell of a buffer that each has of its own.

    `blocks` are the variables of the block axes whose loops are inside the allocation.
    """
    uses = [touch for touch in touches(body, Place(around)) if touch.buffer == buffer.name]
    _check(buffer, uses, blocks, around, "block")


def _check(
    buffer: Buffer,
    uses: Sequence[Touch],
    axes: Sequence[str],
    around: tuple[For, ...],
    owner: str,
) -> None:
    fixed = frozenset(loop.var for loop in around if loop.var not in axes)
    meeting = Meeting(axes)
    for use in uses:
        for other in uses:
            if use.write and meeting.conflict(use, other, fixed):
                wider = ", or use scope shared" if owner == "thread" else ""
                raise ScheduleError(
                    f"{buffer.scope} buffer {buffer.name}: several {owner}s use one cell, and each "
                    f"{owner} has its own; bind the loops of every statement that uses it to the "
                    f"same {owner} axes{wider}"
                )
