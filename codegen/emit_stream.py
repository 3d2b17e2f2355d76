"""Stores past the caches, and the fence that makes other threads see them in order."""

from __future__ import annotations

import llvmlite.ir as ir

from ..algo.dtypes import i64
from ..lower.ir import Function, Store, allocated, walk
from .frame import Frame, Storage
from .target import Target
from .values import I32, I64, Value, lanes_of, scalar_type


def streams(function: Function, target: Target) -> bool:
    """Does a function store past the caches?"""
    stored = {item.buffer for item in walk(function.body) if isinstance(item, Store)}
    buffers = (*function.params, *allocated(function.body))
    return target.streams and any(b.stream and b.name in stored for b in buffers)


def fence(f: Frame) -> None:
    """What the thread has streamed comes before what it does next, in the eyes of all others.

    No lock orders such stores. On x86 this is mfence, which orders them as sfence does.
    """
    if f.unit.streams:
        f.ib.fence("seq_cst")


def mark(f: Frame, store: ir.Instruction) -> ir.Instruction:
    """A store that goes past the caches."""
    store.set_metadata("nontemporal", f.unit.module.add_metadata([I32(1)]))
    return store


def size_of(raw: ir.Value) -> int:
    """Bytes of a value in memory."""
    width = {"half": 2, "float": 4, "double": 8}.get(str(scalar_type(raw)))
    return lanes_of(raw) * (width or scalar_type(raw).width // 8)


def is_aligned(f: Frame, storage: Storage, offset: Value, size: int) -> ir.Value:
    """Is the address of the first cell a multiple of a power of two?

    Whole steps of a loop fall out of the number that is asked, and the rest is asked before it.
    """
    cells = f.scalar(Value(i64, offset.llvm, offset.bias))
    start = f.ib.ptrtoint(storage.pointer, I64)
    place = f.ib.add(start, f.ib.mul(cells, I64(storage.buffer.dtype.itemsize)))
    return f.ib.icmp_unsigned("==", f.ib.and_(place, I64(size - 1)), I64(0))
