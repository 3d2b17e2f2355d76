"""Loads and stores: one cell for all lanes, a run of cells, or a cell a lane.

Masked-off lanes touch no memory, except in buffers of the thread's own, whose storage is padded
so that whole vectors may be read and blended: that keeps them in registers. Behind the end of a
row of registers they are not even blended.
"""

from __future__ import annotations

import llvmlite.ir as ir

from ..algo.dtypes import DType, bool_, i64
from . import emit_lanes, emit_stream, emit_tail, emit_transpose, emit_turn
from .emit_address import (
    alignment,
    is_vector_offset,
    offset_of,
    pointer_to,
    readable,
)
from .emit_half import is_half, narrow, widen
from .frame import Frame, Storage
from .values import (
    I32,
    Value,
    lanes_of,
    like,
    memory_type,
    shaped,
    suffix,
)

LONGEST_STEP = 4  # up to here, runs and shuffles are cheaper than a gather


def load(f: Frame, name: str, indices: tuple[Value, ...]) -> Value:
    """buffer[indices] in every active lane."""
    storage = f.buffers[name]
    dtype = storage.buffer.dtype
    offset = offset_of(f, storage, indices)
    element, n = memory_type(dtype), f.lanes
    if not offset.varies:
        where = readable(f, pointer_to(f, storage, offset))
        raw = _tag(f, storage, f.ib.load(where, typ=element, align=alignment(storage, offset)))
        return from_memory(f, dtype, raw)
    apart = is_vector_offset(offset) or storage.buffer.bytewise
    if emit_turn.is_turned(storage, offset, n):
        raw = emit_turn.turned(f, offset, lambda at: _row(f, storage, at, element))
    elif abs(offset.step) == 1 and not apart:
        raw = _load_run(f, storage, offset, ir.VectorType(element, n))
    elif emit_transpose.is_column(storage, offset, n):
        raw = emit_transpose.column(f, storage, offset, lambda at: _row(f, storage, at, element))
    elif abs(offset.step) <= LONGEST_STEP and not apart and f.mask is None:
        raw = _load_steps(f, storage, offset, ir.VectorType(element, n))
    else:
        raw = _tag(f, storage, emit_lanes.gather(f, storage, offset, ir.VectorType(element, n)))
    return from_memory(f, dtype, raw)


def store(f: Frame, name: str, indices: tuple[Value, ...], new: Value) -> None:
    """buffer[indices] = new in every active lane; of lanes that share the cell the last wins."""
    storage = f.buffers[name]
    f.written(storage)
    offset = offset_of(f, storage, indices)
    if not offset.varies:
        llvm = last_lane(f, new) if new.varies else f.scalar(new)
        cell = pointer_to(f, storage, offset)
        if f.mask is not None and not f.mask.some:
            f.if_else(f.any(f.mask.llvm), lambda: _store_cell(f, storage, offset, cell, llvm))
        else:
            _store_cell(f, storage, offset, cell, llvm)
        return
    raw = to_memory(f, storage.buffer.dtype, f.vector(new))
    if abs(offset.step) == 1 and not is_vector_offset(offset) and not storage.buffer.bytewise:
        _store_run(f, storage, offset, raw)
    else:
        _tag(f, storage, emit_lanes.scatter(f, storage, offset, raw))


def load_words(f: Frame, name: str, indices: tuple[Value, ...]) -> ir.Value:
    """The bytes or bf16 of a word from buffer[indices] on, as one i32, in every active lane if
    they differ."""
    storage, n = f.buffers[name], f.lanes
    offset = offset_of(f, storage, indices)
    words = ir.VectorType(I32, n)
    if not offset.varies:
        where = readable(f, pointer_to(f, storage, offset))
        align = alignment(storage, offset)
        return _tag(f, storage, f.ib.load(where, typ=I32, align=align))
    if offset.step * storage.buffer.dtype.itemsize != 4 or is_vector_offset(offset):
        return _tag(f, storage, emit_lanes.gather(f, storage, offset, words))
    first = pointer_to(f, storage, offset)
    align = alignment(storage, offset)
    if f.mask is None:
        return _tag(f, storage, f.ib.load(first, typ=words, align=align))
    masked = _masked_load(f, words, first.type)
    return _tag(f, storage, f.ib.call(masked, [first, I32(align), f.mask.llvm, words(None)]))


def shares_cell(f: Frame, name: str, indices: tuple[Value, ...]) -> bool:
    """Do all lanes address the same cell?"""
    return not offset_of(f, f.buffers[name], indices).varies


