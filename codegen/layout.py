"""How NumPy's arrays lie in memory, for compiled code that reads them without asking Python.

CPython's `id` is an object's address, and the fields of an array follow the object's header in
the order that NumPy's own headers publish to every extension. It is probed once on real arrays;
where the probe fails, or a build has no interpreter lock under which to read, nothing relies on it.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

WRITEABLE = 0x400
"""The bit of an array's flags that says that it may be written."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets in bytes from the start of an array object; `rank` and `flags` are C ints."""

    type: int
    data: int
    rank: int
    shape: int
    strides: int
    dtype: int
    flags: int


@cache
def layout() -> Layout | None:
    """The layout of arrays in this process, or None where there is none to rely on."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    if "t" in getattr(sys, "abiflags", ""):
        return None
    head = object.__basicsize__
    found = Layout(head - 8, head, head + 8, head + 16, head + 24, head + 40, head + 48)
    return found if all(_lies_so(array, found) for array in _samples()) else None


def _samples() -> list[Array]:
    base = np.arange(24, dtype=np.float32)
    locked = np.arange(3)
    locked.flags.writeable = False
    subclass = type("Sub", (np.ndarray,), {})
    return [
        base,
        base[3:],
        base[::-2],
        base.reshape(4, 6).T,
        np.zeros((0, 3)),
        np.array(1.0),
        np.frombuffer(b"12345678", np.int16),
        base.view(subclass),
        np.zeros(3, [("a", "u1"), ("b", "f4")])["b"],
        locked,
    ]


def _lies_so(array: Array, at: Layout) -> bool:
    def word(offset: int) -> int | None:
        return ctypes.c_void_p.from_address(id(array) + offset).value

    def row(offset: int) -> tuple[int, ...]:
        start = word(offset)
        return tuple((ctypes.c_ssize_t * array.ndim).from_address(start)) if start else ()

    flags = ctypes.c_int.from_address(id(array) + at.flags).value
    return (
        word(at.type) == id(type(array))
        and word(at.data) == array.ctypes.data
        and ctypes.c_int.from_address(id(array) + at.rank).value == array.ndim
        and row(at.shape) == array.shape
        and row(at.strides) == array.strides
        and word(at.dtype) == id(array.dtype)
        and bool(flags & WRITEABLE) == array.flags.writeable
    )
