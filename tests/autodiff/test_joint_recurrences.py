"""Joint reductions whose results are part of a recurrence: values, both modes, second order."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.reverse import adjoint

BEST = """
 reducer best(m, i; n, j) = where(m >= n, m, n), where(m >= n, i, j) from -inf, 0 ordered"""
SOFT = """
 reducer soft(m, s; n, t) = max(m, n), s*exp(m-max(m,n)) + t*exp(n-max(m,n)) from -1e30, 0.0"""
MEAN = (
    SOFT.replace("soft(m, s; n, t)", "mean(m, s, o; n, t, p)").partition(" from")[0]
    + ", o*exp(m-max(m,n)) + p*exp(n-max(m,n)) from -1e30, 0.0, 0.0"
)
TURN = """
 reducer turn(a, b; c, d) = a*c - b*d, a*d + b*c from 1.0, 0.0"""

rng = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


CASES: dict[str, tuple[str, list[Any]]] = {
    "Viterbi": (
        "f(x: [S], w: [T, S, S]) -> v, at:" + BEST + """
 v[0,s] = x[s]
 at[0,s] = 0
 v[t,s], at[t,s] = best(v[t-1,r] + w[t,r,s], r) where t in 1:T""",
        [normal(3), normal(4, 3, 3)],
    ),
    "places that are shifted": (
        "f(x: [S, S], w: [T, S, S]) -> v, at:" + BEST + """
 v[0,s], at[0,s] = best(x[r,s], r)
 v[t+1,s], at[t+1,s] = best(v[t,r] * w[t,r,s], r)""",
        [normal(3, 3), normal(3, 3, 3)],
    ),
    "downwards": (
        "f(x: [T, S], w: [S, S]) -> v, at:" + BEST + """
 v[t,s], at[t,s] = best(v[t+1,r] * w[r,s] + x[t,r], r) where t in 0:T-1
 v[T-1,s] = x[T-1,s]
 at[T-1,s] = 5""",
        [normal(4, 3), normal(3, 3)],
    ),
    "a chain of matrices": (
        "f(x: [N], w: [N, N, N]) -> c, cut:" + BEST + """
 c[i,i] = x[i]
 cut[i,i] = 0
 c[i,j] = 0 where j < i, i in 0:N, j in 0:N
 cut[i,j] = 0 where j < i, i in 0:N, j in 0:N
 c[i,j], cut[i,j] = best(c[i,k] + c[k+1,j] + w[i,k,j], k) where i in 0:N, j in i+1:N, k in i:j""",
        [normal(4), normal(4, 4, 4)],
    ),
    "skewed": (
        "f(x: [N, N], w: [N, N, 2]) -> v, at:" + BEST + """
 v[0,j] = x[0,j]
 v[i,0] = x[i,0] where i in 1:N
 v[i,N-1] = x[i,N-1] where i in 1:N
 at[0,j] = 0 where j in 0:N
 at[i,0] = 0 where i in 1:N
 at[i,N-1] = 0 where i in 1:N
 v[i,j], at[i,j] = best(v[i-k,j-1+2*k] + w[i,j,k], k) where i in 1:N, j in 1:N-1""",
        [normal(5, 5), normal(5, 5, 2)],
    ),
    "log-sum-exp": (
        "f(x: [S], w: [T, S, S]) -> v:" + SOFT + """
 m[0,s] = x[s]
 z[0,s] = 1.0
 m[t,s], z[t,s] = soft(m[t-1,r] + log(z[t-1,r]) + w[t,r,s], 1.0) where t in 1:T
 v[s] = m[T-1,s] + log(z[T-1,s])""",
        [normal(3), normal(4, 3, 3)],
    ),
    "a component with an index of its own": (
        "f(h: [T, D], w: [D, D]) -> q:" + MEAN + """
 q[0,d] = h[0,d]
 m[0] = 0.0
 z[0] = 1.0
 o[0,d] = 0.0
 m[t], z[t], o[t,d] = mean(sum(q[t-1,e] * h[s,e]), 1.0, h[s,d], over=s) where t in 1:T
 q[t,d] = tanh(sum(w[d,e] * o[t,e]) / z[t]) where t in 1:T""",
        [normal(4, 3), normal(3, 3)],
    ),
    "values that are kept aside": (
        "f(x: [N], y: [N], u: [N, N], v: [N, N]) -> a, b:" + TURN + """
 a[0,i] = x[i]
 b[0,i] = y[i]
 a[t,i], b[t,i] = turn(a[t-1,k]*u[t,k] + i/8, b[t-1,k]*v[t,k]) where t in 1:N""",
        [normal(3), normal(3), normal(3, 3), normal(3, 3)],
    ),
    "two that need each other": (
        "f(x: [S], w: [T, S, S]) -> v, p, u, q:" + BEST + """
 v[0,s] = x[s]
 p[0,s] = 0
 u[0,s] = x[s]
 q[0,s] = 0
 v[t,s], p[t,s] = best(u[t-1,r] + w[t,r,s], r) where t in 1:T
 u[t,s], q[t,s] = best(v[t,r] * w[t,s,r], r) where t in 1:T""",
        [normal(3), normal(3, 3, 3)],
    ),
    "over a part of the past": (
        "f(x: [N, N]) -> v, at:" + BEST + """
 v[0] = x[0,0]
 at[0] = 0
 v[i], at[i] = best(v[k] + x[i,k], k, over=(k in 0:i,)) where i in 1:N""",
        [normal(5, 5)],
    ),
    "under a condition": (
        "f(x: [S], w: [T, S, S]) -> v, at:" + BEST + """
 v[0,s] = x[s]
 at[0,s] = 0
 v[t,s], at[t,s] = best(v[t-1,r] + w[t,r,s], r, where=(r <= s)) where t in 1:T""",
        [normal(3), normal(3, 3, 3)],
    ),
    "and a trace back": (
        "f(x: [S], w: [T, S, S]) -> v, at, path:" + BEST + """
 v[0,s] = x[s]
 at[0,s] = 0
 v[t,s], at[t,s] = best(v[t-1,r] + w[t,r,s], r) where t in 1:T
 path[T-1] = argmax(v[T-1,s])
 path[t] = at[t+1,path[t+1]] where t in 0:T-1""",
        [normal(3), normal(4, 3, 3)],
    ),
    "through another tensor": (
        "f(x: [N, M]) -> y:" + SOFT + """
 m[i], z[i] = soft(x[i,k] * y.fill(0.5)[i-1], 1.0 + y.zero[i-1]**2) where i in 0:N
 y[i] = m[i] + log(z[i]) where i in 0:N""",
        [normal(4, 3)],
    ),
    "no recurrence, in parts": (
        "f(x: [N, M]) -> m, z:" + SOFT + """
 m[0] = x[0,0]
 z[0] = 2*x[0,0]
 m[i], z[i] = soft(x[i,j], x[i,j]**2) where i in 1:N""",
        [normal(4, 3)],
    ),
    "several indices": (
        "f(x: [S], w: [T, S, S, S]) -> v, at:" + BEST + """
 v[0,s] = x[s]
 at[0,s] = 0
 v[t,s], at[t,s] = best(v[t-1,r] * v[t-1,q] + w[t,r,q,s], 8*r + q) where t in 1:T""",
        [normal(3), normal(3, 3, 3, 3)],
    ),
}  # fmt: skip


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> tuple[Op, list[Any]]:
    text, arrays = CASES[request.param]
    return parse(text), arrays


def several(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def test_compiled_code_gives_what_the_interpreter_does(case: tuple[Op, list[Any]]) -> None:
    op, arrays = case
    for one, two in zip(several(op(*arrays)), several(interpret(op, *arrays)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-13, atol=1e-13)


def test_text_parses_back(case: tuple[Op, list[Any]]) -> None:
    op, _ = case
    assert parse(op.text) == op
    back = adjoint(op, tuple(p.name for p in op.params))
    assert parse(back.text) == back


def test_both_modes_first_and_second_order(case: tuple[Op, list[Any]]) -> None:
    op, arrays = case
    dt.check_grads(op, arrays, order=2, interpreted=True)


def test_compiled_derivatives(case: tuple[Op, list[Any]]) -> None:
    op, arrays = case
    dt.check_grads(op, arrays, order=1)


TWO = "reducer p(a, c; b, e) = a * b, c + e from 1.0, 0.0\n"
ERRORS = {
    "u[i], v[i+1] = p(x[i,j], 1.0)": "v[0] at I=1 is never written",
    "u[i], v[i] = p(u[j] * x[i,j], 1.0)": "u[0] needs itself at I=1, so nothing can compute it",
    "u[0] = 0.0\nu[i], v[i] = p(u[i-1] * x[i,j], 1.0) where i in 1:N": (
        "output index i of v starts at 1, not at 0; shift it, or define the elements before by "
        "another equation"
    ),
    "u[0] = 0.0\nv[0] = 0.0\nu[i], v[i] = p(u[b[i]] * x[i,j], 1.0) where i in 1:N": (
        "u[b[i]] reads its own tensor at a place that depends on data, so no order of computation "
        "is known"
    ),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text: str) -> None:
    with pytest.raises(dt.OpError) as caught:
        dt.op(TWO + text)
    last = text.rpartition("\n")[2]
    said, _, place = str(caught.value).rpartition(" (")
    assert said == f"{ERRORS[text]}\n    in {last}"
    assert place.startswith("test_joint_recurrences.py:")
