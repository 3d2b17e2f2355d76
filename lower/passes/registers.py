"""Small buffers that are indexed by constants move into registers; the others out of them.

    alloc acc: stack f32[8, 21]:                      alloc acc: register f32[8, 24]:
        for j in 16 .. 21 vector(8): acc[3, j]  ==>       for j in 16 .. 21 vector(8): acc[3, j]

The last axis is padded where a vector piece reaches beyond it, so that code generation may touch
all lanes of a piece. A buffer that was meant for registers and is indexed otherwise goes to the
stack, and so does a small heap buffer within a loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ...algo.tensor_expr.expr import Call, Const, Expr, Index, accesses
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


def registers(function: Function, machine: Machine) -> Function:
    """The function with the scopes of its private buffers decided."""
    return Function(function.name, function.params, _stmt(function.body, machine, False))


def _stmt(stmt: Stmt, machine: Machine, looped: bool) -> Stmt:
    match stmt:
        case Alloc(buffer, body):
            return Alloc(_decide(buffer, body, machine, looped), _stmt(body, machine, looped))
        case For():
            return rebuild(stmt, lambda inner: _stmt(inner, machine, True))
    return rebuild(stmt, lambda inner: _stmt(inner, machine, looped))


def _decide(buffer: Buffer, body: Stmt, machine: Machine, looped: bool) -> Buffer:
    if buffer.scope == "shared" or prod(buffer.shape) == 0:
        return buffer
    if machine.grid and any(isinstance(item, For) and item.kind in AXES for item in walk(body)):
        return buffer  # it lies between launches, in global memory
    size = prod(buffer.shape) * buffer.dtype.itemsize
    limit = FILES * machine.registers * machine.vector_bytes
    if buffer.scope == "register" or size <= limit:
        reach = _reach(buffer, body, {})
        if reach is not None:
            shape = (*buffer.shape[:-1], max(reach, buffer.shape[-1])) if buffer.shape else ()
            return _with(buffer, shape, "register")
    if buffer.scope == "register" or (buffer.scope == "heap" and looped and size <= SMALL):
        return _with(buffer, buffer.shape, "stack")
    return buffer


def _with(buffer: Buffer, shape: tuple[int, ...], scope: str) -> Buffer:
    return with_(buffer, shape=shape, strides=contiguous(shape), scope=scope)


def _reach(buffer: Buffer, stmt: Stmt, vectors: Mapping[str, tuple[int, int]]) -> int | None:
    """Elements of the last axis that the accesses reach, all lanes included; None if one varies.

    `vectors` gives the first value and the lanes of the vector loops around.
    """
    if isinstance(stmt, For) and stmt.kind == "vector" and isinstance(stmt.lo, Const):
        vectors = {**vectors, stmt.var: (int(stmt.lo.value), stmt.lanes)}
    cells = [item.indices for expr in expressions(stmt) for item in accesses(expr)
             if item.tensor == buffer.name]  # fmt: skip
    if isinstance(stmt, (Store, Update)) and stmt.buffer == buffer.name:
        cells.append(stmt.index)
    reach = 0
    for cell in cells:
        if not all(isinstance(part, Const) for part in cell[:-1]):
            return None
        end = _end(cell[-1], vectors) if cell else 0
        if end is None:
            return None
        reach = max(reach, end)
    for inner in inner_statements(stmt):
        end = _reach(buffer, inner, vectors)
        if end is None:
            return None
        reach = max(reach, end)
    return reach


def _end(index: Expr, vectors: Mapping[str, tuple[int, int]]) -> int | None:
    match index:
        case Const(value):
            return int(value) + 1
        case Index(name) if name in vectors:
            return sum(vectors[name])
        case Call("add" | "sub" as op, (Index(name), Const(value))) if name in vectors:
            return sum(vectors[name]) + (int(value) if op == "add" else -int(value))
    return None
