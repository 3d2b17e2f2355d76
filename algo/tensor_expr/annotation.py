"""What parameters of an operator that was made of another say of their sizes and types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..dtypes import DType, TensorType
from .expr import Const, Expr, Size
from .op import Op, Param


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


def annotated(op: Op, dtypes: Sequence[DType | None]) -> Op:
    """The operator with these element types declared; the same where they are already."""
    if all(p.type.dtype is d for p, d in zip(op.params, dtypes, strict=True)):
        return op
    params = tuple(
        Param(p.name, TensorType(d, p.type.dims)) for p, d in zip(op.params, dtypes, strict=True)
    )
    made: Op = op.memo(f"declared {dtypes}", lambda: replace(op, params=params, _memo={}))
    return made
