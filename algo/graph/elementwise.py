"""The operators behind `a + b` on values: elementwise, with broadcasting of scalars only."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import GraphError, ShapeError
from ..tensor_expr.expr import Access, Call, Const, Expr, Index
from ..tensor_expr.op import Equation, Op, Param
from ..tensor_expr.operations import OPERATIONS
from ..tensor_expr.scalar import Scalar
from .build import apply, literal
from .graph import Result, Value


def elementwise(operation: str | Scalar, *operands: Any) -> Value:
    """`operation` of `operations.py`, or a function of the user's own, element by element.

    Operands are values, arrays or Python numbers; their shapes agree, or are () (scalars). A
    Python number stays weak: it is written into the operator.
    """
    items = [_operand(operation, item) for item in operands]
    shapes = {item.shape for item in items if isinstance(item, Value) and item.shape}
    if len(shapes) > 1:
        described = " and ".join(
            str(item.type) if isinstance(item, Value) else repr(item) for item in items
        )
        raise ShapeError(
            f"{operation} of {described}: the shapes differ and only scalars broadcast; write an "
            "operator that says which index each operand has"
        )
    rank = len(shapes.pop()) if shapes else 0
    names = iter("abc")
    params: list[Param] = []
    values: list[Value] = []
    parts: list[Expr] = []
    index = tuple(Index(f"i{axis}") for axis in range(rank))
    for item in items:
        if isinstance(item, Value):
            name = next(names)
            params.append(Param(name))
            values.append(item)
            parts.append(Access(name, index if item.shape else ()))
        else:
            parts.append(Const(item))
    equation = Equation("y", index, Call(operation, tuple(parts)))
    return apply(Op(str(operation), tuple(params), (equation,), ("y",)), values)[0]


def is_stop(op: Op) -> bool:
    """Is it the operator that `stop_gradient` of a value applies?"""
    if op.name != "stop_gradient" or len(op.params) != 1 or len(op.equations) != 1:
        return False
    (equation,) = op.equations
    whole = Equation("y", equation.lhs, Call("stop_gradient", (Access("a", equation.lhs),)))
    return op.params[0].name == "a" and equation is whole


def unstopped(value: Value) -> Value:
    """The value that `stop_gradient` was applied to, if it was, to however many in a row."""
    while isinstance(value, Result) and is_stop(value.apply.op):
        value = value.apply.args[0]
    return value


def compare(operation: str, a: Any, b: Any) -> Value:
    """A comparison (lt, le, gt, ge, eq, ne), element by element; its result is of type bool."""
    if OPERATIONS[operation].result != "bool":
        raise GraphError(f"{operation} is not a comparison; expected one of lt, le, gt, ge, eq, ne")
    return elementwise(operation, a, b)


def _operand(operation: str | Scalar, item: Any) -> Value | bool | int | float:
    if isinstance(item, (Value, bool, int, float)) and not isinstance(item, np.generic):
        return item
    if isinstance(item, (np.ndarray, np.generic)):
        return literal(item)
    raise GraphError(
        f"{operation}: a {type(item).__name__} cannot be combined with a traced value; expected "
        "a value, an array or a number"
    )
