"""Addresses: the cell that an index means, in elements or bytes from the start of a buffer."""

from __future__ import annotations

import llvmlite.ir as ir

from ..algo.dtypes import i64
from ..lower.ir import reach
from .emit_index import added, narrow, scaled, truncated
from .frame import Frame, Storage
from .values import I32, I64, Value, is_vector, like, memory_type, scalar_type


def is_vector_offset(offset: Value) -> bool:
    """Is the offset a vector of unrelated lanes?"""
    return offset.llvm is not None and is_vector(offset.llvm)


def offset_of(f: Frame, storage: Storage, indices: tuple[Value, ...]) -> Value:
    """The linearised index in the unit of the strides, private copies of lanes innermost."""
    total = Value(i64, None, 0, 1 if storage.lanes > 1 else 0)
    for axis, (index, stride) in enumerate(zip(indices, storage.buffer.strides, strict=True)):
        if index.data:
            index = _checked(f, storage, axis, index)
        if is_vector_offset(index) and not is_small(storage):
            index = Value(i64, f.vector(index))
        if isinstance(stride, str):
            index = _multiplied(f, index, f.vars[stride])
        elif is_vector_offset(index):
            index = Value(i64, f.ib.mul(index.llvm, like(index.llvm, stride * storage.lanes)))
        else:
            index = scaled(f, index, stride * storage.lanes)
        total = _added(f, total, index)
    return total


def is_small(storage: Storage) -> bool:
    """May lanes count the offsets of its cells, and all parts of their sums, in 32 bits?"""
    steps = [abs(s) for s in storage.buffer.strides if isinstance(s, int)]  # also of axes of size 1
    most = max([reach(storage.buffer), *steps])
    return most * storage.lanes < 2**31 - storage.lanes


def _multiplied(f: Frame, index: Value, stride: Value) -> Value:
    if stride.constant is not None and not is_vector_offset(index):
        return scaled(f, index, stride.constant)
    factor = f.scalar(stride)
    if not index.varies:
        return Value(i64, f.ib.mul(f.scalar(index), factor), data=index.data)
    lanes = index.llvm if is_vector_offset(index) else f.vector(index)
    if scalar_type(lanes) == I32:
        factor = f.ib.trunc(factor, I32)
    return Value(i64, f.ib.mul(lanes, f.splat(factor)), data=index.data)


def _added(f: Frame, a: Value, b: Value) -> Value:
    """a + b, lanes in as many bits as those that are there, for the sum fits."""
    held = [x for x in (a, b) if is_vector_offset(x)]
    if not held:
        return added(f, a, b)
    if all(scalar_type(x.llvm) == I32 for x in held):
        lanes = [x.llvm if x in held else truncated(f, x) for x in (a, b)]
    else:
        lanes = [f.vector(a), f.vector(b)]
    return Value(i64, f.ib.add(*lanes), data=a.data or b.data)


def _checked(f: Frame, storage: Storage, axis: int, index: Value) -> Value:
    """A data-dependent index out of range is reported in the status and replaced by 0."""
    buffer = storage.buffer
    extent = (buffer.extents or buffer.shape)[axis]
    sites = f.unit.sites
    site = f"{buffer.name} axis {axis} of size {extent}"
    if site not in sites:
        sites.append(site)
    llvm = f.scalar(index) if not index.varies else None
    if llvm is None and buffer.shape[axis] < 2**31:
        llvm = narrow(f, index)
    if llvm is None:
        llvm = f.vector(index)
    end = f.scalar(f.vars[extent]) if isinstance(extent, str) else I64(extent)
    if scalar_type(llvm) == I32:
        end = f.ib.trunc(end, I32) if isinstance(extent, str) else I32(extent)
    bad = f.ib.icmp_unsigned(">=", llvm, f.splat(end) if is_vector(llvm) else end)
    seen = f.narrow(bad) if is_vector(bad) else bad
    if not is_vector(bad) and f.mask is not None and not f.mask.some:
        seen = f.ib.and_(bad, f.any(f.mask.llvm))
    number = I64(sites.index(site) + 1)
    f.if_else(f.any(seen), lambda: f.report(number))
    span = (0, max(buffer.shape[axis] - 1, 0))
    return Value(i64, f.ib.select(bad, like(llvm, 0), llvm), span=span)


def _unit(storage: Storage) -> ir.Type:
    """What offsets count: elements, or bytes."""
    return ir.IntType(8) if storage.buffer.bytewise else memory_type(storage.buffer.dtype)


def address(f: Frame, name: str, indices: tuple[Value, ...], inside: bool = True) -> ir.Value:
    """The address of a cell that is the same in all lanes, or of that of lane 0."""
    storage = f.buffers[name]
    return pointer_to(f, storage, offset_of(f, storage, indices), inside)


def pointer_to(f: Frame, storage: Storage, offset: Value, inside: bool = True) -> ir.Value:
    """The address of an offset that is the same in all lanes, or of lane 0.

    `inside`: it lies in the buffer where there is an active lane.
    """
    element = _unit(storage)
    # What only the sum of both parts keeps in bounds must not be said of one of them.
    inbounds = inside and f.mask is None and offset.step >= 0 and not offset.bias
    pointer = storage.pointer
    if offset.llvm is not None:
        pointer = f.ib.gep(pointer, [offset.llvm], source_etype=element, inbounds=inbounds)
    if offset.bias:
        pointer = f.ib.gep(pointer, [I64(offset.bias)], source_etype=element, inbounds=inbounds)
    return pointer


def pointer_a_lane(f: Frame, storage: Storage, offset: Value) -> ir.Value:
    """One address a lane, by 32-bit offsets where the buffer is small enough for them."""
    if is_vector_offset(offset):
        lanes = offset.llvm
    else:
        lanes = truncated(f, offset) if is_small(storage) else f.vector(offset)
    each = f.ib.gep(storage.pointer, [lanes], source_etype=_unit(storage))
    each.type = ir.VectorType(storage.pointer.type, f.lanes)  # llvmlite says one pointer here
    return each


def readable(f: Frame, pointer: ir.Value) -> ir.Value:
    """A cell shared by all lanes may be read only if there is an active lane."""
    if f.mask is None or f.mask.some:
        return pointer
    return f.ib.select(f.any(f.mask.llvm), pointer, f.nowhere(pointer.type))


def alignment(storage: Storage, offset: Value) -> int:
    """The alignment in bytes that an address certainly has."""
    size, align = storage.buffer.dtype.itemsize, storage.buffer.align
    if storage.buffer.bytewise:
        return 1
    if offset.llvm is not None:
        return min(size, align)
    at = offset.bias * size
    return min(align, at & -at) if at else align
