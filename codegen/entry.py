"""How Python enters compiled code: by `id(array)`, whose data pointer the code reads itself.

Asking an array for its address from Python costs more than a small kernel. In CPython `id` is
the object's address, and NumPy keeps the data pointer right behind the object's header. That is
probed once on real arrays; where the probe fails, addresses are passed the slow way.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import llvmlite.ir as ir
import numpy as np

from ..lower.ir import Function
from .emit import Emitted
from .target import PTR
from .values import I64

MISALIGNED = -1
"""The status of an entry when some array does not start at a multiple of its element's size."""


@cache
def data_offset() -> int | None:
    """The offset of the data pointer in an array object, or None where there is none to rely on."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    offset = object.__basicsize__  # the header: 16 bytes, more in a free-threaded build
    base = np.arange(24, dtype=np.float32)
    subclass = type("Sub", (np.ndarray,), {})
    samples: list[Any] = [
        base,
        base[3:],
        base[::-2],
        base.reshape(4, 6).T,
        np.zeros((0, 3)),
        np.array(1.0),
        np.frombuffer(b"12345678", np.int16),
        np.ma.masked_array(base)[1:],
        base.view(subclass),
    ]
    if all(ctypes.c_void_p.from_address(id(x) + offset).value == x.ctypes.data for x in samples):
        return offset
    return None


def token(array: np.ndarray[Any, Any]) -> int:
    """What stands for an array in a call: its `id`, or its address without a known layout."""
    return id(array) if data_offset() is not None else int(array.ctypes.data)


def add_entry(emitted: Emitted, aligned: bool) -> str:
    """Adds `name.entry(pool, workspace, tokens...)` to the module and returns its name.

    It finds the data pointers and calls the kernel; with `aligned` it checks that they are.
    """
    module, function = emitted.module, emitted.function
    kernel = module.get_global(function.name)
    name = f"{function.name}.entry"
    fn = ir.Function(module, ir.FunctionType(I64, [PTR, PTR, *[PTR] * len(function.params)]), name)
    ib = ir.IRBuilder(fn.append_basic_block("entry"))
    offset = data_offset()
    pointers = []
    for arg in fn.args[2:]:
        if offset is not None:
            arg = ib.load(ib.gep(arg, [I64(offset)], source_etype=ir.IntType(8)), typ=PTR)
        pointers.append(arg)
    if aligned:
        _check_alignment(ib, fn, function, pointers)
    status = ib.call(kernel, [*fn.args[:2], *pointers])
    ib.ret(status)
    return name


def _check_alignment(
    ib: ir.IRBuilder, fn: ir.Function, function: Function, pointers: Sequence[ir.Value]
) -> None:
    low = I64(0)
    for param, pointer in zip(function.params, pointers, strict=True):
        if param.align > 1:
            bits = ib.ptrtoint(pointer, I64)
            low = ib.or_(low, ib.and_(bits, I64(param.align - 1)))
    good, bad = fn.append_basic_block("aligned"), fn.append_basic_block("misaligned")
    ib.cbranch(ib.icmp_unsigned("==", low, I64(0)), good, bad)
    ib.position_at_end(bad)
    ib.ret(I64(MISALIGNED))
    ib.position_at_end(good)


def callable_at(address: int, params: int, tiny: bool) -> Callable[..., int]:
    """The entry as a Python callable. A tiny kernel keeps the interpreter lock: that is cheaper."""
    kind = ctypes.PYFUNCTYPE if tiny else ctypes.CFUNCTYPE
    return kind(ctypes.c_int64, *[ctypes.c_void_p] * (params + 2))(address)