def may_collide(f: Frame, name: str, indices: tuple[Value, ...]) -> bool:
    """May two lanes address the same cell, as where the index is data? Each may have its own."""
    return f.buffers[name].lanes == 1 and is_vector_offset(offset_of(f, f.buffers[name], indices))


def _store_cell(f: Frame, storage: Storage, offset: Value, cell: ir.Value, llvm: ir.Value) -> None:
    raw = to_memory(f, storage.buffer.dtype, llvm)
    _put(f, storage, raw, cell, alignment(storage, offset), offset)


def _put(
    f: Frame, storage: Storage, raw: ir.Value, first: ir.Value, align: int, offset: Value
) -> None:
    """One store of a run; past the caches where it can be and is wanted."""

    def plain() -> None:
        _tag(f, storage, f.ib.store(raw, first, align=align))

    def past() -> None:
        emit_stream.mark(f, _tag(f, storage, f.ib.store(raw, first, align=max(align, size))))

    size = emit_stream.size_of(raw)
    if not (storage.buffer.stream and f.target.streams):
        plain()
    elif align >= size:
        past()
    else:
        f.if_else(emit_stream.is_aligned(f, storage, offset, size), past, plain)


# Runs of cells


def _row(f: Frame, storage: Storage, at: int, element: ir.Type) -> ir.Value:
    """A whole vector of an own buffer from a cell on, whichever lanes are active.

    Of a row that ends before, as many cells are read as vector loops use there: wider access would
    make whole registers of what is computed in parts of them.
    """
    buffer, n, offset = storage.buffer, f.lanes, Value(i64, None, at, 1)
    count = n
    if len(buffer.shape) > 1 and buffer.strides[-1] == 1:
        row = buffer.strides[-2]
        assert isinstance(row, int)  # only parameters have strides that are names
        left = buffer.shape[-1] - at % row
        count = min(n, 1 << (left - 1).bit_length())
    first, align = pointer_to(f, storage, offset), alignment(storage, offset)
    raw = _tag(f, storage, f.ib.load(first, typ=shaped(element, count), align=align))
    return raw if count == n else emit_tail.widened(f, raw, n)


def _load_run(f: Frame, storage: Storage, offset: Value, vec: ir.VectorType) -> ir.Value:
    first = _first(f, storage, offset)
    align = alignment(storage, _lowest(f, offset))
    mask = _mask(f, offset)
    # What happens to lie behind a row on the stack may be subnormal, and slow to compute with.
    if mask is None or (_padded(f, storage, offset) and storage.buffer.scope != "stack"):
        raw = f.ib.load(first, typ=vec, align=align)
    elif (count := _count(f, storage, offset)) is not None:
        return emit_tail.load_first(f, first, count, vec, align, lambda i: _tag(f, storage, i))
    else:
        raw = f.ib.call(_masked_load(f, vec, first.type), [first, I32(align), mask, vec(None)])
    return _reversed(f, _tag(f, storage, raw), offset)


