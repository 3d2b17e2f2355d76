"""Copies that turn rows into columns: squares are loaded by rows and turned in registers.

    for k in lo .. hi:                      for k in lo .. hi step 16:
        for j in 0 .. 16 vector(16):  ==>       16 runs b[j, k .. k+16], turned, are 16 runs of p
            p[k, j] = b[j, k]

Lane by lane, each cell would be a load of its own. A loop too short for a square runs as it stands.
The square is turned in log2(n) rounds (`emit_transpose.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llvmlite.ir as ir

from ..algo.dtypes import i64
from ..algo.tensor_expr.expr import Access, Const
from ..lower.ir import Block, For, Stmt, Store
from ..lower.lanes import step
from . import emit_memory
from .emit_expr import value
from .emit_transpose import swapped
from .frame import Frame, Mask
from .values import I1, I32, I64, Value

Loop = tuple[For, Store, Access]
"""A vector loop, the store in it, and the cell that is copied."""


def squares(f: Frame, loop: For) -> list[Loop] | None:
    """The vector loops of a loop that does nothing but copy across rows, or None."""
    if f.lanes != 1 or f.mask is not None or loop.kind != "serial" or loop.step != 1:
        return None
    parts = loop.body.stmts if isinstance(loop.body, Block) else (loop.body,)
    found = [_square(f, loop.var, part) for part in parts]
    copies = [copy for copy in found if copy is not None]
    same = len({f.buffers[store.buffer].buffer.dtype for _, store, _ in copies}) == 1
    return copies if same and len(copies) == len(parts) and f.unit.noalias else None


def _square(f: Frame, var: str, stmt: Stmt) -> Loop | None:
    match stmt:
        case For(
            var=lane, lo=Const(), hi=Const(), kind="vector",
            body=Store(buffer, index, Access() as cell) as store,
        ) if stmt.lanes > 1 and buffer != cell.tensor:  # fmt: skip
            one, other = f.buffers[buffer], f.buffers[cell.tensor]
            runs = (step(one.buffer, index, lane), step(other.buffer, cell.indices, var))
            turned = step(other.buffer, cell.indices, lane)
            plain = one.lanes == other.lanes == 1 and not other.own
            if plain and runs == (1, 1) and turned is not None and abs(turned) > 1:
                return stmt, store, cell
    return None


def transpose(
    f: Frame, loop: For, copies: list[Loop], lo: Value, hi: Value,
    serial: Callable[[Frame, For, Value, Value], None],
) -> None:  # fmt: skip
    """Emits the loop in squares, or by `serial` where it is too short for one."""
    n = max(inner.lanes for inner, _, _ in copies)
    start, stop = f.scalar(lo), f.scalar(hi)
    last = f.ib.sub(stop, I64(n))

    def rows() -> None:
        """Squares from `start` on; the last one ends at `stop`, and may repeat some of its rows."""
        before, body, after = f.ib.block, f.block(f"{loop.var}.turn"), f.block(f"{loop.var}.end")
        f.ib.branch(body)
        f.ib.position_at_end(body)
        var = f.ib.phi(I64)
        var.add_incoming(start, before)
        at = f.ib.select(f.ib.icmp_signed("<", var, last), var, last)
        for copy in copies:
            _turn(f, loop.var, at, copy, n)
        following = f.ib.add(var, I64(n), flags=("nsw",))
        var.add_incoming(following, f.ib.block)
        f.ib.cbranch(f.ib.icmp_signed("<", following, stop), body, after)
        f.ib.position_at_end(after)

    enough = f.ib.icmp_signed("<=", start, last)
    f.if_else(enough, rows, lambda: serial(f, loop, lo, hi))


def _turn(f: Frame, name: str, var: ir.Value, copy: Loop, n: int) -> None:
    """Copies one square of n cells a side, or its first rows, from row `var` of the copy on."""
    inner, store, cell = copy
    assert isinstance(inner.lo, Const) and isinstance(inner.hi, Const)
    first, width = int(inner.lo.value), inner.lanes
    rows = min(width, int(inner.hi.value) - first)
    f.lanes = n
    loaded: list[ir.Value] = []
    for row in range(rows):
        lane = Value(i64, None, first + row)
        with f.bound(name, Value(i64, var, 0, 1)), f.bound(inner.var, lane), f.fresh_memo():
            at = tuple(value(f, i) for i in cell.indices)
            loaded.append(f.vector(emit_memory.load(f, cell.tensor, at)))
    loaded += [loaded[0].type(ir.Undefined)] * (n - rows)
    f.lanes, mask = width, None
    if rows < width:
        lanes = [I1(lane < rows) for lane in range(width)]
        mask = Mask(ir.Constant(ir.VectorType(I1, width), lanes), True)
    dtype = f.buffers[store.buffer].buffer.dtype
    kept = ir.VectorType(I32, width)([I32(lane) for lane in range(width)])
    for column, vector in enumerate(turned(f.ib, loaded)):
        if width < n:
            vector = f.ib.shuffle_vector(vector, vector, kept)
        here, run = Value(i64, var, column), Value(i64, None, first, 1)
        with f.bound(name, here), f.bound(inner.var, run), f.masked(mask), f.fresh_memo():
            at = tuple(value(f, i) for i in store.index)
            emit_memory.store(f, store.buffer, at, Value(dtype, vector))
    f.lanes = 1


def turned(ib: ir.IRBuilder, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """The columns of a square of as many rows as each has lanes, a power of two."""
    n, found = len(rows), list(rows)
    step = 1
    while step < n:
        found = [swapped(ib, found[r & ~step], found[r | step], r, step) for r in range(n)]
        step *= 2
    return found
