"""Text grows with the distinct parts of expressions, and parts that are deep have names."""

from __future__ import annotations

from collections.abc import Callable

import diptych as dt
import numpy as np
import pytest

i, k = dt.indices("i k")


def grown(steps: int, step: Callable, start: Callable = lambda x: x[i]) -> dt.Op:
    """y[i] = step(step(... start(x) ...))."""

    @dt.op
    def f(x):
        y = dt.tensor("y")
        e = start(x)
        for _ in range(steps):
            e = step(e)
        y[i] = e
        return y

    return f


def grown_inside(x: dt.Tensor) -> dt.Term:
    """A product in a reduction, whose index is not on the left."""
    e = x[k] * x[i]
    for _ in range(20):
        e = e * e
    return e


def test_what_large_text_would_repeat_is_named() -> None:
    op = grown(9, lambda e: e * e)
    assert op.text == "\n".join(
        [
            "let e1 = x[i] * x[i] * (x[i] * x[i])",
            *(f"let e{n} = e{n - 1} * e{n - 1}" for n in range(2, 8)),
            "y[i] = e7 * e7",
        ]
    )
    assert grown(5, lambda e: e * e).text.startswith("y[i] = x[i] * x[i]")


@pytest.mark.parametrize(
    "op",
    [
        grown(60, lambda e: e * e),
        grown(300, lambda e: 1.0 + (2.0 - e)),
        grown(60, lambda e: dt.where(e > 0.5, e * e, e + 1)),
        grown(20, lambda e: e * e, lambda x: dt.sum(x[k] * x[i])),
        grown(1, lambda e: dt.sum(e), lambda x: grown_inside(x)),
    ],
)
def test_named_parts_parse_back(op: dt.Op) -> None:
    assert "let e1 = " in op.text
    again = dt.op(op.text)
    assert again.text == op.text
    assert again.equations == op.equations
    x = np.linspace(0.1, 0.4, 3)
    np.testing.assert_array_equal(dt.interpret(again, x), dt.interpret(op, x))


def test_messages_leave_out_what_is_large() -> None:
    op = grown(40, lambda e: e * e)
    assert op.text.count("\n") > 30
    e = dt.tensor("x")[i]
    for _ in range(40):
        e = e * e
    assert repr(e) == "... * ..."


def test_a_let_line_is_a_name_for_an_expression() -> None:
    op = dt.op("let s = x[i] * x[k]\ny[i] = sum(s) + max(s)")
    assert op.text == "y[i] = sum(x[i] * x[k]) + max(x[i] * x[k])"
