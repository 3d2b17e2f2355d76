"""Sizes that have to be numbers: uses that are affine only then, checked when the size is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.autotune.operands import op_types

Array = np.ndarray[Any, Any]
ROWS = "f(x: f32[N], w: f32[W]) -> y:\n    y[r,c] = x[r*W+c] * w[c] where r in 0:3"
FLAT = "flat(x: f32[H, W]) -> y:\n    y[n] = x[n//W,n%W] where n in 0:H*W"
WRAP = "y[i] = x.wrap[i-1] + x[i]"
USE = "r * W is not affine while its sizes are symbols; it is an index into x"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads what another process compiled."""
    monkeypatch.setenv("DIPTYCH_CACHE_DIR", str(tmp_path / "cache"))


def counting(n: int) -> Array:
    return np.arange(n, dtype=np.float32)


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def test_calls_put_the_size_in() -> None:
    op = dt.op(ROWS)
    for w in (4, 3, 1):
        want = counting(12)[: 3 * w].reshape(3, w)
        np.testing.assert_array_equal(op(counting(12), ones(w)), want)
        np.testing.assert_array_equal(dt.interpret(op, counting(12), ones(w)), want)
    assert op(counting(12), ones(0)).shape == (3, 0)


def test_quotients_remainders_and_products_of_sizes() -> None:
    op = dt.op(FLAT)
    for shape in ((3, 4), (1, 7), (5, 1)):
        x = counting(shape[0] * shape[1]).reshape(shape)
        np.testing.assert_array_equal(op(x), x.ravel())
        np.testing.assert_array_equal(dt.interpret(op, x), x.ravel())


def test_wrap_by_a_symbolic_extent() -> None:
    op = dt.op(WRAP)
    for n in (1, 5, 12):
        np.testing.assert_array_equal(op(counting(n)), np.roll(counting(n), 1) + counting(n))


def test_the_text_is_that_of_the_operator_as_written_and_with_the_number() -> None:
    op = dt.op(ROWS)
    assert op.text == ROWS
    assert dt.op(op.text) == op
    put = op.at(W=4)
    assert put.text == ROWS.replace("f32[W]", "f32[4]").replace("r*W", "r*4")
    assert dt.op(put.text) == put
    assert op.at(W=4) is put
    assert dt.op(WRAP).at(I=12).text == f"y(x: [12]) -> y:\n    {WRAP}"


def test_at_of_an_operator_that_needs_no_number() -> None:
    op = dt.op("C[i,j] = sum(A[i,k] * B[k,j])").dynamic(I=9)
    put = op.at(K=3, I=2)
    assert put.text == "C(A: [2, 3], B: [3, J]) -> C:\n    C[i,j] = sum(A[i,k] * B[k,j])"
    np.testing.assert_array_equal(put(ones(2, 3), ones(3, 5)), 3 * ones(2, 5))
    with pytest.raises(dt.ShapeError):
        put(ones(3, 3), ones(3, 5))
    shifted = dt.op("y[i] = x[i+2] + z[i]").at(I=4)
    np.testing.assert_array_equal(shifted(counting(6), ones(4)), counting(6)[2:] + 1)
    assert dt.op(shifted.text) == shifted


