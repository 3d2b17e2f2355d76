"""What a parameter of an operator that was derived says of its sizes."""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import DType, TensorType
from .expr import Const, Expr, Size


def annotation(dtype: DType | None, extents: Sequence[Expr]) -> TensorType:
    """The annotation of a parameter; its sizes only where each is a symbol or a number."""
    dims: list[str | int] = []
    for extent in extents:
        if isinstance(extent, Size):
            dims.append(extent.name)
        elif isinstance(extent, Const) and type(extent.value) is int:
            dims.append(extent.value)
        else:
            return TensorType(dtype, None)
    return TensorType(dtype, tuple(dims))
