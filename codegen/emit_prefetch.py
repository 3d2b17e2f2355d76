"""Prefetches: cells are brought into the nearest cache, and nothing is read or reported."""

from __future__ import annotations

from dataclasses import replace

import llvmlite.ir as ir

from ..algo.dtypes import i64
from ..algo.errors import InternalError
from ..algo.tensor_expr.expr import Access, Expr
from .emit_address import address
from .emit_expr import value
from .frame import Frame
from .target import PTR
from .values import I32, VOID, Value


def prefetch(f: Frame, cell: Expr) -> None:
    """The cell of every lane; of a run of cells the first and the last one."""
    if not isinstance(cell, Access):
        raise InternalError(f"{cell!r} is no cell to prefetch")
    if not f.target.prefetches:
        return
    # An index that is read from memory has been clamped, so it is not checked.
    at = [replace(value(f, index), data=False) for index in cell.indices]
    lanes = f.lanes
    if lanes == 1 or not any(index.varies for index in at):
        _touch(f, address(f, cell.tensor, tuple(at), inside=False))
        return
    run = not any(index.llvm is not None and index.varies and not index.step for index in at)
    vectors = [f.vector(index) for index in at]
    f.lanes = 1
    with f.masked(None):
        for lane in (0, lanes - 1) if run else range(lanes):
            one = tuple(Value(i64, f.ib.extract_element(v, I32(lane))) for v in vectors)
            _touch(f, address(f, cell.tensor, one, inside=False))
    f.lanes = lanes


def _touch(f: Frame, pointer: ir.Value) -> None:
    intrinsic = f.unit.intrinsic("llvm.prefetch.p0", VOID, [PTR, I32, I32, I32])
    f.ib.call(intrinsic, [pointer, I32(0), I32(3), I32(1)])
