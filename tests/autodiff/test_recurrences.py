"""Adjoints of recurrences run the other way: filters, dynamic programs, stencils in time."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.reverse import adjoint
from exact import run

CASES: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "cumsum": ("f(x: [N]) -> y:\n y[0] = x[0]\n y[i] = y[i-1] + x[i] where i in 1:N", ((7,),)),
    "iir": (
        "f(x: [N], a: [2], b: [3]) -> y:\n"
        " y[n] = sum(b[k] * x.zero[n-k]) - sum(a[k] * y.zero[n-k-1]) where n in 0:N",
        ((8,), (2,), (3,)),
    ),
    "gru of two states": (
        "f(x: [T, D], U: [D, D], V: [D, D]) -> h:\n"
        " h[0,d] = 0 where d in 0:D\n"
        " z[t,d] = sigmoid(x[t,d] + sum(U[d,e] * h[t,e]))\n"
        " h[t+1,d] = z[t,d] * h[t,d] + (1 - z[t,d]) * tanh(sum(V[d,e] * h[t,e]) + x[t,d])",
        ((4, 3), (3, 3), (3, 3)),
    ),
    "soft dtw": (
        "f(c: [N, M]) -> r:\n"
        " r[0,0] = c[0,0]\n"
        " r[0,j] = r[0,j-1] + c[0,j] where j in 1:M\n"
        " r[i,0] = r[i-1,0] + c[i,0] where i in 1:N\n"
        " r[i,j] = c[i,j] - log(exp(-r[i-1,j]) + exp(-r[i,j-1]) + exp(-r[i-1,j-1]))"
        " where i in 1:N, j in 1:M",
        ((4, 5),),
    ),
    "longest path": (
        "f(w: [N, M]) -> r:\n"
        " r[0,j] = w[0,j]\n"
        " r[i,j] = w[i,j] + max(max(r.edge[i-1,j-1], r[i-1,j]), r.edge[i-1,j+1]) where i in 1:N",
        ((4, 5),),
    ),
    "best predecessor": (
        "f(e: [T, S], A: [S, S]) -> h:\n"
        " h[0,s] = e[0,s]\n"
        " h[t,s] = max(h[t-1,r] + A[r,s]) + e[t,s] where t in 1:T",
        ((4, 3), (3, 3)),
    ),
    "heat in time": (
        "f(u0: [H, W], k: []) -> u:\n"
        " u[0,y,x] = u0[y,x]\n"
        " u[t,y,x] = u[t-1,y,x] + k[] * (u.edge[t-1,y-1,x] + u.edge[t-1,y+1,x]"
        " + u.edge[t-1,y,x-1] + u.edge[t-1,y,x+1] - 4 * u[t-1,y,x]) where t in 1:4",
        ((4, 5), ()),
    ),
}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> tuple[Any, list[Any]]:
    text, shapes = CASES[request.param]
    rng = np.random.default_rng(len(text))
    return parse(text), [rng.standard_normal(s) * 0.5 for s in shapes]


def test_both_modes_second_order(case: tuple[Any, list[Any]]) -> None:
    op, arrays = case
    dt.check_grads(op, arrays, order=2, interpreted=True)


def test_compiled_gradients_agree_with_the_interpreter(case: tuple[Any, list[Any]]) -> None:
    op, arrays = case
    names = tuple(p.name for p in op.params)
    y, pull = dt.vjp(op, *arrays)
    seed = np.cos(np.arange(y.size) + 1.0).reshape(y.shape)
    wanted = run(
        adjoint(op, names), dict(zip(names, arrays, strict=True)) | {"d" + op.returns[0]: seed}
    )
    for got, want in zip(pull(seed), wanted.values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("value", "total"),
    [
        ("x[t] * h.zero[t-2] + cos(x[t])", "where(t < N - 2, x[t+2] * dh_total[t+2], 0)"),
        ("x[t] * h.fill(2.0)[t-5]", "where(t < N - 5, x[t+5] * dh_total[t+5], 0)"),
        ("x[t] * h.zero[t+2] + x[t]", "where(t >= 2, x[t-2] * dh_total[t-2], 0)"),
    ],
)
def test_lags_that_may_be_longer_than_the_recurrence(value: str, total: str) -> None:
    """The last N - 2 elements are no region where N may be 1."""
    op = dt.op(f"f(x: f64[N]) -> h:\n    h[t] = {value}\n")
    assert f"dh_total[t] = dh[t] + {total}\n" in op.gradient("x").text
    for n in (1, 2, 3, 7):
        dt.check_grads(op, [np.linspace(0.3, 0.9, n)], order=2)


LAGS = {
    "h.zero[t-1] * x[t] + cos(x[t])": "dh_total[N-1] = dh[N-1] where N > 0",
    "h.zero[t+1] * x[t] + x[t]": "dh_total[0] = dh[0] where N > 0",
    "h.zero[t-2] * x[t] + cos(x[t])": "",
    "h.zero[t+2] * x[t] + x[t]": "",
    "h.fill(2.0)[t-3] * x[t]": "",
    "where(t >= 2, h[t-2] * x[t], x[t]**2)": "",
    "where(t < N - 2, h[t+2] * x[t], sin(x[t]))": "",
    "h.zero[t-2] * h.zero[t-1] * x[t] + x[t]": "",
}
"""Right sides of recurrences over N steps, and where their cotangents start, if apart."""


@pytest.mark.parametrize("value", LAGS)
def test_any_lag_is_served_at_any_length(value: str) -> None:
    op = parse(f"f(x: f64[N]) -> h:\n h[t] = {value} where t in 0:N")
    back = adjoint(op, "x")
    assert LAGS[value] in ["", *(line.strip() for line in back.text.splitlines())]
    assert parse(back.text) == back
    for length in (1, 2, 3, 7):
        x = np.random.default_rng(length).standard_normal(length)
        dt.check_grads(op, (x,), order=2, interpreted=True)
        seed = np.cos(np.arange(length))
        want = run(back, {"x": x, "dh": seed})["dx"]
        np.testing.assert_allclose(dt.vjp(op, x)[1](seed)[0], want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("value", LAGS)
def test_recurrences_of_no_step_have_gradients(value: str) -> None:
    op, empty = parse(f"f(x: f64[N]) -> h:\n h[t] = {value} where t in 0:N"), np.zeros(0)
    y, pull = dt.vjp(op, empty)
    assert y.shape == pull(empty)[0].shape == (0,)
    back = adjoint(op, "x")
    assert run(back, {"x": empty, "dh": empty})["dx"].shape == (0,)
    assert adjoint(back, "x")(empty, empty, empty).shape == (0,)


def test_second_derivatives_read_no_last_step_where_there_is_none() -> None:
    op = parse("f(x: [B, T]) -> y:\n a[i,t] = sin(a.zero[i,t-1]) + x[i,t]\n y[] = sum(a[i,t]**2)")
    twice = op.gradient("x").gradient("dy")
    assert twice.text.endswith(
        "ddy[] = sum(2 * a[i,T-1] * ddx_total[i,T-1], where=T > 0) + "
        "sum(2 * a[i,t] * ddx_total[i,t]) where t in 0:T-1"
    )
    assert twice(np.ones((3, 0)), np.ones((3, 0))) == 0


@pytest.mark.parametrize("keep", [(), {"g": 2, "h": 2}])
def test_forward_over_reverse_reads_no_first_step_where_there_is_none(keep: Any) -> None:
    """The sums of an equation that holds where T > 0 are differentiated there only."""
    op = parse(
        "f(x: [T, D], w: [D]) -> y:\n g[t] = sum(w[i] * x[t,i]) + h.zero[t-1]\n"
        " h[t] = tanh(g[t])\n y[] = sum(h[t]**2)"
    )
    back = op.gradient(("x", "w"), keep=keep)
    for steps in range(4):
        x, w, one = np.full((steps, 2), 0.3), np.ones(2), np.ones(())
        args = x, w, *(op.keeping(keep)(x, w)[1:] if keep else ()), one
        dt.check_grads(op, (x, w), order=2, interpreted=True)
        tangents = dt.jvp(back, args, args)[1]
        assert [t.shape for t in tangents] == [x.shape, w.shape]


def test_empty_recurrences_beside_what_is_not_empty() -> None:
    op = parse("f(x: f64[N,M], w: f64[M]) -> h:\n h[t,m] = w[m] * h.zero[t-2,m] + x[t,m]")
    for shape in ((0, 3), (3, 0), (1, 3)):
        x, w = np.ones(shape), np.ones(shape[1])
        dx, dw = dt.vjp(op, x, w)[1](np.ones(shape))
        np.testing.assert_array_equal(dx, np.ones(shape))
        np.testing.assert_array_equal(dw, np.zeros(shape[1]))


def test_a_recurrence_whose_first_element_is_written_out_has_one() -> None:
    """It is refused at a length of 0 itself, so its gradient need not ask for one."""
    op = parse(CASES["cumsum"][0])
    assert "dx[N-1] = dy[N-1]\n" in adjoint(op, "x").text
    with pytest.raises(dt.ShapeError) as caught:
        op(np.zeros(0))
    assert str(caught.value).startswith("at N=0, y[0] lies outside y, whose dim 0 has extent 0")


@pytest.mark.parametrize("keep", [None, (), {"a": 3}])
def test_inputs_keep_extents_that_only_a_range_says(keep: Any) -> None:
    """Nothing in the gradient reads x as the recurrence does, by which it has N + 1 elements."""
    op = parse("f(x: f64, z: f64[N]) -> a:\n a[0] = x[0]\n a[i] = a[i-1] * x[i] where i in 1:N+1")
    declared = parse(op.text.replace("\n", "\n    x: [N+1]\n", 1))
    arrays = np.array([0.5, 2, -3, 4, 1.5]), np.zeros(4)
    da = np.array([1.0, -2, 0.5, 3, 0.25])
    got, want = (dt.vjp(f, *arrays, keep=keep)[1](da) for f in (op, declared))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
    x, a = arrays[0], op(*arrays)
    np.testing.assert_allclose(got[0], [(da[i:] * a[i:]).sum() / x[i] for i in range(5)])
