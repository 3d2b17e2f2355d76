"""Unroll loops become copies of their bodies.

    for i in 0 .. min(2, n) unroll: S(i)     ==>     if 0 < n: S(0)
                                                     if 1 < n: S(1)

So does a serial loop whose variable indexes a register buffer, which must be indexed by constants,
and a loop marked dot where the machine has no such instruction: its copies are the portable form.
A loop without a constant bound, or one whose copies would be more than the budget, is left serial:
unrolling is a wish about speed, not about meaning. But a register buffer that needs more copies,
or more registers than there are by far, is refused: it would take LLVM seconds, and gain nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.affine import Interval, normalize
from ...algo.tensor_expr.build import add, compare, const
from ...algo.tensor_expr.expr import Access, Const, Expr, Index, indices_of
from ...algo.tensor_expr.expr import accesses as reads
from ...sched.loop.machine import Machine
from ...sched.loop.marks import LOOP_WEIGHT, UNROLL_BUDGET
from ..ir import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    If,
    Stmt,
    Store,
    Update,
    allocated,
    block,
    expressions,
    rebuild,
    substitute,
    with_,
)
from ..ir import walk as statements
from ..ranges import inside, most_iterations

FILES = 4
"""A register buffer may have this many times the elements of all vector registers."""

Known = Mapping[str, Interval]


def unroll(function: Function, machine: Machine) -> Function:
    """The function without unroll loops. Raises `ScheduleError` for register buffers too large."""
    for buffer in allocated(function.body):
        if buffer.scope == "register":
            _check_registers(buffer, machine)
    return Function(function.name, function.params, _stmt(function.body, {}, frozenset(), machine))


def _check_registers(buffer: Buffer, machine: Machine) -> None:
    cells, lanes = prod(buffer.shape), machine.lanes(buffer.dtype.itemsize)
    most = FILES * machine.registers * lanes
    if cells > most:
        raise ScheduleError(
            f"{buffer.name}: a register buffer of {cells} elements, and {machine.registers} "
            f"registers of {lanes} lanes allow {most} at most; stage it further in, split a loop "
            'around it, or use scope="stack"'
        )


def _stmt(stmt: Stmt, known: Known, registers: frozenset[str], machine: Machine) -> Stmt:
    if isinstance(stmt, Alloc):
        registers |= {buffer.name for buffer in stmt.buffers if buffer.scope == "register"}
    within = inside(stmt, known)
    done = rebuild(stmt, lambda inner: _stmt(inner, within, registers, machine))
    return _unrolled(done, known, registers, machine) if isinstance(done, For) else done


def _unrolled(loop: For, known: Known, registers: frozenset[str], machine: Machine) -> Stmt:
    portable = loop.kind == "dot" and not _is_in_word(most_iterations(loop, known), machine)
    if loop.kind == "unroll" or portable:
        return _copies(loop, known)
    register = _indexed(loop, registers) if loop.kind in ("serial", "dot") else None
    return loop if register is None else _copies(loop, known, register)


def _is_in_word(count: int | None, machine: Machine) -> bool:
    """Has the machine words of at least so many elements?"""
    return count is not None and any(machine.adds(n) for n in (2, 4) if n >= count)


def _indexed(loop: For, registers: frozenset[str]) -> str | None:
    """A register buffer in an index of which the loop's variable occurs, if any."""
    return next((cell.tensor for cell in indexed(loop, registers)), None)


def indexed(loop: For, registers: frozenset[str]) -> Iterator[Access]:
    """The cells of register buffers in an index of which the loop's variable occurs."""
    for stmt in statements(loop.body) if registers else ():
        cells = [item for expr in expressions(stmt) for item in reads(expr)]
        if isinstance(stmt, (Store, Update)):
            cells.append(Access(stmt.buffer, stmt.index))
        for cell in cells:
            if cell.tensor in registers and any(loop.var in indices_of(e) for e in cell.indices):
                yield cell


def _copies(loop: For, known: Known, register: str | None = None) -> Stmt:
    count = most_iterations(loop, known)
    if count is None:
        return with_(loop, kind="serial")
    total = count * sum(map(_weight, statements(loop.body)))
    if total > UNROLL_BUDGET and register is not None:
        raise ScheduleError(
            f"{register}: a register buffer needs the loops over it unrolled, and loop {loop.var} "
            f"becomes {total} statements, an inner loop counting for {LOOP_WEIGHT}; the budget is "
            f'{UNROLL_BUDGET}: stage it further in, split a loop around it, or use scope="stack"'
        )
    if total > UNROLL_BUDGET:
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


def _weight(stmt: Stmt) -> int:
    """What one statement, without those within it, adds to LLVM's time, in plain statements."""
    match stmt:
        case For(kind="vector") | Block():
            return 0
        case For():
            return LOOP_WEIGHT
    return 1
