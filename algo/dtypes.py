"""Element types and their promotion: NumPy 2's rules, with weak Python scalars.

Source: NumPy NEP 50. One deliberate difference: u64 with a signed integer would become f64 there;
here it is an error that asks for a cast.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .errors import DTypeError
from .node import node


@node
class DType:
    """An element type. `kind` is one of b (bool), i, u, f; `bits` is its storage width.

    Indexing annotates a parameter: `f32["M", "K"]` is a `TensorType`.
    """

    name: str
    kind: str
    bits: int

    def __getitem__(self, dims: Any) -> TensorType:
        """The annotation of a tensor: `f32["M", 3]`, a name or a whole number a dimension;
        `dt.size("M")` is a name too."""
        return TensorType(self, dims if isinstance(dims, tuple) else (dims,))

    def __call__(self, value: Any) -> Any:
        """`f32(x)`: in traced code a conversion; of a plain number, NumPy's scalar."""
        convert = getattr(value, "__cast__", None)
        if convert is not None:
            return convert(self)
        if self is bf16:
            raise DTypeError("NumPy has no bf16 scalar; write dt.cast(value, bf16)")
        return self.numpy.type(value)

    def __repr__(self) -> str:
        return self.name

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """Is it one of f16, bf16, f32, f64?"""
        return self.kind == "f"

    @property
    def eps(self) -> float:
        """The distance from 1.0 to the next number of a float type; 0 for others, all exact."""
        digits = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
        return 2.0 ** -digits[self.name] if self.is_float else 0.0

    @property
    def is_int(self) -> bool:
        """Is it a signed or unsigned integer? bool is not."""
        return self.kind in "iu"

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's dtype; bf16 has none and is carried as its bits (uint16)."""
        return np.dtype(_NUMPY[self.name])

    def lies_in(self, stored: np.dtype[Any]) -> bool:
        """May an array of this NumPy dtype hold such elements? Either form of bf16 may."""
        return stored == self.numpy or (self is bf16 and stored.name == BFLOAT)

    @property
    def accumulator(self) -> DType:
        """The type sums are kept in (DESIGN section 2); independent of any schedule."""
        if self.kind == "f":
            return f32 if self.bits < 32 else self
        if self.kind == "b":
            return i64
        if self.bits < 32:
            return i32
        return self


@node
class TensorType:
    """A parameter annotation: an element type and one size (a name or an int) a dimension.

    Either may be None, not said; both follow from the arrays of the first call then.
    """

    dtype: DType | None
    dims: tuple[str | int, ...] | None

    def __repr__(self) -> str:
        dims = "" if self.dims is None else f"[{', '.join(map(repr, self.dims))}]"
        return f"{self.dtype or ''}{dims}" or "any type"


bool_ = DType("bool", "b", 8)
i8, i16, i32, i64 = (DType(f"i{b}", "i", b) for b in (8, 16, 32, 64))
u8, u16, u32, u64 = (DType(f"u{b}", "u", b) for b in (8, 16, 32, 64))
f16, f32, f64 = (DType(f"f{b}", "f", b) for b in (16, 32, 64))
bf16 = DType("bf16", "f", 16)

BY_NAME = {t.name: t for t in (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)}
_NUMPY = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f16": "float16", "bf16": "uint16", "f32": "float32", "f64": "float64",
}  # fmt: skip
_FROM_NUMPY = {np.dtype(n): BY_NAME[ours] for ours, n in _NUMPY.items() if ours != "bf16"}
BFLOAT = "bfloat16"
"""The name of the dtype by which the package ml_dtypes extends NumPy; it has bf16's bits."""


def from_numpy(dtype: Any, declared: DType | None = None) -> DType:
    """The element type of a NumPy dtype, or a `DTypeError` that lists the known ones.

    Where a parameter is declared bf16, uint16 is its bits.
    """
    stored = np.dtype(dtype)
    if declared is not None and declared.lies_in(stored):
        return declared
    found = _FROM_NUMPY.get(stored)
    if found is None and stored.name == BFLOAT:  # asked last, since NumPy makes names slowly
        return bf16
    if found is None:
        known = ", ".join(BY_NAME)
        raise DTypeError(f"arrays of {stored} are not supported; expected one of {known}")
    return found


def as_bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array as NumPy's own dtypes say it: a bf16 one as its bits, the same memory."""
    return array.view(np.uint16) if array.dtype.name == BFLOAT else array


def widened(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of bf16, or of its bits, in float32, which holds all of its numbers."""
    bits = as_bits(array).astype(np.uint32)
    return (bits << np.uint32(16)).view(np.float32)


def in_float64(array: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """An array of elements of type `dtype`, in float64 if that is a float."""
    found = np.asarray(array)
    if dtype is bf16:
        found = widened(found)
    return found.astype(np.float64) if dtype.is_float else found


def bf16_form(arrays: Iterable[np.ndarray[Any, Any]]) -> np.dtype[Any]:
    """The NumPy dtype of bf16 results: bfloat16 where an input is, else uint16, for their bits."""
    return next((a.dtype for a in arrays if a.dtype.name == BFLOAT), bf16.numpy)


def promote(a: DType, b: DType) -> DType:
    """The type in which `a op b` is computed, for two strong types."""
    if a is b:
        return a
    if a.is_float or b.is_float:
        return _promote_float(a, b)
    if a is bool_ or b is bool_:
        return b if a is bool_ else a
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if unsigned.bits < signed.bits:
        return signed
    if unsigned.bits == 64:
        raise DTypeError(f"{a} with {b} has no exact common type; cast one of them")
    return BY_NAME[f"i{2 * unsigned.bits}"]


def _promote_float(a: DType, b: DType) -> DType:
    if a.is_float and b.is_float:
        if a.bits == b.bits:  # f16 with bf16
            return f32
        return a if a.bits > b.bits else b
    flt, other = (a, b) if a.is_float else (b, a)
    if other is bool_ or other.bits <= 8:
        return flt
    wanted = f32 if other.bits == 16 else f64
    return flt if flt.bits >= wanted.bits else wanted


def promote_weak(strong: DType, scalar: bool | int | float) -> DType:
    """The type of `strong op scalar` where the scalar is a Python literal (NEP 50)."""
    if isinstance(scalar, bool):
        return strong
    if isinstance(scalar, int):
        return i64 if strong is bool_ else strong
    return strong if strong.is_float else f64


def integers(values: np.ndarray[Any, Any], target: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Floats as integers of a NumPy type, as compiled code casts them: truncated, the nearest that
    there is where they are out of range, 0 for NaN."""
    ends = np.iinfo(target)
    whole = np.trunc(values.astype(np.float64))
    below, above = whole <= ends.min, whole >= ends.max
    inside = np.where(below | above | np.isnan(whole), 0, whole).astype(target)
    return np.where(below, target.type(ends.min), np.where(above, target.type(ends.max), inside))
