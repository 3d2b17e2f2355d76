"""What a gradient is given of the forward computation, and what it computes again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.keep import keeping, kept, worth_keeping
from diptych.autodiff.reverse import adjoint
from exact import cotangent_names, run

DENSE = "dense(x: [N, K], w: [K, O], b: [O]) -> y:\n y[n,o] = max(sum(x[n,k] * w[k,o]) + b[o], 0)"
NORM = """norm(x: [I, J], g: [J]) -> y:
 m[i] = sum(x[i,j]) / J
 v[i] = sum((x[i,j] - m[i])**2) / J
 y[i,j] = (x[i,j] - m[i]) * rsqrt(v[i] + 1e-5) * g[j]"""
RNN = """rnn(x: [T, D], U: [D, D], h0: [D]) -> y:
 h[0,d] = h0[d]
 h[t,d] = tanh(x[t,d] + sum(U[d,e] * h[t-1,e])) where t in 1:T
 y[d] = sum(h[t,d]**2)"""
HIDDEN = """mlp(x: [N, K], w: [K, H], u: [H, O]) -> y:
 z[n,h] = tanh(sum(x[n,k] * w[k,h]))
 y[n,o] = exp(sum(z[n,h] * u[h,o]))"""
CASES: dict[str, tuple[str, Sequence[tuple[int, ...]], tuple[str, ...]]] = {
    "dense": (DENSE, ((3, 4), (4, 5), (5,)), ("y_sum",)),
    "norm": (NORM, ((3, 4), (4,)), ("m", "v")),
    "recurrence": (RNN, ((4, 3), (3, 3), (3,)), ("h",)),
    "layers": (HIDDEN, ((3, 4), (4, 2), (2, 3)), ("z",)),
    "nothing": ("y[i] = exp(x[i] * z[i])", ((3,), (3,)), ()),
}


def of(name: str) -> tuple[Op, list[Any], tuple[str, ...]]:
    text, shapes, _ = CASES[name]
    rng = np.random.default_rng(0)
    op = parse(text)
    return op, [rng.standard_normal(s) for s in shapes], tuple(p.name for p in op.params)


@pytest.mark.parametrize("name", sorted(CASES))
def test_reductions_and_recurrences_are_kept(name: str) -> None:
    op, _, wrt = of(name)
    assert worth_keeping(op, wrt) == CASES[name][2]


@pytest.mark.parametrize("name", sorted(CASES))
def test_kept_or_computed_again_the_gradient_is_the_same(name: str) -> None:
    op, arrays, wrt = of(name)
    values = dict(zip(wrt, arrays, strict=True))
    names = CASES[name][2]
    forth = keeping(op, kept(names))
    assert forth.returns == (*op.returns, *names)
    results = run(forth, values)
    plain, given = adjoint(op, wrt), adjoint(op, wrt, forth.returns)
    assert not {eq.tensor for eq in given.equations} & set(forth.returns)
    seeds = {s: np.cos(results[r])
             for s, r in zip(cotangent_names(op, plain), op.returns, strict=True)}  # fmt: skip
    one, two = run(plain, values | seeds), run(given, values | seeds | results)
    for a, b in zip(one.values(), two.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("keep", [None, (), "all"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_vjp_keeps_what_it_is_told(name: str, keep: Any) -> None:
    op, arrays, wrt = of(name)
    y, pull = dt.vjp(op, *arrays, keep=CASES[name][2] if keep == "all" else keep)
    values = dict(zip(wrt, arrays, strict=True))
    np.testing.assert_allclose(y, run(op, values)["y"], rtol=1e-12)
    back = adjoint(op, wrt)
    wanted = run(back, values | {"dy": np.cos(y)})
    for got, want in zip(pull(np.cos(y)), wanted.values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_a_kept_gradient_is_differentiated_like_any_other() -> None:
    op, arrays, wrt = of("recurrence")
    results = run(keeping(op, kept("h")), dict(zip(wrt, arrays, strict=True)))
    back = op.gradient("x", keep=("h",))
    values = {"U": arrays[1], "h": results["h"], "dy": np.ones(3)}
    dt.check_grads(back, [values[p.name] for p in back.params], interpreted=True)


def test_it_takes_of_what_is_kept_what_it_reads() -> None:
    op = parse(NORM)
    assert [p.name for p in op.gradient("x", keep=("m", "v", "y")).params] == [
        "x", "g", "m", "v", "dy"
    ]  # fmt: skip
    assert [p.name for p in op.gradient("g", keep=["v"]).params] == ["x", "v", "dy"]
    assert op.gradient("x") == adjoint(op, "x")


def test_keeping_prints_as_a_person_would_write_it() -> None:
    assert parse(DENSE).keeping("y_sum").text == (
        "dense(x: [N, K], w: [K, O], b: [O]) -> y, y_sum:\n"
        "    y_sum[n,o] = sum(x[n,k] * w[k,o])\n"
        "    y[n,o] = max(y_sum[n,o] + b[o], 0)\n"
    ).rstrip("\n")
    assert parse(NORM).keeping() == parse(NORM)


def test_steps_to_keep_come_in_a_dict_too() -> None:
    op = dt.op("h[0] = x[0]\nh[t] = sin(h[t-1]) * x[t] where t in 1:T", name="f")
    assert op.keeping({"h": 3}) == op.keeping(h=3)
    assert op.keeping(("h",)) == op.keeping("h")


def test_what_is_scheduled_runs_as_it_is() -> None:
    op, arrays, _ = of("dense")
    schedule = op.schedule().parallel("n")
    with dt.schedules(schedule):
        y, pull = dt.vjp(op, *arrays)
        scheduled = pull(np.cos(y))
    y, pull = dt.vjp(op, *arrays)
    for one, two in zip(scheduled, pull(np.cos(y)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
