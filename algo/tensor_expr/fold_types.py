"""Element types of users' reducers.

The type of a component is that of its body, promoted with what `combine` gives: a weak literal,
as the count of a mean, takes the type of what it is combined with. Accumulators are as for a sum:
f16 is kept in f32, i8 in i32 (which is then the result); a bool stays one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import cast as typing_cast

from ..dtypes import DType, bool_
from ..errors import DTypeError
from .elaborate import (
    NATIVE,
    Env,
    Kind,
    cast,
    elaborate,
    elaborate_condition,
    joined,
    typed_value,
    widened,
)
from .expr import Cast, Const, Expr, Reduce
from .folds import Fold, Part


def result_types(fold: Fold, bodies: Sequence[Expr], env: Env) -> list[DType] | None:
    """The types of a fold's results, one a component; None while a body's type is not known."""
    kinds: list[Kind] = [typed_value(body, env).type for body in bodies]
    if type(None) in kinds:
        return None
    for _ in range(8):  # types only grow
        scalars = typing_cast(Mapping[str, DType], _scalars(fold, kinds))
        grown = [
            joined(kind, typed_value(expr, scalars).type)
            for kind, expr in zip(kinds, fold.combine, strict=True)
        ]
        if grown == kinds:
            break
        kinds = grown
    found = [kind if isinstance(kind, DType) else NATIVE.get(kind, NATIVE[float]) for kind in kinds]
    return [t if t.is_float or t is bool_ else t.accumulator for t in found]


def accumulator(result: DType) -> DType:
    """The type in which a component is kept while it is combined."""
    return bool_ if result is bool_ else result.accumulator


def typed_part(reduce: Reduce, result: DType, env: Env) -> Expr:
    """The typed form of one component's reduction, whose type is known."""
    acc = accumulator(result)
    where = None if reduce.where is None else elaborate_condition(reduce.where, env)
    body = widened(typed_value(reduce.body, env), acc)
    made = Reduce(reduce.reducer, reduce.indices, body, reduce.ranges, where, acc)
    return made if result is acc else Cast(result, made)


@lru_cache(maxsize=1024)
def typed_combine(fold: Fold, accs: tuple[DType, ...]) -> tuple[Expr, ...]:
    """What `combine` gives, typed, over scalars of the accumulators' types."""
    scalars = typing_cast(Mapping[str, DType], _scalars(fold, accs))
    return tuple(
        cast(elaborate(expr, scalars), acc, scalars)
        for expr, acc in zip(fold.combine, accs, strict=True)
    )


def identity(part: Part, dtype: DType) -> Const:
    """The identity of a component; infinities are an integer's least and greatest value."""
    import numpy as np

    value = part.fold.identity[part.number].value
    if dtype is bool_:
        return Const(bool(value), dtype)
    if dtype.is_float:
        return Const(float(value), dtype)
    info = np.iinfo(dtype.numpy)
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return Const(int(info.max if value > 0 else info.min), dtype)
    if value != value or value != int(value) or not info.min <= value <= info.max:
        raise DTypeError(
            f"{part}: the identity {value} of component {part.number} is no {dtype}, which is what "
            f"it is combined in; cast what is reduced, or give another identity"
        )
    return Const(int(value), dtype)


def _scalars(fold: Fold, kinds: Sequence[Kind]) -> dict[str, Kind]:
    return dict(zip(fold.left, kinds, strict=True)) | dict(zip(fold.right, kinds, strict=True))
