"""Runs a GPU kernel on the host, one thread after the other, and finds its races.

Blocks become loops. The program of a thread is cut at its barriers into regions, and each region
runs once for every thread of the block, in an order that is shuffled anew for every region.
Buffers that are each thread's own get one copy a thread, poisoned first; every access to memory
that threads share is recorded (`epochs`). The result is loop IR for the host like any other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from ..algo.dtypes import i64
from ..algo.errors import InternalError
from ..algo.tensor_expr.build import add, const
from ..algo.tensor_expr.expr import Access, Expr, Index, accesses, indices_of, transform
from ..lower.ir import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    For,
    Function,
    If,
    Let,
    Prefetch,
    Stmt,
    Store,
    Update,
    allocate,
    allocated,
    block,
    contiguous,
    rebuild,
    substitute,
    with_,
)
from ..lower.ir import walk as statements
from ..lower.ir_print import print_stmt
from ..lower.launch import Axis, Launch, launch_of, launches, number_of
from . import epochs
from .epochs import CLOCK, REPORT, Shadows
from .gpu_limits import EMULATED, check
from .host_code import compile
from .outside import OutsideError
from .poison import poison

Array = np.ndarray[Any, Any]


class Race(InternalError):
    """Two threads of an emulated GPU met on a cell with no barrier between."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """A kernel as host code, and what its added parameters are.

    `function` takes the kernel's parameters, then the clock and the report, then the `orders` (of
    each axis of each launch one permutation a region, shape [regions, extent]), then the shadows.
    `launches` are the nests in order, and `step` is how far the clock goes on in an epoch.
    """

    function: Function
    orders: tuple[Buffer, ...]
    shadows: tuple[Shadows, ...]
    launches: tuple[Launch, ...]
    step: int


def emulate(
    function: Function,
    arrays: Sequence[Array],
    seed: int = 0,
    run: Callable[..., None] | None = None,
) -> None:
    """Runs a kernel, in the form that `lower.passes.barriers` gives, on arrays, written in place.

    Raises `Race` where threads meet with no barrier between, `InternalError` for a barrier that
    not all threads reach, `OutsideError` for an index read from an array that is out of range.
    `run` executes the host function on arrays; by default it is compiled.
    """
    plan = emulation(function)
    rng = np.random.default_rng(seed)
    clock, report = (np.zeros(buffer.shape, np.int64) for buffer in (CLOCK, REPORT))
    orders = [
        np.stack([rng.permutation(buffer.shape[1]) for _ in range(buffer.shape[0])])
        for buffer in plan.orders
    ]
    shadows = [np.zeros(p.shape, np.int64) for s in plan.shadows for p in s.params]
    execute = run or _native
    execute(plan.function, *arrays, clock, report, *orders, *shadows)
    if report[epochs.KIND]:
        raise Race(_message(function.name, plan, report))


def _native(function: Function, *arrays: Array) -> None:
    """Compiles and calls a host function, on one thread."""
    native = compile(function, level=0)  # it runs once, so compiling is what takes time
    workspace = np.empty(native.emitted.workspace.bytes(1) + 64, np.uint8)
    start = workspace.ctypes.data
    start += -start % 64
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_void_p for _ in range(2 + len(arrays))))
    call = kind(native.loaded.address(function.name))
    status = call(None, start, *(array.ctypes.data for array in arrays))
    if status:
        raise OutsideError(function.name, native.emitted.sites[status - 1])


def emulation(function: Function) -> Emulation:
    """The host code of a kernel in the form that `lower.passes.barriers` gives."""
    shadows = tuple(
        Shadows(b, n, _atomic(function, b.name)) for n, b in enumerate(_written(function))
    )
    nests = tuple(map(launch_of, launches(function.body)))
    for nest in nests:
        check(nest, EMULATED)
    step = max((launch.block_size for launch in nests), default=1)
    builder = _Builder({s.buffer.name: s for s in shadows}, step)
    body = builder.top(function.body)
    orders = tuple(builder.orders)
    added = (CLOCK, REPORT, *orders, *(p for s in shadows for p in s.params))
    host = Function(function.name, (*function.params, *added), body)
    return Emulation(host, orders, shadows, nests, step)


def _written(function: Function) -> list[Buffer]:
    """The buffers that threads may share and that some thread writes."""
    written = {s.buffer for s in statements(function.body) if isinstance(s, (Store, Update))}
    found = [param for param in function.params if param.name in written]
    return [*found, *(b for b in allocated(function.body) if b.scope in ("shared", "heap"))]


def _atomic(function: Function, buffer: str) -> bool:
    """Are there atomic updates of a buffer?"""
    updates = (stmt for stmt in statements(function.body) if isinstance(stmt, Update))
    return any(stmt.atomic and stmt.buffer == buffer for stmt in updates)


class _Builder:
    """Builds the host code of one launch after the other; `orders` are the permutations it asks."""

    def __init__(self, tracked: Mapping[str, Shadows], step: int) -> None:
        self.tracked, self.step = tracked, step
        self.orders: list[Buffer] = []
        self.count = 0

    def top(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Block(stmts):
                return block(*map(self.top, stmts))
            case Alloc(buffers, body):
                return Alloc(buffers, self.top(body))
        return self.launch(launch_of(stmt))

    def launch(self, launch: Launch) -> Stmt:
        orders = f"order.{self.count}."
        here = add(const(self.count << 32), number_of(launch.blocks))
        cutter = _Cutter(self.tracked, self.step, launch.threads, here, orders)
        body = block(epochs.advance(self.step, epochs.BLOCK), cutter.cut(launch.body))
        body = allocate(map(_on_host, launch.shared), body)
        for axis in reversed(launch.blocks):
            body = _in_order(axis, orders, 0, body)
        for axis in (*launch.blocks, *launch.threads):
            rows = cutter.regions if axis in launch.threads else 1
            shape = (rows, axis.extent)
            self.orders.append(Buffer(orders + axis.kind, i64, shape, contiguous(shape), "param"))
        self.count += 1
        return block(epochs.advance(self.step, epochs.LAUNCH), body)


class _Cutter:
    """Cuts the program of a thread at its barriers, for one launch."""

    def __init__(
        self,
        tracked: Mapping[str, Shadows],
        step: int,
        threads: tuple[Axis, ...],
        here: Expr,
        orders: str,
    ) -> None:
        self.tracked, self.step, self.threads = tracked, step, threads
        self.here, self.orders = here, orders
        self.regions = 0
        self.copies: set[str] = set()  # buffers with one copy a thread

    def cut(self, stmt: Stmt) -> Stmt:
        """Host code in which all threads do one region before any does the next."""
        if not _has_barrier(stmt):
            return self.region(stmt)
        match stmt:
            case Barrier():
                return epochs.advance(self.step)
            case Block(stmts):
                parts: list[Stmt] = []
                for barriers, members in groupby(stmts, _has_barrier):
                    group = tuple(members)
                    parts += map(self.cut, group) if barriers else [self.region(block(*group))]
                return block(*parts)
            case Alloc(buffers, body):
                self.copies |= {buffer.name for buffer in buffers}
                own = [_on_host(self.copied(buffer)) for buffer in buffers]
                return allocate(own, block(*map(poison, own), self.cut(body)))
            case Let(var, value, body) if self.fixed(value):
                return Let(var, value, self.cut(body))
            case Let(var, value, body) if not accesses(value):
                return self.cut(substitute(body, {Index(var): value}))
            case For(var, lo, hi, body, _, step, _) if self.uniform(lo, hi):
                return For(var, lo, hi, self.cut(body), step=step)
            case If(cond, then, orelse) if self.uniform(cond):
                return If(cond, self.cut(then), None if orelse is None else self.cut(orelse))
        raise InternalError(
            f"a barrier stands where not all threads of a block come by, in\n{print_stmt(stmt, 1)}"
        )

    def uniform(self, *exprs: Expr) -> bool:
        """Has each expression one value for all threads of a block?"""
        names = {axis.var for axis in self.threads}
        return not any(accesses(e) or names & set(indices_of(e)) for e in exprs)

    def fixed(self, value: Expr) -> bool:
        """Has a value that nothing written goes into, such as a size, one value for all threads?"""
        names = {axis.var for axis in self.threads}
        read = {item.tensor for item in accesses(value)}
        return not (read & (self.copies | self.tracked.keys()) or names & set(indices_of(value)))

    def region(self, stmt: Stmt) -> Stmt:
        """A piece without barriers, run by every thread."""
        recorded = epochs.record(
            self.private(stmt), self.tracked, number_of(self.threads), self.here
        )
        for axis in reversed(self.threads):
            recorded = _in_order(axis, self.orders, self.regions, recorded)
        self.regions += 1
        return recorded

    def copied(self, buffer: Buffer) -> Buffer:
        shape = (*(axis.extent for axis in self.threads), *buffer.shape)
        return Buffer(buffer.name, buffer.dtype, shape, contiguous(shape), buffer.scope)

    def private(self, stmt: Stmt) -> Stmt:
        """A thread's statement on its copies, with every loop serial."""
        new = rebuild(stmt, self.private, self.on_copies)
        match new:
            case For(var, lo, hi, body, _, step, _):
                return For(var, lo, hi, body, step=step)
            case Alloc(buffers, body):
                own = [_on_host(buffer) for buffer in buffers]
                return allocate(own, block(*map(poison, own), body))
            case Store(buffer, index, value) if buffer in self.copies:
                return Store(buffer, (*self.mine(), *index), value)
            case Prefetch():
                return Block(())
            case Update(buffer, index, reducer, value, _) if buffer in self.copies:
                return Update(buffer, (*self.mine(), *index), reducer, value)
        return new

    def on_copies(self, expr: Expr) -> Expr:
        return transform(
            expr,
            lambda item: (
                Access(item.tensor, (*self.mine(), *item.indices))
                if isinstance(item, Access) and item.tensor in self.copies
                else item
            ),
        )

    def mine(self) -> tuple[Expr, ...]:
        return tuple(Index(axis.var) for axis in self.threads)


