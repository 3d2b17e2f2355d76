"""Rules that users give for the derivatives of their own reducers."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.check import check
from diptych.autodiff.forward import tangent
from exact import run

RNG = np.random.default_rng(0)
RULE = "dx[i] = exp(x[i] - y[]) * dy[]"
TRIPLED = "dx[i] = 3 * exp(x[i] - y[]) * dy[]"  # of no function, so that it is seen
HELD = "dx[i] = exp(x[i] - y[]) * dy[] / sum(exp(x[k] - y[]))"
FORTH = "dy[] = sum(exp(x[i] - y[]) * dx[i])"
LIFT = "lift(S: [N], V: [N, D]) -> m, o:\n  m = max(S[j])\n  o[d] = sum(exp(S[j] - m) * V[j,d])"
WEIGHTED = (
    "dV[j,d] = exp(S[j] - m[]) * do[d]\n"
    "dS[j] = sum(exp(S[j] - m[]) * V[j,d] * do[d]) "
    "+ where(S[j] == m[], dm[] - sum(o[d] * do[d]), 0)"
)
i, j, k, d, e, t = dt.indices("i j k d e t")


def logsumexp() -> Any:
    def combine(a: Any, b: Any) -> Any:
        top = dt.max(a, b)
        return top + dt.log(dt.exp(a - top) + dt.exp(b - top))

    return dt.reducer(combine, -1e30, name="lse")


def weighted() -> Any:
    def combine(a: Any, b: Any) -> Any:
        m = dt.max(a[0], b[0])
        return m, a[1] * dt.exp(a[0] - m) + b[1] * dt.exp(b[0] - m)

    return dt.reducer(combine, (-1e30, 0.0), dt.op(LIFT), name="weighted")


def plain(lse: Any) -> Any:
    @dt.op
    def f(x, w):  # type: ignore[no-untyped-def]
        y = dt.tensor("y")
        y[i] = lse(x[i, j] * w[j])
        return y

    return f


def conditions(lse: Any) -> Any:
    @dt.op
    def f(x):  # type: ignore[no-untyped-def]
        y = dt.tensor("y")
        y[i] = lse(x[i, j, k], over=(j, k), where=j <= i) * 2
        return y

    return f


def recurrence(lse: Any) -> Any:
    @dt.op
    def f(x, U):  # type: ignore[no-untyped-def]
        h = dt.tensor("h")
        h[0, d] = x[0, d]
        h[t + 1, d] = dt.tanh(x[t + 1, d] + lse(U[d, e] * h[t, e]))
        return h

    return f


def attention(weighted: Any) -> Any:
    @dt.op
    def f(Q, K, V):  # type: ignore[no-untyped-def]
        m, o, y = dt.tensor("m"), dt.tensor("o"), dt.tensor("y")
        m[i], o[i, d] = weighted(dt.sum(Q[i, k] * K[j, k]), V[j, d])
        y[i, d] = o[i, d] * 2 + m[i]
        return y

    return f


def chain(weighted: Any) -> Any:
    @dt.op
    def f(x, w, V):  # type: ignore[no-untyped-def]
        m, o = dt.tensor("m"), dt.tensor("o")
        m[0, i] = x[i]
        o[0, i, d] = V[i, d]
        m[t + 1, i], o[t + 1, i, d] = weighted(m[t, k] + w[t, k, i], o[t, k, d])
        return m, o

    return f


SHAPES = {
    plain: ((3, 4), (4,)),
    conditions: ((3, 4, 2),),
    recurrence: ((4, 3), (3, 3)),
    attention: ((3, 2), (4, 2), (4, 5)),
    chain: ((3,), (2, 3, 3), (3, 2)),
}  # fmt: skip
CASES = [
    (lambda: logsumexp().defvjp(RULE), plain),
    (lambda: logsumexp().defvjp(HELD), plain),
    (lambda: logsumexp().defjvp(FORTH), plain),
    (lambda: logsumexp().defvjp(RULE).defjvp(FORTH), plain),
    (lambda: logsumexp().defvjp(RULE), conditions),
    (lambda: logsumexp().defvjp(HELD), conditions),
    (lambda: logsumexp().defvjp(RULE), recurrence),
    (lambda: logsumexp().defvjp(HELD), recurrence),
    (lambda: weighted().defvjp(WEIGHTED), attention),
    (lambda: weighted().defvjp(WEIGHTED), chain),
]


@pytest.mark.parametrize(("reducer", "make"), CASES)
def test_a_right_rule_is_as_good_as_none_in_both_modes_and_orders(reducer: Any, make: Any) -> None:
    dt.check_grads(make(reducer()), tuple(map(RNG.standard_normal, SHAPES[make])), order=2)


def test_the_gradient_is_the_rule() -> None:
    assert plain(logsumexp().defvjp(TRIPLED)).gradient("w").text.splitlines()[2:] == [
        "    y[i] = lse(x[i,j] * w[j])",
        "    dw[j] = 3 * sum(dy[i] * exp(x[i,j] * w[j] - y[i]) * x[i,j])",
    ]


def test_every_door_goes_through_the_rule() -> None:
    op, right = plain(logsumexp().defvjp(TRIPLED)), plain(logsumexp())
    x, w, g = RNG.standard_normal((3, 4)), RNG.standard_normal(4), RNG.standard_normal(3)
    wanted = 3 * dt.vjp(right, x, w)[1](g)[0]
    np.testing.assert_allclose(dt.vjp(op, x, w)[1](g)[0], wanted, rtol=1e-10)
    np.testing.assert_allclose(dt.vjp(op, x, w, keep=())[1](g)[0], wanted, rtol=1e-10)

    @dt.program
    def step(x: Any, w: Any, g: Any) -> Any:  # one of each, which text cannot tell apart
        return dt.vjp(op, x, w)[1](g)[0] - dt.vjp(right, x, w)[1](g)[0]

    np.testing.assert_allclose(step(x, w, g), wanted * 2 / 3, rtol=1e-10)
    forth = tangent(op, "x")
    moved = run(forth, {"x": x, "w": w, "dx": x, "y": right(x, w)})["dy"]
    np.testing.assert_allclose(moved @ g, (wanted * x).sum(), rtol=1e-10)


def test_forward_mode_goes_through_its_own_rule() -> None:
    op = plain(logsumexp().defvjp(TRIPLED).defjvp(FORTH))
    x, w = RNG.standard_normal((3, 4)), RNG.standard_normal(4)
    moves = (RNG.standard_normal((3, 4)), RNG.standard_normal(4))
    found = dt.jvp(op, (x, w), moves)[1]
    np.testing.assert_allclose(found, dt.jvp(plain(logsumexp()), (x, w), moves)[1], rtol=1e-10)


def test_results_that_are_saved_in_part_are_computed_again() -> None:
    op = attention(weighted().defvjp(WEIGHTED))
    arrays = tuple(map(RNG.standard_normal, SHAPES[attention]))
    g = RNG.standard_normal((3, 5))
    for keep in ((), ("m",), ("o",), ("m", "o"), ("m_sum",), ("m_sum", "m")):
        found = dt.vjp(op, *arrays, keep=keep)[1](g)
        for have, want in zip(found, dt.vjp(attention(weighted()), *arrays)[1](g), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-12)


def test_an_index_that_stands_alone_runs_over_the_whole() -> None:
    plus = dt.reducer(lambda a, b: a + b, 0.0, name="plus").defvjp("dx[i] = dy[]")
    dt.check_grads(plain(plus), (RNG.standard_normal((3, 4)), RNG.standard_normal(4)), order=2)
    total = dt.op("s = sum(x[i])").defvjp("dx[i] = 3 * ds[]")
    assert total.gradient("x").text.splitlines() == [
        "s_dx(x: [I], ds: []) -> dx:",
        "    dx[i] = 3 * ds[] where i in 0:I",
    ]


def test_a_rule_may_declare_what_it_does_not_read() -> None:
    lse = logsumexp()
    lse.defvjp("f(x: [N], y, dy) -> dx:\n  dx[i] = exp(x[i]) * dy[] where i in 0:N")
    found = dt.op("y[i] = lse(x[i,j])", reducers={"lse": lse}).gradient("x")
    assert found.text == "y_dx(x: [I, J], dy: [I]) -> dx:\n    dx[i,j] = exp(x[i,j]) * dy[i]"


def test_other_narrow_floats_and_sizes() -> None:
    op = plain(logsumexp().defvjp(RULE))
    x, w = RNG.standard_normal((3, 4)).astype(np.float16), np.ones(4, np.float16)
    (by_x, _) = dt.vjp(op, x, w)[1](np.ones(3, np.float16))
    assert by_x.dtype == np.float16
    np.testing.assert_allclose(by_x.sum(1), 1, atol=5e-3)
    assert check(op.gradient("x")).shapes["dx"] == check(op).shapes["x"]


ERRORS: list[tuple[Any, str]] = [
    (lambda: logsumexp().defvjp("dz[i] = exp(x[i]) * dy[]"),
     "the vjp rule of lse: it returns dz, which is not the cotangent of a parameter; expected dx"),
    (lambda: logsumexp().defvjp("dx[i] = x[i] * dz[]"),
     "the vjp rule of lse: it reads dz; a rule reads parameters and results of lse and cotangents, "
     "that is some of x, y, dy"),
    (lambda: logsumexp().defvjp("dx[i,j] = x[i] * dy[] * x[j]"),
     "rule lse_vjp: dx has shape [I, I], expected [I]"),
    (lambda: logsumexp().defvjp("dx[i] = x[i] * dy[] ** 2"),
     "the vjp rule of lse: dx has a term of degree 2 in dy, so it is no derivative; expected "
     "products of one of these and what does not read them"),
    (lambda: logsumexp().defvjp("dx[i] = x[i] * i * dy[]"),
     "the vjp rule of lse: it has to be for any number of instances, so positions are bare "
     "indices, as in x[i]; expected equations without shifts, bounds or reducers of the user's "
     "over them"),
    (lambda: weighted().defjvp("dm[] = max(dS[j])"),
     "the jvp rule of weighted: it does not return do; it returns the tangents of all results that "
     "are floats, dm, do"),
    (lambda: attention(weighted().defvjp("dV[j,d] = exp(S[j] - m[]) * do[d]")).gradient("Q"),
     "gradient of f: missing rule: the vjp rule of weighted returns dV and no dS; give the rule "
     "dS, or stop the gradient of what S is here"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "text"), ERRORS)
def test_errors(make: Any, text: str) -> None:
    with pytest.raises(dt.GradientError) as error:
        make()
    assert str(error.value).partition("\n")[0] == text


def test_a_rule_that_comes_too_late() -> None:
    lse = logsumexp()
    plain(lse)
    with pytest.raises(dt.GradientError) as error:
        lse.defjvp(FORTH)
    assert str(error.value) == (
        "defjvp of lse: an operator uses lse already, and its derivatives would not know of the "
        "rule; give rules where lse is defined"
    )


def test_components_with_other_indices_of_their_own() -> None:
    def combine(a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]

    both = dt.reducer(combine, (0.0, 0.0)).defvjp(
        "dx0[i] = x0[i]**0 * dy0[]\ndx1[i] = x1[i]**0 * dy1[]"
    )

    @dt.op
    def f(x, v):  # type: ignore[no-untyped-def]
        s, o = dt.tensor("s"), dt.tensor("o")
        s[i], o[i, d] = both(x[i, j], v[j, d])
        return s, o

    with pytest.raises(dt.GradientError) as error:
        f.gradient("x")
    assert str(error.value) == (
        "gradient of f: the rule of combine is for components with other indices of their own than "
        "those here, s[], o[d]; give combine a lift, whose parameters say which they have"
    )
