"""Runs of cells of two neighbouring vectors in registers, shuffled."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from ..algo.dtypes import i64
from .emit_stream import size_of
from .frame import Frame, Storage
from .values import F32, F64, I32, I64, Value, is_vector

Row = Callable[[int], ir.Value]
_NAMES = {F32: "ps", F64: "pd", I32: "d", I64: "q"}
_LINE = 64


def is_turned(storage: Storage, offset: Value, lanes: int) -> bool:
    """Does a run of registers start amid a vector, or at a cell that is not known before?"""
    buffer = storage.buffer
    if buffer.scope != "register" or storage.lanes > 1 or offset.step != 1:
        return False
    if offset.llvm is not None:
        return not is_vector(offset.llvm)
    row = buffer.strides[-2] if len(buffer.shape) > 1 else buffer.shape[-1]
    assert isinstance(row, int)  # only parameters have strides that are names
    inside = offset.bias % row // lanes * lanes + 2 * lanes <= row
    return offset.bias % lanes != 0 and row % lanes == 0 and inside


def turned(f: Frame, offset: Value, run: Row) -> ir.Value:
    """The cells from `offset` on, which lie in two vectors; `run(at)` loads the one from cell `at`
    on."""
    n = f.lanes
    known = offset.llvm is None
    start = (offset.bias if known else offset.bounds[0]) // n * n
    low, high = run(start), run(start + n)
    if known:
        cells = range(offset.bias - start, offset.bias - start + n)
        return f.ib.shuffle_vector(low, high, ir.VectorType(I32, n)([I32(c) for c in cells]))
    assert offset.bounds[1] < start + 2 * n
    first = f.scalar(Value(i64, offset.llvm, offset.bias - start))
    name = _NAMES.get(low.type.element)
    if name is None or not f.target.avx512 or size_of(low) != _LINE:
        return _from_memory(f, first, low, high)
    number = I64 if low.type.element in (F64, I64) else I32
    lanes = ir.VectorType(number, n)
    at = first if number is I64 else f.ib.trunc(first, I32)
    cells = f.ib.add(f.splat(at), lanes([number(lane) for lane in range(n)]))
    full = f"llvm.x86.avx512.vpermi2var.{name}.512"
    fn = f.unit.intrinsic(full, low.type, [low.type, lanes, low.type])
    return f.ib.call(fn, [low, cells, high])


def _from_memory(f: Frame, first: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
    """The same by way of the stack, where no instruction shuffles registers by data."""
    size = size_of(low)
    memory = f.stack(ir.ArrayType(low.type.element, 2 * f.lanes), "turned", size)
    f.ib.store(low, memory, align=size)
    f.ib.store(high, f.ib.gep(memory, [I64(f.lanes)], source_etype=low.type.element), align=size)
    at = f.ib.gep(memory, [first], source_etype=low.type.element)
    return f.ib.load(at, typ=low.type, align=size // f.lanes)
