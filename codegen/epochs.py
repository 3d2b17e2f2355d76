"""Race detection as loop IR: every shared cell remembers who wrote and who read it, and when.

A stamp is `clock + thread`; the clock moves on by the number of threads at every barrier and at
every new block, so stamps of this epoch are those of at least `clock`, and stamps of this block
those of at least `clock[BLOCK]`. Two threads that meet on a cell in one epoch, one of them
writing, race whatever the values are; two blocks that meet on a cell of global memory do so at
any time within a launch. Reads may meet reads, and atomic updates atomic updates: each of these
two kinds of company has shadows of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..algo.dtypes import i64
from ..algo.tensor_expr.build import add, compare, const
from ..algo.tensor_expr.expr import Access, Call, Expr, children
from ..lower.ir import (
    Buffer,
    If,
    Stmt,
    Store,
    Update,
    block,
    contiguous,
    expressions,
    rebuild,
)

EPOCH, BLOCK, LAUNCH = 0, 1, 2
"""Places in the clock buffer: when the epoch, the block and the launch began."""
READERS, UPDATERS = ("reader", "other", "first"), ("updater", "other.updater", "first.updater")
"""Roles of shadows: of two threads of this epoch, and of the first one of the launch."""
KIND, BUFFER, CELL, ME, OTHER, HERE, AT_BLOCK = range(7)
"""Places in the report buffer, which holds the first race found; KIND 0 means none."""
READ, WRITE, OVERWRITE, UNWRITTEN, READ_UPDATED, OVERWRITE_UPDATED = range(1, 7)
"""Kinds: reads what another wrote; writes what another wrote; writes what another read; reads
shared memory that nobody wrote; reads, or writes, what another updated atomically."""
CLOCK = Buffer("clock.", i64, (3,), (1,), "param")
REPORT = Buffer("report.", i64, (7,), (1,), "param")


@dataclass(frozen=True, slots=True)
class Shadows:
    """The record of one buffer: last writer, two of this epoch's readers, the launch's first.

    A buffer that is updated atomically has the same of its updaters.
    """

    buffer: Buffer
    number: int
    atomic: bool = False

    @property
    def shared(self) -> bool:
        """Is the buffer one block's own, and new with each block?"""
        return self.buffer.scope == "shared"

    @property
    def params(self) -> tuple[Buffer, ...]:
        """The shadow buffers, of the same shape as the buffer itself."""
        shape = self.buffer.shape
        several = [READERS, UPDATERS] if self.atomic else [READERS]
        roles = ["writer", *(role for group in several for role in self.stamped(group))]
        return tuple(
            Buffer(f"{self.buffer.name}.{role}.", i64, shape, contiguous(shape), "param")
            for role in roles
        )

    def stamped(self, group: tuple[str, str, str]) -> tuple[str, ...]:
        """The roles that are kept: other blocks never meet on shared memory."""
        return group[:2] if self.shared else group

    def of(self, role: str, index: tuple[Expr, ...]) -> Access:
        """The shadow cell of a role."""
        return Access(f"{self.buffer.name}.{role}.", index)


def advance(threads: int, *places: int) -> Stmt:
    """A new epoch begins, and with it what `places` say (BLOCK, LAUNCH)."""
    now = Call("add", (_clock(EPOCH), const(threads)))
    begins = [Store(CLOCK.name, (const(place),), _clock(EPOCH)) for place in places]
    return block(Store(CLOCK.name, (const(EPOCH),), now), *begins)


def record(stmt: Stmt, shadows: Mapping[str, Shadows], thread: Expr, here: Expr) -> Stmt:
    """`stmt` of one thread with its accesses to the buffers of `shadows` recorded.

    `thread` is the number of the thread in its block, `here` that of the launch and the block.
    """
    recorder = _Recorder(shadows, Call("add", (_clock(EPOCH), thread)), here)
    return recorder.stmt(stmt)


@dataclass(frozen=True, slots=True)
class _Race:
    """That `cond` holds is a race of some kind, with the thread of the stamp `other`."""

    cond: Expr
    kind: int
    other: Expr


