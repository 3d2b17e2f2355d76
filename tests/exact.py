"""Operators in float64 by the interpreter, with arguments and results by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.op import Op

Array = np.ndarray[Any, Any]


def run(op: Op, values: Mapping[str, Any]) -> dict[str, Array]:
    """The results; `values` may hold more than the parameters."""
    found = interpret(op, *(values[p.name] for p in op.params), exact=True)
    return dict(zip(op.returns, found if isinstance(found, tuple) else (found,), strict=True))


def cotangent_names(op: Op, back: Op) -> list[str]:
    """The parameters of the gradient operator `back` of `op` that are cotangents of its results."""
    return [p.name for p in back.params[len(back.params) - len(op.returns) :]]
