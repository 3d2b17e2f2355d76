"""Reducers: how values are combined, and from what identity.

A reducer is commutative and associative as mathematics; floats may be summed in any order. Users'
own and tuple-valued reducers join this table later; nothing below may assume the list is closed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..dtypes import DType, bool_


@dataclass(frozen=True, slots=True)
class Reducer:
    """`combine` is an operation of two arguments; `widens` says the accumulator is wider.

    A reducer that widens keeps its partial results in `dtype.accumulator`.
    """

    name: str
    combine: str
    widens: bool

    def identity(self, dtype: DType) -> bool | int | float:
        """The value that changes nothing, in the accumulator's type."""
        if self.name in ("sum", "any"):
            return False if dtype is bool_ else 0.0 if dtype.is_float else 0
        if self.name in ("prod", "all"):
            return True if dtype is bool_ else 1.0 if dtype.is_float else 1
        if dtype is bool_:
            return self.name == "min"
        if dtype.is_float:
            return float("inf") if self.name == "min" else float("-inf")
        info = np.iinfo(dtype.numpy)
        return int(info.max if self.name == "min" else info.min)

    def accumulator(self, dtype: DType) -> DType:
        """The accumulator's type for a body of type `dtype`."""
        if self.name in ("any", "all"):
            return bool_
        return dtype.accumulator if self.widens else dtype

    def result(self, dtype: DType) -> DType:
        """The reduction's type for a body of type `dtype`: f16 stays f16, i8 sums give i32."""
        acc = self.accumulator(dtype)
        return dtype if acc.is_float and dtype.is_float else acc


REDUCERS: dict[str, Reducer] = {
    r.name: r
    for r in (
        Reducer("sum", "add", True),
        Reducer("prod", "mul", True),
        Reducer("max", "max", False),
        Reducer("min", "min", False),
        Reducer("any", "or", False),
        Reducer("all", "and", False),
    )
}

EXTREMES: dict[str, str] = {"argmax": "max", "argmin": "min"}
"""Reductions to the index, i64, at which an extreme value stands first; NaN wins.

They combine pairs (value, index), and no cell holds a pair: `stages.py` reduces the values to their
extreme, then the indices that attain it to the least. Both steps are reducers of the table above,
so the result is the same in every order. An empty one gives the greatest i64, as `min` does.
"""

NAMES = (*REDUCERS, *EXTREMES)
"""The reductions that can be written as functions."""
