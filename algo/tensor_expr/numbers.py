"""Python's numbers as arrays of a type, which must be able to hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import DType, bf16
from ..errors import DTypeError, shortly
from .evaluate import round_bf16

Array = np.ndarray[Any, Any]


def numbers(name: str, value: Any, dtype: DType) -> Array:
    """A number, or a list of numbers, as an array of this type. bf16 is given by its bits.

    A float beyond the greatest is inf. Raises `DTypeError`, which begins with `name`, where an
    integer type cannot hold them, and where an integer is beyond all floats.
    """
    if value.__class__ is float and dtype.is_float and dtype is not bf16 and abs(value) < 2**15:
        return np.array(value, dtype.numpy)  # as below, without questions that have one answer
    given = np.asarray(value)
    fits = given.dtype.kind == "b" or (dtype.kind != "b" and (dtype.is_float or _whole(given)))
    if fits and dtype.is_int and given.size and given.dtype.kind != "b":
        info = np.iinfo(dtype.numpy)
        fits = info.min <= int(given.min()) and int(given.max()) <= info.max
    if fits:
        try:
            return _converted(given, dtype)
        except OverflowError:  # of integers that are objects to NumPy
            pass
    raise DTypeError(
        f"{name} is of type {dtype} here, which cannot hold {shortly(value)}; "
        "pass an array or a NumPy scalar of the type that is meant"
    )


def _converted(given: Array, dtype: DType) -> Array:
    if dtype is bf16:
        rounded = round_bf16(given.astype(np.float32))
        return np.asarray(rounded.view(np.uint32) >> np.uint32(16), np.uint16)
    with np.errstate(over="ignore"):
        return given.astype(dtype.numpy)


def _whole(given: Array) -> bool:
    """Are these whole numbers? Those beyond 64 bits are objects to NumPy."""
    return given.dtype.kind in "iu" or isinstance(given.flat[0] if given.size else 0, int)
