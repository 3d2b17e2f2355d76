"""New arrays for results. Large ones start where a cache line does.

Whole vectors then lie in one line, and can be stored past the caches. NumPy's own arrays start
16 bytes after a line, which costs a transpose four fifths of its speed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

LINE = 64
LARGE = 1 << 20
"""Bytes from which on that is worth a microsecond of Python's time."""


def is_large(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Is an array worth aligning?"""
    return math.prod(shape) * dtype.itemsize >= LARGE


def fresh(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An uninitialised array."""
    if not is_large(shape, dtype):
        return np.empty(shape, dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return np.ndarray(shape, dtype, memory, start)
