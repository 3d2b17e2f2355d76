"""What LLVM is told of a loop: not to vectorize one whose tile a schedule has put in registers.

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


def stands(f: Frame, loop: For) -> bool:
    """Is a loop not to be vectorized?"""
    return _is_tile(f, loop) or _is_long(loop)


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


def as_it_stands(f: Frame, back: ir.Instruction) -> None:
    """The loop that this branch closes is not vectorized."""
    module = f.unit.module
    off = module.add_metadata(["llvm.loop.vectorize.enable", I1(0)])
    # A loop's name is a node whose first part is itself, so that no two are the same.
    name = module.add_metadata([f"{f.fn.name}.{f.ib.block.name}"])
    name.operands = (name, off)
    back.set_metadata("llvm.loop", name)