@pytest.mark.parametrize("gated", [False, True])
def test_what_nothing_writes_at_0_says_no_extent(gated: bool) -> None:
    step = "g[t] = w[] * x[t] + h.zero[t-1]\n h[t] = tanh(g[t])"
    if not gated:
        step = "h[t] = tanh(w[] * x[t] + h.zero[t-1])"
    op = dt.op(f"f(x: [T], w: []) -> y:\n {step}\n y[] = sum(h[t]**2)")
    twice = op.gradient(("x", "w")).gradient(("x", "w", "dy"))
    one = np.ones(())
    for steps in range(4):
        x = np.full(steps, 0.5)
        got, want = twice.at(T=steps)(x, one, one, x, one), twice(x, one, one, x, one)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize(
    "text",
    [
        "h[0] = u[]\n h[t+1] = sin(h[t] * x[t]) where t in 0:T\n y[] = h[T]",
        "h[0] = u[]\n h[t] = h[t-1] * x[t-1] where t in 1:T+1\n y[] = h[T]",
        "h[i] = u[] where i in T:T+1\n h[t] = sin(h[t+1] * x[t]) where t in 0:T\n y[] = h[0]",
        "y[i] = x.zero[0] * x.fill(2)[i] * u[] where i in 0:T+1",
    ],
)
def test_extents_that_differ_by_a_number_do_so_with_numbers(text: str, size: int) -> None:
    op = dt.op(f"f(x: [T], u: []) -> y:\n {text}")
    back = op.gradient(("x", "u"))
    twice = back.gradient(("x", "u"))
    x, u = np.linspace(0.2, 0.8, size), np.array(0.5)
    y = op.at(T=size)(x, u)
    np.testing.assert_array_equal(y, op(x, u))
    seeds = np.ones(np.shape(y)), x, u
    for a, b in zip(back.at(T=size)(x, u, seeds[0]), back(x, u, seeds[0]), strict=True):
        np.testing.assert_array_equal(a, b)
    values = {"x": x, "u": u, "dy": seeds[0], "ddx": x, "ddu": u}
    given = [values[p.name] for p in twice.params]
    for a, b in zip(twice.at(T=size)(*given), twice(*given), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_operator_with_the_number_is_scheduled() -> None:
    op = dt.op(ROWS)
    schedule = op.at(W=4).schedule().split("c", 2).unroll("ci")
    want = counting(12).reshape(3, 4)
    np.testing.assert_array_equal(schedule(counting(12), ones(4)), want)
    with dt.schedules(schedule):  # calls of the operator as written use it at that size
        np.testing.assert_array_equal(op(counting(12), ones(4)), want)
        assert op._memo["runner"][1].last.schedule == schedule
        np.testing.assert_array_equal(op(counting(12), ones(3)), counting(9).reshape(3, 3))


def test_gradients() -> None:
    op = dt.op(ROWS)
    y, pull = dt.vjp(op, counting(12), ones(4))
    dx, dw = pull(np.ones_like(y))
    np.testing.assert_array_equal(dx, ones(12))
    np.testing.assert_array_equal(dw, counting(12).reshape(3, 4).sum(0))
    back = op.at(W=4).gradient("w")
    np.testing.assert_array_equal(back(counting(12), ones(3, 4)), dw)


def test_in_a_program() -> None:
    op = dt.op(ROWS)

    @dt.program
    def rows(x: Any, w: Any) -> Any:
        return op(x, w)

    for w in (4, 2):
        want = counting(12)[: 3 * w].reshape(3, w)
        np.testing.assert_array_equal(rows(counting(12), ones(w)), want)


def test_generated_code_at_given_sizes() -> None:
    assert "4 * y.r + y.c" in dt.op(ROWS).source("ir", N=12, W=4)


def test_the_tuner_puts_the_size_in() -> None:
    op, types = op_types(dt.op(ROWS), ["N=12", "W=4"], [])
    assert op == dt.op(ROWS).at(W=4)
    assert {name: shape for name, (_, shape) in types.items()} == {"x": (12,), "w": (4,)}
    same, _ = op_types(dt.op(ROWS), ["N=12"], ["w=f32[4]"])
    assert same == op


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (
            lambda: dt.op(ROWS).schedule(),
            dt.OpError,
            f"{USE}; use f.at(W=...), the operator with a number there",
        ),
        (
            lambda: dt.op(ROWS).gradient("x"),
            dt.OpError,
            f"{USE}; use f.at(W=...), the operator with a number there",
        ),
        (
            lambda: dt.op(WRAP).schedule(),
            dt.OpError,
            "x.wrap[i-1] needs the extent of dim 0 of x as a number, because a remainder by I is "
            "not affine; use y.at(I=...), the operator with a number there",
        ),
        (
            lambda: dt.op(ROWS).dynamic(W=8),
            dt.OpError,
            f"{USE}; W has to be a number, but it is declared dynamic",
        ),
        (
            lambda: dt.op(ROWS).source("ir", N=12),
            dt.ShapeError,
            f"f: give size W; {USE}; use f.at(W=...), the operator with a number there",
        ),
        (lambda: dt.op(ROWS).at(V=4), dt.OpError, "at(V=4): f has no size V; its sizes are N, W"),
        (lambda: dt.op(ROWS).at(W=-1), dt.OpError, "at(W=-1): expected a whole number"),
        (lambda: dt.op(ROWS).at(W="a"), dt.OpError, "at(W='a'): expected a whole number"),
    ],
)
def test_errors(use: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        use()
    assert str(caught.value).partition("\n")[0] == text


def test_what_no_number_helps_is_refused_at_once() -> None:
    with pytest.raises(dt.OpError, match=r"i \* j is not affine; it is an index into x"):
        dt.op("f(x: f32[N]) -> y:\n y[i,j] = x[i*j] where i in 0:3, j in 0:3")
