"""Small buffers that are indexed by constants move into registers; the others out of them.

    alloc acc: stack f32[8, 21]:                 alloc acc: register f32[8, 21] strides [24, 1]:
        for j in 16 .. 21 vector(8): acc[3, j]  ==>  for j in 16 .. 21 vector(8): acc[3, j]

Memory is padded where a vector piece reaches beyond an axis, so that code generation may touch all
lanes of a piece; of the last axis the strides alone say so. Reads in lanes along another axis than
the last one are columns of a tile, whose rows are padded to whole vectors. A buffer that was meant
for registers and is indexed otherwise goes to the stack, and so does a small heap buffer within a
loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ...algo.tensor_expr.expr import Access, Call, Const, Expr, Index, accesses
from ...sched.loop.machine import Machine
from ..ir import (
    AXES,
    Alloc,
    Buffer,
    For,
    Function,
    Stmt,
    Store,
    Update,
    allocate,
    contiguous,
    expressions,
    rebuild,
    walk,
    with_,
)
from ..ir import children as inner_statements

SMALL = 64 << 10
"""Bytes of a heap buffer that may be on the stack instead."""

FILES = 2
"""A buffer of at most this many times all vector registers may become one of registers."""

Pieces = Mapping[str, tuple[int, int, int]]


def registers(function: Function, machine: Machine) -> Function:
    """The function with the scopes of its private buffers decided."""
    return Function(function.name, function.params, _stmt(function.body, machine, False))


def _stmt(stmt: Stmt, machine: Machine, looped: bool) -> Stmt:
    match stmt:
        case Alloc(buffers, body):
            launched = any(isinstance(item, For) and item.kind in AXES for item in walk(body))
            if stmt.scope in ("shared", "tile") or (machine.grid and launched):
                # It is where it must be: between threads, launches or in the matrix unit.
                return Alloc(buffers, _stmt(body, machine, looped))
            reaches = {buffer.name: _Reach(buffer) for buffer in buffers}
            _collect(body, reaches, {})
            decided = (_decide(b, reaches.get(b.name), machine, looped) for b in buffers)
            return allocate(decided, _stmt(body, machine, looped))
        case For():
            return rebuild(stmt, lambda inner: _stmt(inner, machine, True))
    return rebuild(stmt, lambda inner: _stmt(inner, machine, looped))


def _decide(buffer: Buffer, reach: _Reach | None, machine: Machine, looped: bool) -> Buffer:
    if prod(buffer.shape) == 0:
        return buffer
    size = prod(buffer.shape) * buffer.dtype.itemsize
    limit = FILES * machine.registers * machine.vector_bytes
    if reach is not None and (buffer.scope == "register" or size <= limit):
        return _with(buffer, reach.shape, reach.memory, "register")
    if buffer.scope == "register" or (buffer.scope == "heap" and looped and size <= SMALL):
        return _with(buffer, buffer.shape, buffer.shape, "stack")
    return buffer


def _with(buffer: Buffer, shape: tuple[int, ...], memory: tuple[int, ...], scope: str) -> Buffer:
    return with_(buffer, shape=shape, strides=contiguous(memory), scope=scope)


class _Reach:
    """How far the accesses of a buffer reach along each axis, all lanes included."""

    def __init__(self, buffer: Buffer) -> None:
        self.ends, self.columns, self.last = list(buffer.shape), 1, 0

    @property
    def memory(self) -> tuple[int, ...]:
        """The extents with padding."""
        *outer, last = self.ends or (1,)
        padded = -(-last // self.columns) * self.columns
        return (*outer, padded) if self.ends else ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The same, but of the last axis only what lanes reach that are not masked off."""
        return (*self.ends[:-1], self.last) if self.ends else ()

    def add(self, cell: Access, vectors: Pieces, read: bool) -> bool:
        """Takes an access into account, unless it is none of a register buffer: then False."""
        turned = [n for n, index in enumerate(cell.indices) if not isinstance(index, Const)]
        last = len(cell.indices) - 1
        if len(turned) > 1 or (turned not in ([], [last]) and not read):
            return False
        for axis, index in enumerate(cell.indices):
            end = _end(index, vectors)
            if end is None or end[0] < end[1] > 1:  # lanes before the first cell are not padded
                return False
            self.ends[axis] = max(self.ends[axis], end[0])
            if axis != last:
                self.columns = max(self.columns, end[1])
            else:
                self.last = max(self.last, end[0] - end[2])
        return True


def _collect(stmt: Stmt, reaches: dict[str, _Reach], vectors: Pieces) -> None:
    """Tells `reaches` of the accesses in a statement; takes out of it the buffers that are indexed
    by what varies.

    `vectors` gives the first value of the vector loops around, and how many lanes they have and
    how many of those are certainly masked off.
    """
    if isinstance(stmt, For) and stmt.kind == "vector" and isinstance(stmt.lo, Const):
        start, off = int(stmt.lo.value), 0
        if isinstance(stmt.hi, Const):
            off = max(0, start + stmt.lanes - int(stmt.hi.value))
        vectors = {**vectors, stmt.var: (start, stmt.lanes, off)}
    cells = [(cell, True) for expr in expressions(stmt) for cell in accesses(expr)]
    if isinstance(stmt, (Store, Update)):
        cells.append((Access(stmt.buffer, stmt.index), False))
    for cell, read in cells:
        if cell.tensor in reaches and not reaches[cell.tensor].add(cell, vectors, read):
            del reaches[cell.tensor]
    for inner in inner_statements(stmt):
        _collect(inner, reaches, vectors)


def _end(index: Expr, vectors: Pieces) -> tuple[int, int, int] | None:
    """Where the cells that an index reaches end, how many they are, and how many of the last are
    masked off; None if that varies."""
    match index:
        case Const(value):
            return int(value) + 1, 1, 0
        case Index(name) if name in vectors:
            start, lanes, off = vectors[name]
            return start + lanes, lanes, off
        case Call("add" | "sub" as op, (Index(name), Const(value))) if name in vectors:
            start, lanes, off = vectors[name]
            return start + lanes + (int(value) if op == "add" else -int(value)), lanes, off
    return None
