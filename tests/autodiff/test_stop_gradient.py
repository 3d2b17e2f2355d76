"""`stop_gradient`: the value itself, with derivatives zero, and no code."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest

i, k = dt.indices("i k")
X = np.random.default_rng(0).standard_normal((3, 4))
SHARE = "y[i,k] = x[i,k] / stop_gradient(sum(exp(x[i,l])))"


def test_in_text_and_in_traced_operators() -> None:
    @dt.op(name="y")
    def traced(x):
        y = dt.tensor("y")
        y[i, k] = x[i, k] / dt.stop_gradient(dt.sum(dt.exp(x[i, dt.indices("l")])))
        return y

    op = dt.op(SHARE)
    assert traced == op and dt.op(op.text) == op
    np.testing.assert_array_equal(op(X), X / np.exp(X).sum(1, keepdims=True))
    np.testing.assert_allclose(dt.interpret(op, X), op(X))
    g = np.ones((3, 4))
    for run in (op.gradient("x"), lambda *a: dt.interpret(op.gradient("x"), *a)):
        np.testing.assert_allclose(run(X, g), g / np.exp(X).sum(1, keepdims=True))
    np.testing.assert_allclose(dt.jvp(op, (X,), (X,))[1], op(X))


def test_derivatives_of_higher_order_are_zero_too() -> None:
    op = dt.op("s[] = sum(x[i] * stop_gradient(x[i])**2)", name="f")
    x = np.array([1.0, 2.0])
    gradient = op.gradient("x")
    np.testing.assert_array_equal(gradient(x, 1.0), x**2)
    np.testing.assert_array_equal(gradient.gradient("x")(x, np.ones(2)), [0, 0])


def test_what_is_reached_through_it_alone_gets_zeros() -> None:
    assert dt.op("y[i] = stop_gradient(x[i])").gradient("x")(X[0], X[1]).tolist() == [0] * 4


def test_no_code_is_left() -> None:
    text = "C[i,j] = sum(A[i,k] * B[k,j])"
    a, b = X.astype(np.float32), X.T.astype(np.float32).copy()
    plain, stopped = dt.op(text), dt.op(text.replace("A[i,k]", "stop_gradient(A[i,k])"))
    assert stopped(a, b).tobytes() == plain(a, b).tobytes()
    assert stopped.source("ir") == plain.source("ir")
    assert str(stopped.schedule()) == str(plain.schedule())


def test_in_programs() -> None:
    total = dt.op("s[] = sum(a[i,k] * b[i,k])", name="total")

    @dt.program
    def step(params: dict[str, Any]) -> Any:
        kept = dt.stop_gradient({"w": params["w"] * 2, "n": None})
        return dt.grad(total(params["w"], kept["w"]), params), kept["w"]

    grads, kept = step({"w": X})
    np.testing.assert_array_equal(grads["w"], 2 * X)
    np.testing.assert_array_equal(kept, 2 * X)
    assert "stop_gradient" not in str(step.plan())
    assert sum("launch" in line for line in str(step.plan()).splitlines()) == 1
    np.testing.assert_array_equal(step.interpret({"w": X})[0]["w"], 2 * X)
    moved = dt.jvp(lambda x: dt.stop_gradient(x) * x, (X,), (X,))[1]
    np.testing.assert_array_equal(moved, X * X)
    np.testing.assert_array_equal(dt.program(lambda x: dt.stop_gradient(x))(X), X)


def test_plain_values_stay_as_they_are() -> None:
    assert dt.stop_gradient(2.5) == 2.5 and dt.stop_gradient(X) is X
    assert dt.stop_gradient((1, {"a": None})) == (1, {"a": None})


def test_around_an_index_and_a_condition() -> None:
    at = np.array([2, 0], np.int64)
    taken = dt.op("y[n] = x[stop_gradient(at[n])]")
    assert taken(np.arange(3.0), at).tolist() == [2, 0]
    chosen = dt.op("y[n] = where(stop_gradient(x[n] > 0), x[n], 0)")
    assert dt.vjp(chosen, np.array([1.0, -1]))[1](np.ones(2))[0].tolist() == [1, 0]
    with pytest.raises(dt.OpError, match=r"stop_gradient\(i\) is not affine"):
        dt.op("y[i] = x[stop_gradient(i)]")
