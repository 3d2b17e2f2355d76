"""Generated operators: thousands of terms, nested either way, from Python to machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from diptych.algo.dtypes import f32
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.parse import parse
from diptych.algo.tensor_expr.trace import indices, tensor, trace, where
from diptych.codegen.kernels import compile_op

DEPTH = 1200
i = indices("i")
STEPS: dict[str, Callable[[Any, Any, int], Any]] = {
    "left": lambda e, x, n: e + x[i],
    "right": lambda e, x, n: x[i] - e,
    "negated": lambda e, x, n: -e * 0.5,
    "chosen by value": lambda e, x, n: where(x[i] > 0.001 * n, e, x[i]),
}


@pytest.mark.parametrize("step", STEPS)
def test_nothing_recurses_over_expressions(step: str) -> None:
    def deep(x: Any) -> Any:
        y = tensor("y")
        value = x[i]
        for n in range(DEPTH):
            value = STEPS[step](value, x, n)
        y[i] = value
        return y

    op = trace(deep)
    x = np.linspace(0.125, 1, 3, dtype=np.float32)
    got = compile_op(op, [(f32, (3,))])(x)
    np.testing.assert_allclose(got, interpret(op, x), rtol=1e-3)


def test_a_text_of_many_terms() -> None:
    op = parse("y[i] = " + " + ".join(["x[i]"] * 2000))
    assert compile_op(op, [(f32, (3,))])(np.ones(3, np.float32)).tolist() == [2000] * 3
