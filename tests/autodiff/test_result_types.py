"""Element types of derivatives: those of what moves, and none for integers and truth values."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest

BOTH = dt.op("f(x: f64[N]) -> y, b:\n  y[i] = x[i] ** 2\n  b[i] = x[i] > 0")
PLACED = dt.op("y[i] = x[i] ** 2\nb[] = argmax(x[i])\nz[i] = x[i] * n[i]\nm[i] = n[i] + 1")
MIXED = dt.op("h(x: f64[N], z: f32[N]) -> y:\n  y[i] = x[i] * z[i]")
VANISHING = ["z[i] - z[i]", "z[0] - z[0]", "where(x[i] > 0, z[k[i]] - z[k[i]], 0)"]
X = np.array([1.0, 2.0, 3.0])
Z = np.array([4.0, 5.0, 6.0], np.float32)
N = np.arange(3)


def same(got: Any, wanted: Any) -> None:
    """Equal in type too."""
    assert got.dtype == np.asarray(wanted).dtype
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("function", [MIXED, lambda x, z: MIXED(x, z)])
def test_tangents_have_the_types_of_their_parameters(function: Any) -> None:
    y, moved = dt.jvp(function, (X, Z), (X, Z))
    same(y, X * Z)
    same(moved, 2 * X * Z)


@pytest.mark.parametrize("text", ["y[i] = f32(x[i]) * 2", "y[] = sum(f32(x[i]))"])
def test_tangents_of_results_have_the_types_of_these(text: str) -> None:
    y, moved = dt.jvp(dt.op(text), (X,), (X,))
    same(moved, y)  # they are linear


def test_results_that_are_no_floats_have_no_cotangent_in_a_gradient() -> None:
    assert [p.name for p in BOTH.gradient("x").params] == ["x", "dy"]
    assert [p.name for p in PLACED.gradient("x").params] == ["x", "n", "dy", "dz", "dm"]
    dt.check_grads(BOTH, (X,), order=2)


@pytest.mark.parametrize("wrap", [lambda op: op, lambda op: lambda *args: op(*args)])
def test_what_is_given_for_results_that_are_no_floats_is_left_out(wrap: Any) -> None:
    for unread in (None, X):
        same(dt.vjp(wrap(BOTH), X)[1]((X, unread))[0], 2 * X * X)
    found = dt.vjp(wrap(PLACED), X, N)[1]((X, None, X, None))
    same(found[0], 2 * X * X + X * N)
    assert found[1] is None


@pytest.mark.parametrize("wrap", [lambda op: op, lambda op: lambda *args: op(*args)])
def test_results_that_are_no_floats_move_by_zeros_of_their_types(wrap: Any) -> None:
    same(dt.jvp(wrap(BOTH), (X,), (X,))[1][1], np.zeros(3, bool))
    y, b, z, m = dt.jvp(wrap(PLACED), (X, N), (X, None))[1]
    same(y, 2 * X * X)
    same(b, np.zeros((), np.int64))
    same(z, X * N)
    same(m, np.zeros(3, N.dtype))


def test_results_of_which_none_is_a_float_move_by_zeros() -> None:
    above = dt.op("b[i] = x[i] > 0")
    same(dt.jvp(above, (X,), (X,))[1], np.zeros(3, bool))
    same(dt.vjp(above, X)[1](X > 0)[0], np.zeros(3))


def test_vjp_of_operators_and_functions_in_a_program() -> None:
    @dt.program
    def step(x: Any, v: Any) -> Any:
        y, pull = dt.vjp(MIXED, x, Z)  # an array beside a value
        (_, b), pull2 = dt.vjp(lambda a: BOTH(a), x)
        return y, pull(v), b, pull2((np.ones(3), None))

    y, (dx, dz), b, (dx2,) = step(X, X)
    same(y, X * Z)
    same(dx, X * Z)
    same(dz, (X * X).astype(np.float32))
    same(b, X > 0)
    same(dx2, 2 * X)


@pytest.mark.parametrize("wrap", [lambda op: op, lambda op: lambda *args: op(*args)])
def test_arguments_are_numbered_from_the_end_too(wrap: Any) -> None:
    op = dt.op("s[] = sum(x[i] * z[i] ** 2)")
    same(dt.grad(wrap(op), -1)(X, X), 2 * X * X)
    dz, dx = dt.grad(wrap(op), (-1, 0))(X, X)
    same(dz, 2 * X * X)
    same(dx, X * X)


@pytest.mark.parametrize("value", VANISHING)
def test_what_cancels_leaves_zeros_of_the_type(value: str) -> None:
    op = dt.op(f"f(x: [N], z: [N], k: i64[N]) -> y:\n  y[i] = x[i] * ({value})")
    back = op.gradient("z")
    assert "zeros_like" in back.text
    same(back(Z, X), np.zeros(3, np.float32))