def _has_barrier(stmt: Stmt) -> bool:
    return any(isinstance(item, Barrier) for item in statements(stmt))


def _on_host(buffer: Buffer) -> Buffer:
    return with_(buffer, scope="heap", align=1)


def _in_order(axis: Axis, orders: str, row: int, body: Stmt) -> Stmt:
    """`body` for every position of an axis, in the order that a row of its permutations says."""
    turn = f"{axis.var}.turn"
    position = Access(orders + axis.kind, (const(row), Index(turn)))
    return For(turn, const(0), const(axis.extent), Let(axis.var, position, body))


_WORDS = {
    epochs.READ: "reads what {other} wrote, with no barrier between",
    epochs.WRITE: "writes what {other} wrote, with no barrier between",
    epochs.OVERWRITE: "writes what {other} read, with no barrier between",
    epochs.UNWRITTEN: "reads what no thread of its block has written",
    epochs.READ_UPDATED: "reads what {other} updated, with no barrier between",
    epochs.OVERWRITE_UPDATED: "writes what {other} updated, with no barrier between",
}


def _message(name: str, plan: Emulation, report: Array) -> str:
    kind, number, cell, me, other, here, block_began = (int(field) for field in report)
    buffer, launch = plan.shadows[number].buffer, plan.launches[here >> 32]
    at = [int(n) for n in np.unravel_index(cell, buffer.shape or (1,))[: len(buffer.shape)]]

    def thread(stamp: int) -> str:
        return f"thread {_position(stamp % plan.step, launch.threads)}"

    partner = thread(other) if other >= block_began else f"{thread(other)} of another block"
    words = _WORDS[kind].format(other=partner)
    block = f"block {_position(here % (1 << 32), launch.blocks)}, " if launch.blocks else ""
    return f"race in {name} on {buffer.name}{at}: {block}{thread(me)} {words}"


def _position(number: int, axes: Sequence[Axis]) -> str:
    """A position among all of some axes, by axis: x=3, y=0."""
    parts = []
    for axis in reversed(axes):
        number, at = divmod(number, axis.extent)
        parts.append(f"{axis.kind[-1]}={at}")
    return f"({', '.join(parts)})"
