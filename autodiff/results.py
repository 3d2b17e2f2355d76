"""Which results of an operator have cotangents and tangents: those that are floats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ..algo.dtypes import DType
from ..algo.errors import DTypeError
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.op import Op
from ..algo.tensor_expr.types import infer


def returning(op: Op, returns: tuple[str, ...]) -> Op:
    """The operator with these results; the adjoint leaves out what they do not need."""
    if returns == op.returns:
        return op
    made: Op = op.memo(
        f"returning {returns}",
        lambda: replace(op, returns=returns, _memo={}),
    )
    return made


def float_results(op: Op, types: Mapping[str, DType] = MappingProxyType({})) -> tuple[str, ...]:
    """The results of which elements are floats, or may be where `types` of parameters and the
    annotations do not say.

    A comparison, a count, an index, a cast to integers are no floats whatever the parameters are,
    and to say so these may be what they are by default.
    """
    key = f"float results {sorted((name, dtype.name) for name, dtype in types.items())}"
    made: tuple[str, ...] = op.memo(key, lambda: _float_results(op, types))
    return made


def _float_results(op: Op, types: Mapping[str, DType]) -> tuple[str, ...]:
    try:
        found = infer(check(op), types)
    except DTypeError:  # parameters that nobody typed are not what they are by default
        return op.returns
    return tuple(name for name in op.returns if found[name].is_float)


def with_floats(op: Op) -> Op:
    """The operator without the results that are surely no floats, itself where all are none."""
    return returning(op, float_results(op) or op.returns)