class _Recorder:
    def __init__(self, shadows: Mapping[str, Shadows], me: Expr, here: Expr) -> None:
        self.shadows, self.me, self.here = shadows, me, here

    def stmt(self, stmt: Stmt) -> Stmt:
        before = [record for expr in expressions(stmt) for record in self.reads(expr)]
        match stmt:
            case Store(buffer, index, _) if buffer in self.shadows:
                before.append(self.write(self.shadows[buffer], index))
            case Update(buffer, index, _, _, atomic) if buffer in self.shadows:
                # Whom a read meets, the write meets too.
                record = self.update if atomic else self.write
                before.append(record(self.shadows[buffer], index, updates=True))
        return block(*before, rebuild(stmt, self.stmt))

    def reads(self, expr: Expr) -> Iterator[Stmt]:
        """Records of an expression's reads; a branch of `where` only where it is selected."""
        if isinstance(expr, Call) and expr.op == "where":
            cond, *branches = expr.args
            yield from self.reads(cond)
            then, orelse = (list(self.reads(branch)) for branch in branches)
            if then or orelse:
                yield If(cond, block(*then), block(*orelse) if orelse else None)
            return
        for child in children(expr):
            yield from self.reads(child)
        if isinstance(expr, Access) and expr.tensor in self.shadows:
            yield self.read(self.shadows[expr.tensor], expr.indices)

    def read(self, to: Shadows, index: tuple[Expr, ...]) -> Stmt:
        races = [self.written(to, index, READ)]
        if to.atomic:
            races += self.met(to, index, UPDATERS, READ_UPDATED)
        if to.shared:
            races.append(self.unwritten(to, index))
        return block(self.report(to, index, races), *self.join(to, index, READERS))

    def update(self, to: Shadows, index: tuple[Expr, ...], updates: bool = True) -> Stmt:
        """An atomic update, which meets writers and readers but not its like."""
        races = [self.written(to, index, WRITE), *self.met(to, index, READERS, OVERWRITE)]
        if to.shared:
            races.append(self.unwritten(to, index))
        return block(self.report(to, index, races), *self.join(to, index, UPDATERS))

    def write(self, to: Shadows, index: tuple[Expr, ...], updates: bool = False) -> Stmt:
        races = [self.written(to, index, WRITE), *self.met(to, index, READERS, OVERWRITE)]
        if to.atomic:
            races += self.met(to, index, UPDATERS, OVERWRITE_UPDATED)
        if to.shared and updates:
            races.append(self.unwritten(to, index))
        return block(self.report(to, index, races), self.stamp(to.of("writer", index)))

    def met(
        self, to: Shadows, index: tuple[Expr, ...], group: tuple[str, str, str], kind: int
    ) -> list[_Race]:
        """Another thread of such company was here in this epoch, or another block before."""
        stamps = [to.of(role, index) for role in to.stamped(group)]
        races = [_Race(self.now(stamp), kind, stamp) for stamp in stamps[:2]]
        return races + [_Race(_earlier(first), kind, first) for first in stamps[2:]]

    def join(self, to: Shadows, index: tuple[Expr, ...], group: tuple[str, str, str]) -> list[Stmt]:
        """This thread joins such company."""
        one, other, *first = (to.of(role, index) for role in to.stamped(group))
        stamps: list[Stmt] = [
            If(compare("lt", cell, _clock(LAUNCH)), self.stamp(cell)) for cell in first
        ]
        second = If(compare("ne", one, self.me), self.stamp(other))
        stamps.append(If(compare("lt", one, _clock(EPOCH)), self.stamp(one), second))
        return stamps

    def written(self, to: Shadows, index: tuple[Expr, ...], kind: int) -> _Race:
        """Another thread wrote in this epoch, or another block in this launch."""
        stamp = to.of("writer", index)
        meets = self.now(stamp)
        return _Race(meets if to.shared else Call("or", (meets, _earlier(stamp))), kind, stamp)

    def unwritten(self, to: Shadows, index: tuple[Expr, ...]) -> _Race:
        stamp = to.of("writer", index)
        return _Race(compare("lt", stamp, _clock(BLOCK)), UNWRITTEN, stamp)

    def now(self, stamp: Expr) -> Expr:
        """Is a stamp another thread's of this epoch?"""
        return _both(compare("ge", stamp, _clock(EPOCH)), compare("ne", stamp, self.me))

    def report(self, to: Shadows, index: tuple[Expr, ...], races: Sequence[_Race]) -> Stmt:
        """Reports the first of the races that there is, unless there was one before."""
        cell: Expr = const(0)
        for at, stride in zip(index, contiguous(to.buffer.shape), strict=True):
            cell = add(cell, Call("mul", (at, const(stride))))
        *others, last = races
        kind: Expr = const(last.kind)
        cond, other = last.cond, last.other
        for race in reversed(others):
            kind = Call("where", (race.cond, const(race.kind), kind))
            other = Call("where", (race.cond, race.other, other))
            cond = Call("or", (race.cond, cond))
        fields = {
            KIND: kind, BUFFER: const(to.number), CELL: cell, ME: self.me, OTHER: other,
            HERE: self.here, AT_BLOCK: _clock(BLOCK),
        }  # fmt: skip
        none_yet = compare("eq", Access(REPORT.name, (const(KIND),)), const(0))
        stores = [Store(REPORT.name, (const(at),), value) for at, value in fields.items()]
        return If(cond, If(none_yet, block(*stores)))

    def stamp(self, cell: Access) -> Stmt:
        return Store(cell.tensor, cell.indices, self.me)


def _clock(place: int) -> Expr:
    return Access(CLOCK.name, (const(place),))


def _earlier(stamp: Expr) -> Expr:
    """Is a stamp another block's of this launch?"""
    return _both(compare("ge", stamp, _clock(LAUNCH)), compare("lt", stamp, _clock(BLOCK)))


def _both(a: Expr, b: Expr) -> Expr:
    return Call("and", (a, b))
