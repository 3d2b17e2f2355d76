"""What LLVM is told of a loop: not to vectorize one whose tile a schedule has put in registers, nor
to unroll one of many in a row.

Where tiles end, single cells of them remain, as 14 sums of a convolution's last channel. LLVM would
run lanes along the reduction instead, and gather what those need. Nor does it vectorize long rows
of statements: it compares all that they access, by the square of their number.
"""

from __future__ import annotations

import llvmlite.ir as ir

from ..algo.tensor_expr.expr import Expr
from ..lower.ir import For, Store, Update, walk
from .frame import Frame
from .values import I1

LONG = 32
"""Statements in a loop that is too long to be vectorized."""


def tell(f: Frame, loop: For, back: ir.Instruction) -> None:
    """Says it where the loop is closed by the branch `back`."""
    wishes = []
    if _is_tile(f, loop) or _is_long(loop):
        wishes.append(["llvm.loop.vectorize.enable", I1(0)])
    if f.crowded:
        wishes.append(["llvm.loop.unroll.disable"])
    if not wishes:
        return
    module = f.unit.module
    # A loop's name is a node whose first part is itself, so that no two are the same.
    name = module.add_metadata([f"{f.fn.name}.{f.ib.block.name}"])
    name.operands = (name, *map(module.add_metadata, wishes))
    back.set_metadata("llvm.loop", name)


def _is_long(loop: For) -> bool:
    return sum(isinstance(item, (Store, Update)) for item in walk(loop.body)) >= LONG


def _is_tile(f: Frame, loop: For) -> bool:
    """Does a loop add to several cells of a register buffer that lives around it?"""
    first: tuple[str, tuple[Expr, ...]] | None = None
    for item in walk(loop.body):
        if isinstance(item, Update) and (storage := f.buffers.get(item.buffer)):
            if storage.buffer.scope != "register":
                continue
            first = first or (item.buffer, item.index)
            if first != (item.buffer, item.index):
                return True
    return False
