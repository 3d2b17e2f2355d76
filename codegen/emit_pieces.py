"""A long row of loop nests, or of unrolled statements, becomes functions of a few of them each.

Several of LLVM's passes look from every load or loop at all others of its function, so that what
they take grows with the square of a function's length. In pieces of bounded length it grows with
the program. A call more for so many loops costs nothing that could be measured.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from ..lower.ir import Block, For, Stmt, walk
from .closure import Closure, used
from .frame import Frame
from .values import VOID

PIECE = 256
"""How much stands in a piece, statements outside of loops counting for 1; what is at most twice as
much stays one function, or a half where these are statements of a loop: of loops LLVM asks more."""
LOOP, LANES = 16, 4
"""What a loop counts for, and one of lanes or squares, which is none any more."""

Emit = Callable[[Frame, Stmt], None]


def block(f: Frame, stmts: tuple[Stmt, ...], statement: Emit) -> None:
    """Emits statements that run one after the other."""
    sizes = [_size(stmt) for stmt in stmts]
    most = PIECE // 2 if f.vars and set(sizes) == {1} else 2 * PIECE
    if sum(sizes) <= most or not f.target.parallel or f.lanes != 1:
        around = f.crowded
        f.crowded |= f.lanes != 1 and sum(sizes) > PIECE // 2
        for stmt in stmts:
            statement(f, stmt)
        f.crowded = around
        return
    piece: list[Stmt] = []
    total = 0
    for stmt, size in zip(stmts, sizes, strict=True):
        if size > PIECE or _in_registers(f, stmt):  # the former is cut within
            _emit(f, piece, total, statement)
            piece, total = [], 0
            statement(f, stmt)
            continue
        piece.append(stmt)
        total += size
        if total >= PIECE:
            _emit(f, piece, total, statement)
            piece, total = [], 0
    _emit(f, piece, total, statement)


def _size(stmt: Stmt) -> int:
    loops = [item.kind for item in walk(stmt) if isinstance(item, For)]
    return sum(LANES if kind in ("vector", "matrix") else LOOP for kind in loops) or 1


def _in_registers(f: Frame, stmt: Stmt) -> bool:
    """Does a statement use registers from outside, which no other function can see?"""
    scopes = (f.buffers[name].buffer.scope for name in used(stmt) if name in f.buffers)
    return any(scope in ("register", "tile") for scope in scopes)


def _emit(f: Frame, stmts: list[Stmt], size: int, statement: Emit) -> None:
    whole = Block(tuple(stmts))
    if size < PIECE // 2:
        for stmt in stmts:
            statement(f, stmt)
        return
    closure = Closure(f, whole)
    around = [item for item in (f.pool, f.heap, f.status) if item is not None]
    passed = [*around, *closure.passed]
    kind = ir.FunctionType(VOID, [item.type for item in passed])
    fn = ir.Function(f.unit.module, kind, f.unit.module.get_unique_name(f"{f.fn.name}.piece"))
    fn.linkage = "internal"
    fn.attributes.add("noinline")
    g = Frame(f.unit, fn)
    g.configured = f.configured
    given = iter(fn.args)
    g.pool, g.heap, g.status = (
        None if item is None else next(given) for item in (f.pool, f.heap, f.status)
    )
    closure.enter(g, given, shared=False)
    for stmt in stmts:
        statement(g, stmt)
    g.ib.ret_void()
    g.close()
    f.ib.call(fn, passed)
