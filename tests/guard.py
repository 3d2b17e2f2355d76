"""Arrays beside memory that nobody may touch, so that a read or write outside ends the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Fenced:
    """A copy whose last (or first) byte is the last (or first) before a page without access.

    `array` is dense and lives as long as this object.
    """

    def __init__(self, values: Array, *, at_end: bool) -> None:
        page = mmap.PAGESIZE
        inside = -(-max(values.nbytes, 1) // page) * page
        self.map = mmap.mmap(-1, inside + 2 * page)
        whole = np.frombuffer(self.map, np.uint8)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for start in (0, page + inside):
            assert protect(whole.ctypes.data + start, page, 0) == 0
        first = page + inside - values.nbytes if at_end else page
        self.array = whole[first : first + values.nbytes].view(values.dtype).reshape(values.shape)
        self.array[...] = values
