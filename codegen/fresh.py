"""New arrays for results. Large ones start where a cache line does, and far from their arguments.

Whole vectors then lie in one line, and can be stored past the caches. NumPy's own arrays start
16 bytes after a line, which costs a transpose four fifths of its speed.

A load waits for a store before it whose address ends in the same 12 bits, as x[i + 1] and y[i] do
where x and y start pages alike. What runs through both would take up to twice as long. So a
result starts as far as can be, in a page, from where the arguments and other results do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

PAGE = 4096
STEP = 512
"""Bytes between the places in a page that are tried."""
LARGE = 1 << 20
"""Bytes from which on that is worth some microseconds of Python's time."""


def is_large(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Is an array worth placing?"""
    return math.prod(shape) * dtype.itemsize >= LARGE


def fresh(
    shape: tuple[int, ...], dtype: np.dtype[Any], others: Sequence[np.ndarray[Any, Any]] = ()
) -> np.ndarray[Any, Any]:
    """An uninitialised array, to be used together with others."""
    if not is_large(shape, dtype):
        return np.empty(shape, dtype)
    memory = np.empty(math.prod(shape) * dtype.itemsize + PAGE, np.uint8)
    taken = [_start(array) for array in others if is_large(array.shape, array.dtype)]
    start = (_apart(taken) - _start(memory)) % PAGE
    return np.ndarray(shape, dtype, memory, start)


def _start(array: np.ndarray[Any, Any]) -> int:
    """Where in a page an array starts."""
    return int(array.__array_interface__["data"][0]) % PAGE


def _apart(taken: Sequence[int]) -> int:
    """The place in a page that is farthest from those taken, counted around its end."""

    def nearest(at: int) -> int:
        return min((min((at - t) % PAGE, (t - at) % PAGE) for t in taken), default=0)

    return max(range(0, PAGE, STEP), key=nearest)