def _load_steps(f: Frame, storage: Storage, offset: Value, vec: ir.VectorType) -> ir.Value:
    """Every second, third or fourth cell, from the runs that they span and nothing beyond."""
    n, step = vec.count, abs(offset.step)
    low = Value(i64, offset.llvm, offset.bias + min(0, offset.step) * (n - 1), 1)
    starts = [k * n for k in range(step - 1)] + [(step - 1) * (n - 1)]
    runs = [_load_run(f, storage, Value(i64, low.llvm, low.bias + s, 1), vec) for s in starts]
    cells = [step * lane for lane in range(n)]
    total, have = runs[0], [cell if cell < n else 0 for cell in cells]  # where each lane's cell is
    for k in range(1, step):
        pick = [n + c - starts[k] if c // n == k else h for c, h in zip(cells, have, strict=True)]
        mask = ir.Constant(ir.VectorType(I32, n), [I32(index) for index in pick])
        total, have = f.ib.shuffle_vector(total, runs[k], mask), list(range(n))
    return _reversed(f, total, offset)


def _store_run(f: Frame, storage: Storage, offset: Value, raw: ir.Value) -> None:
    first = _first(f, storage, offset)
    align = alignment(storage, _lowest(f, offset))
    mask = _mask(f, offset)
    raw = _reversed(f, raw, offset)
    if mask is not None and _behind(f, storage, offset):
        mask = None
    if mask is not None and _padded(f, storage, offset):
        old = _tag(f, storage, f.ib.load(first, typ=raw.type, align=align))
        raw, mask = f.ib.select(mask, raw, old), None
    if mask is None:
        _put(f, storage, raw, first, align, _lowest(f, offset))
        return
    if (count := _count(f, storage, offset)) is not None:
        emit_tail.store_first(f, first, count, raw, align, lambda i: _tag(f, storage, i))
        return
    name = f"llvm.masked.store.{suffix(raw.type)}.{first.type.intrinsic_name}"
    fn = f.unit.intrinsic(name, ir.VoidType(), [raw.type, first.type, I32, mask.type])
    _tag(f, storage, f.ib.call(fn, [raw, first, I32(align), mask]))


def _padded(f: Frame, storage: Storage, offset: Value) -> bool:
    """May lanes that are off be touched? Own storage is padded behind its end but not before its
    start, where the first lane lies only if a condition holds it off."""
    if not storage.own or offset.step <= 0:
        return False
    start = offset.bias if offset.llvm is None else offset.bounds[0]
    return start >= 0 or f.mask is None or f.mask.count is not None


def _behind(f: Frame, storage: Storage, offset: Value) -> bool:
    """Do the lanes that are off lie behind the last element of a row of registers?"""
    buffer, mask = storage.buffer, f.mask
    if buffer.scope != "register" or mask is None or mask.first is None or storage.lanes > 1:
        return False
    if offset.llvm is not None or offset.step != 1:
        return False
    row = buffer.strides[-2] if len(buffer.shape) > 1 else offset.bias + f.lanes
    assert isinstance(row, int)  # only parameters have strides that are names
    return bool(offset.bias % row + mask.first >= buffer.shape[-1])


def _count(f: Frame, storage: Storage, offset: Value) -> ir.Value | None:
    """How many first cells of the run are meant, where the machine has no masks for them."""
    if f.mask is None or offset.step < 0:
        return None
    native = 0 < f.target.masks <= storage.buffer.dtype.itemsize
    return None if native else f.mask.count


def _lowest(f: Frame, offset: Value) -> Value:
    back = f.lanes - 1 if offset.step < 0 else 0
    return Value(i64, offset.llvm, offset.bias - back, 1)


def _first(f: Frame, storage: Storage, offset: Value) -> ir.Value:
    return pointer_to(f, storage, _lowest(f, offset))


def _mask(f: Frame, offset: Value) -> ir.Value | None:
    return None if f.mask is None else _reversed(f, f.mask.llvm, offset)


def _reversed(f: Frame, raw: ir.Value, offset: Value) -> ir.Value:
    if offset.step > 0:
        return raw
    order = ir.Constant(ir.VectorType(I32, f.lanes), [I32(i) for i in reversed(range(f.lanes))])
    return f.ib.shuffle_vector(raw, raw.type(ir.Undefined), order)


def _masked_load(f: Frame, vec: ir.VectorType, pointer: ir.PointerType) -> ir.Function:
    name = f"llvm.masked.load.{suffix(vec)}.{pointer.intrinsic_name}"
    mask = ir.VectorType(ir.IntType(1), vec.count)
    return f.unit.intrinsic(name, vec, [pointer, I32, mask, vec])


def last_lane(f: Frame, new: Value) -> ir.Value:
    """The value of the last active lane."""
    lanes = f.vector(new)
    if f.mask is None:
        return f.ib.extract_element(lanes, I32(f.lanes - 1))
    bits = ir.IntType(f.lanes)
    leading = f.unit.intrinsic(f"llvm.ctlz.i{f.lanes}", bits, [bits, ir.IntType(1)])
    zeros = f.ib.call(leading, [f.ib.bitcast(f.mask.llvm, bits), ir.IntType(1)(0)])
    return f.ib.extract_element(lanes, f.ib.sub(bits(f.lanes - 1), zeros))


# Memory and register forms


def from_memory(f: Frame, dtype: DType, raw: ir.Value) -> Value:
    """Any nonzero byte is true; 16-bit floats widen to f32. Integers count as data."""
    if dtype is bool_:
        return Value(dtype, f.ib.icmp_unsigned("!=", raw, like(raw, 0)), data=True)
    if is_half(dtype):
        return Value(dtype, widen(f, dtype, raw))
    return Value(dtype, raw, data=True)


def to_memory(f: Frame, dtype: DType, llvm: ir.Value) -> ir.Value:
    """The inverse of `from_memory`."""
    n = lanes_of(llvm)
    if dtype is bool_:
        return f.ib.zext(llvm, shaped(ir.IntType(8), n))
    if is_half(dtype):
        return narrow(f, dtype, llvm)
    return llvm


def _tag(f: Frame, storage: Storage, instruction: ir.Instruction) -> ir.Value:
    """Tells LLVM that different buffers never overlap."""
    if f.unit.noalias:
        mine, others = f.unit.scopes[storage.buffer.name]
        instruction.set_metadata("alias.scope", mine)
        instruction.set_metadata("noalias", others)
    return instruction
