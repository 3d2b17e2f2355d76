"""The arguments of a call as arrays of types that fit, or one error that says which does not.

Whatever NumPy makes an array of without a copy of its own is taken as it lies: strides, unaligned
data and what offers `__array__` too. Python's numbers have no type of their own: a number, or a
list of numbers, takes the type that its parameter declares; a number without that takes the type
of the arrays it meets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from .algo.dtypes import DType, from_numpy, i64, promote, promote_weak
from .algo.errors import DTypeError, ShapeError, check_count, shortly
from .algo.tensor_expr.numbers import numbers
from .algo.tensor_expr.op import Op

Array = np.ndarray[Any, Any]


def arguments(operator: Op, arrays: Sequence[Any]) -> list[Array]:
    """The arguments as arrays of types that fit, or an error that says which does not."""
    check_count(operator.name, [p.name for p in operator.params], len(arrays))
    weak = [isinstance(a, (bool, int, float)) and not isinstance(a, np.generic) for a in arrays]
    strong = [
        None if w else _array(operator, param.name, a)
        for w, param, a in zip(weak, operator.params, arrays, strict=True)
    ]
    declared = [p.type.dtype for p in operator.params]
    met = [from_numpy(a.dtype, d) for a, d in zip(strong, declared, strict=True) if a is not None]
    out: list[Array] = []
    for param, value, array in zip(operator.params, arrays, strong, strict=True):
        wanted, name = param.type.dtype, f"{operator.name}: {param.name}"
        if array is None:
            out.append(numbers(name, value, wanted or _weak(value, met)))
            continue
        found = from_numpy(array.dtype, wanted)
        if wanted is None or found is wanted:
            out.append(array)
        elif isinstance(value, (list, tuple)):
            out.append(numbers(name, value, wanted))
        else:
            raise DTypeError(
                f"{name} is declared {wanted}, an array of {found} came; "
                f"convert it with .astype({wanted.numpy.name!r})"
            )
    return out


def in_order(operator: Op, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Arguments in the order of the parameters, some of them given by name."""
    names = [p.name for p in operator.params]
    listed = ", ".join(names)
    for name in named:
        if name not in names:
            raise ShapeError(f"{operator.name} has no input {name}; its inputs are {listed}")
        if name in names[: len(arrays)]:
            raise ShapeError(f"{operator.name}: {name} is given by position and by name")
    rest = names[len(arrays) :]
    missing = [name for name in rest if name not in named]
    if missing:
        raise ShapeError(f"{operator.name} takes {listed}; {', '.join(missing)} is missing")
    return (*arrays, *(named[name] for name in rest))


def _array(operator: Op, param: str, given: Any) -> Array:
    """An argument as an array of a type that there is."""
    try:
        array = np.asarray(given)
    except ValueError:  # lists of unequal lengths
        raise DTypeError(
            f"{operator.name}: {param}: expected an array of numbers, or lists of equal lengths, "
            f"{shortly(given)} came"
        ) from None
    if array.dtype.kind in "OUS" and not isinstance(given, np.ndarray):
        raise DTypeError(
            f"{operator.name}: {param}: expected an array of numbers, {shortly(given)} came"
        )
    try:
        from_numpy(array.dtype)
    except DTypeError as error:
        raise DTypeError(f"{operator.name}: {param}: {error}{_advice(array.dtype)}") from None
    return array


def _advice(dtype: np.dtype[Any]) -> str:
    if not dtype.isnative:
        return (
            f"; convert it to the machine's byte order, .astype({dtype.newbyteorder('=').name!r})"
        )
    if dtype.kind == "c":
        return "; pass its .real and .imag as two arrays"
    if dtype.kind == "V" and dtype.names:
        return f"; pass one of its fields, [{dtype.names[0]!r}]"
    return ""


def _weak(value: bool | int | float, met: Sequence[DType]) -> DType:
    """The type of a Python scalar among arrays: theirs, as far as it can hold it (NEP 50)."""
    if not met or isinstance(value, bool):
        found = np.asarray(value).dtype
        return i64 if found.kind == "O" else from_numpy(found)  # an integer beyond 64 bits
    return promote_weak(reduce(promote, met), value)
