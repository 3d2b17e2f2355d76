"""Rules that users give for the derivatives of an operator: wherever it is differentiated."""

from __future__ import annotations

import pickle
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.forward import tangent
from diptych.autodiff.results import returning
from diptych.autodiff.reverse import adjoint
from exact import run

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((3, 5)), RNG.standard_normal((5, 4))
SOFTMAX = """
softmax(x: [I, J]) -> y:
    m[i]   = max(x[i,j])
    e[i,j] = exp(x[i,j] - m[i])
    y[i,j] = e[i,j] / sum(e[i,l])
"""
SOFTMAX_RULE = "dx[i,j] = y[i,j] * (dy[i,j] - sum(y[i,k] * dy[i,k]))"
SQUARE = dt.op("s[] = sum(y[i] * y[i])", name="square")


def softmax(tripled: bool = False) -> dt.Op:
    """A fresh operator, with a right rule, or one that shows: three times the gradient."""
    rule = SOFTMAX_RULE.replace("= y", "= 3 * y") if tripled else SOFTMAX_RULE
    return dt.op(SOFTMAX).defvjp(rule)


def like(array: Any) -> Any:
    return RNG.standard_normal(np.shape(array))


def identity(op: dt.Op, values: dict[str, Any], wrt: tuple[str, ...]) -> None:
    """<J v, g> = <v, J' g>, where a rule is no derivative, so that differences say nothing."""
    back, forth = adjoint(op, wrt), tangent(op, wrt)
    names = [p.name for p in back.params[-len(op.returns) :]]
    moves = [p.name for p in forth.params[-len(wrt) :]]
    given = dict(values) | run(op, values)
    seeds = {
        n: RNG.standard_normal(np.shape(given[r])) for n, r in zip(names, op.returns, strict=True)
    }
    move = {n: RNG.standard_normal(np.shape(values[p])) for n, p in zip(moves, wrt, strict=True)}
    pulled, pushed = run(back, given | seeds), run(forth, given | move)
    left = sum(np.sum(a * b) for a, b in zip(pushed.values(), seeds.values(), strict=True))
    right = sum(np.sum(a * b) for a, b in zip(pulled.values(), move.values(), strict=True))
    np.testing.assert_allclose(left, right, rtol=1e-10)


def test_the_gradient_is_the_rule() -> None:
    assert (
        softmax().gradient("x").text.strip()
        == """
softmax_dx(x: [I, J], dy: [I, J]) -> dx:
    m[i] = max(x[i,j])
    e[i,j] = exp(x[i,j] - m[i])
    y[i,j] = e[i,j] / sum(e[i,l])
    dx[i,j] = y[i,j] * (dy[i,j] - sum(y[i,k] * dy[i,k]))
""".strip()
    )
    assert (
        adjoint(softmax(), "x", saved=("y",)).text.strip()
        == """
softmax_dx(y: [I, J], dy: [I, J]) -> dx:
    dx[i,j] = y[i,j] * (dy[i,j] - sum(y[i,k] * dy[i,k]))
""".strip()
    )


def test_a_right_rule_is_as_good_as_none_in_both_modes_and_orders() -> None:
    dt.check_grads(softmax(), (X,), order=3, interpreted=True)
    plain = dt.op(SOFTMAX)
    np.testing.assert_allclose(dt.jvp(softmax(), (X,), (X,))[1], dt.jvp(plain, (X,), (X,))[1])
    twice, wanted = (adjoint(adjoint(f, "x"), "x") for f in (softmax(), plain))
    g = RNG.standard_normal((2, 3, 5))
    np.testing.assert_allclose(twice(X, *g), wanted(X, *g), rtol=1e-10)


def test_every_way_to_a_gradient_takes_the_rule() -> None:
    f, plain, g = softmax(tripled=True), dt.op(SOFTMAX), RNG.standard_normal((3, 5))
    wanted = 3 * dt.vjp(plain, X)[1](g)[0]
    np.testing.assert_allclose(f.gradient("x")(X, g), wanted)
    np.testing.assert_allclose(dt.interpret(f.gradient("x"), X, g), wanted)
    np.testing.assert_allclose(dt.vjp(f, X)[1](g)[0], wanted)
    np.testing.assert_allclose(dt.vjp(lambda x: f(x), X)[1](g)[0], wanted)
    total = dt.op("s[] = sum(y[i,j] * g[i,j])", name="total")
    np.testing.assert_allclose(dt.grad(lambda x: total(f(x), g))(X), wanted)
    np.testing.assert_allclose(dt.jvp(f, (X,), (X,))[1], 3 * dt.jvp(plain, (X,), (X,))[1])
    moved = dt.jvp(lambda x: f(x), (X,), (X,))[1]
    np.testing.assert_allclose(moved, 3 * dt.jvp(plain, (X,), (X,))[1])
    np.testing.assert_allclose(f.dynamic(I=8).gradient("x")(X, g), wanted)
    np.testing.assert_allclose(f.at(J=5).gradient("x")(X, g), wanted)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(f)).gradient("x")(X, g), wanted)


def test_derivatives_of_higher_order_take_the_rule_too() -> None:
    """y = f(x), where the rule says 3 f', in a gradient that reads y: once from the rule, once
    from y, each time it is 3."""
    f = dt.op("f(x: [N]) -> y:\n  y[i] = x[i] ** 2").defvjp("dx[i] = 3 * x[i] * dy[i]")
    by_y = dt.op("g(x: [N]) -> y:\n  y[i] = x[i] ** 2").defvjp("dx[i] = y[i] * dy[i]")
    x, one = np.array([0.5, 2.0]), np.ones(2)
    np.testing.assert_allclose(f.gradient("x").gradient("x")(one, one), 3 * one)
    second = by_y.gradient("x").gradient("x")  # dx = y*dy, whose derivative is y' = y by the rule
    np.testing.assert_allclose(second(x, one, one), x**2)
    third = second.gradient("x")
    np.testing.assert_allclose(third(x, one, one, one), x**2)
    grad = dt.grad(lambda x: SQUARE(by_y(x)))  # 2 y y = 2 y**2, then 4 y y, 8 y y ..
    np.testing.assert_allclose(grad(x), 2 * x**4)
    inner = dt.op("t[] = sum(x[i])", name="sum_of")
    np.testing.assert_allclose(dt.grad(lambda x: inner(grad(x)))(x), 4 * x**4)
    again = dt.grad(lambda x: inner(grad(x)))
    np.testing.assert_allclose(dt.grad(lambda x: inner(again(x)))(x), 8 * x**4)
    moved = tangent(by_y.gradient("x"), "x")
    np.testing.assert_allclose(moved(x, one, one), x**2)


def test_a_rule_for_tangents_is_transposed() -> None:
    h = dt.op("h(x: [N], w: [N]) -> y:\n  y[i] = x[i] * w[i]")
    h.defjvp("dy[i] = dx[i] * w[i] + 2 * x[i] * dw[i]")
    x, w, g = RNG.standard_normal((3, 4))
    assert h.gradient("w").text.strip() == (
        "h_dw(x: [N], dy: [N]) -> dw:\n    dw[i] = 2 * x[i] * dy[i]"
    )
    dx, dw = dt.vjp(h, x, w)[1](g)
    np.testing.assert_allclose(dx, g * w)
    np.testing.assert_allclose(dw, 2 * g * x)
    np.testing.assert_allclose(dt.jvp(h, (x, w), (g, g))[1], g * w + 2 * x * g)


def test_each_mode_takes_its_own_rule() -> None:
    h = dt.op("h(x: [N]) -> y:\n  y[i] = 5 * x[i]")
    h.defvjp("dx[i] = 2 * dy[i]").defjvp("dy[i] = 3 * dx[i]")
    one = np.ones(2)
    assert dt.vjp(h, one)[1](one)[0].tolist() == [2, 2]
    assert dt.jvp(h, (one,), (one,))[1].tolist() == [3, 3]
    moved = dt.jvp(lambda x: h(x), (one,), (one,))[1]
    assert moved.tolist() == [3, 3]


def test_a_rule_as_a_function_and_as_an_operator() -> None:
    i = dt.indices("i")

    @dt.op
    def rounded(x):
        y = dt.tensor("y")
        y[i] = dt.floor(x[i] + 0.5)
        return y

    assert dt.vjp(rounded, np.ones(2))[1](np.ones(2))[0].tolist() == [0, 0]

    @rounded.defvjp
    def straight_through(dy):
        dx = dt.tensor("dx")
        dx[i] = dy[i]
        return dx

    assert straight_through is rounded and rounded.rules[0].vjp.name == "straight_through"
    assert dt.vjp(rounded, np.ones(2))[1](np.arange(2.0))[0].tolist() == [0, 1]
    rounded.defvjp(dt.op("twice(dy) -> dx:\n  dx[i] = 2 * dy[i]"))  # the last one counts
    assert dt.vjp(rounded, np.ones(2))[1](np.arange(2.0))[0].tolist() == [0, 2]


def test_a_rule_need_not_be_linear() -> None:
    """Gradients are clipped: reverse mode differentiates the clipping itself."""
    f = dt.op("f(x: [N]) -> y:\n  y[i] = x[i] * x[i]")
    f.defvjp("dx[i] = max(min(2 * x[i] * dy[i], 1), -1)")
    x = np.array([-3.0, 0.25, 3.0])
    assert dt.grad(lambda x: dt.op("s[] = sum(y[i])", name="total")(f(x)))(x).tolist() == [
        -1,
        0.5,
        1,
    ]
    np.testing.assert_allclose(f.gradient("x").gradient("x")(x, np.ones(3), np.ones(3)), [0, 2, 0])


@pytest.mark.parametrize(
    ("kind", "rule", "wrong"),
    [
        ("vjp", "dx[i] = dy[i]**2", "dx has a term of degree 2 in dy"),
        ("vjp", "t[i] = dy[i] * x[i]\ndx[i] = t[i] * dy[i]", "dx has a term of degree 2 in dy"),
        ("vjp", "dx[i] = dy[i] + 1", "dx has a term without dy"),
        ("vjp", "dx[i] = y[i]", "dx has a term without dy"),
        ("vjp", "dx[i] = where(x[i] > 0, dy[i], 1)", "dx has a term without dy"),
        ("jvp", "dy[i] = dx[i] + 1", "dy has a term without dx"),
    ],
)
def test_what_is_surely_not_linear_is_refused(kind: str, rule: str, wrong: str) -> None:
    f = dt.op("f(x: [N]) -> y:\n  y[i] = x[i] * x[i]")
    with pytest.raises(dt.GradientError, match=f"the {kind} rule of f: {wrong}, so it is no der"):
        getattr(f, f"def{kind}")(rule)
    assert not f.rules


@pytest.mark.parametrize("rule", ["dx[i] = dy[i] % 2.0", "dx[i] = dy[i] - floor(dy[i])"])
def test_what_rounds_its_cotangent_has_no_forward_mode(rule: str) -> None:
    """Its derivative is a constant, and yet it is not linear."""
    f = dt.op("f(x: [N]) -> y:\n  y[i] = x[i] * x[i]").defvjp(rule)
    with pytest.raises(dt.GradientError) as error:
        dt.jvp(f, (np.ones(2),), (np.ones(2),))
    assert str(error.value) == (
        "tangent of f: its vjp rule is not linear in dy, so that it says nothing of forward mode; "
        "give a jvp rule too"
    )
    with pytest.raises(dt.GradientError, match="the jvp rule of f: it is not linear in dx, so it"):
        f.defjvp(rule.replace("x[", "z[").replace("dy", "dx").replace("dz", "dy"))


def test_a_rule_may_round_what_is_no_cotangent() -> None:
    f = dt.op("f(x: [N]) -> y:\n  y[i] = x[i] * x[i]").defvjp("dx[i] = floor(x[i]) * dy[i]")
    assert dt.jvp(f, (np.full(2, 3.5),), (np.ones(2),))[1].tolist() == [3, 3]


def test_of_a_recurrence_the_equation_is_shown_that_is_not_linear() -> None:
    f = dt.op("f(x: [N]) -> y:\n  y[i] = x[i] * x[i]")
    with pytest.raises(dt.GradientError, match=r"degree 2 in dy(.|\n)*in dx\[i\] = dx\[i-1\]"):
        f.defvjp("dx[0] = dy[0]\ndx[i] = dx[i-1] * dy[i] where i in 1:N")


@pytest.mark.parametrize(
    "rule",
    [
        "dx[i] = 0 * x[i]",
        "dx[i] = dy[i] / sqrt(sum(dy[j]**2))",
        "dx[i] = sum(where(j == i, 2 * dy[j] * x[j], 0)) where i in 0:N, j in 0:N",
        "h[0] = dy[0]\nh[t] = 2 * h[t-1] + x[t] * dy[t] where t in 1:N\ndx[i] = h[i]",
    ],
)
def test_what_may_be_linear_is_taken(rule: str) -> None:
    f = dt.op("f(x: [N]) -> y:\n  y[i] = x[i] * x[i]")
    assert f.defvjp(rule).rules


SEVERAL = """
several(x: [N, M], at: i32[N]) -> s, p:
    s[n] = sum(x[n,m])
    p[n] = x[n,at[n]] * s[n]
"""


def several() -> dt.Op:
    return dt.op(SEVERAL).defvjp("""
        q[n]    = 2 * ds[n] + p[n] * 0
        dx[n,m] = q[n] + 2 * dp[n] * (where(m == at[n], s[n], 0) + x[n,at[n]]) where m in 0:M
    """)


@pytest.mark.parametrize("kept", [("s", "p"), ("s",), ("p",), ("p", "s")])
def test_results_that_nobody_reads_have_no_cotangent(kept: tuple[str, ...]) -> None:
    """The rule is twice the gradient, whichever results are asked for or saved."""
    x, at = RNG.standard_normal((3, 4)), np.array([1, 0, 3], np.int32)
    own, plain = returning(several(), kept), returning(dt.op(SEVERAL), kept)
    values = {"x": x, "at": at, "s": x.sum(1), "p": x.sum(1) * x[[0, 1, 2], at]}
    values |= {"ds": RNG.standard_normal(3), "dp": RNG.standard_normal(3)}

    (wanted,) = run(adjoint(plain, "x"), values).values()
    for saved in ((), kept, kept[:1]):
        back = adjoint(own, "x", saved=saved)
        np.testing.assert_allclose(run(back, values)["dx"], 2 * wanted)
        identity(back, values, tuple(p.name for p in back.params if p.name != "at"))


def test_one_result_of_several_in_a_program() -> None:
    f, x, at = several(), RNG.standard_normal((3, 4)), np.array([1, 0, 3], np.int32)
    total = dt.op("t[] = sum(y[n])", name="total")
    for pick in (0, 1):
        plain = dt.grad(lambda x, pick=pick: total(dt.op(SEVERAL)(x, at)[pick]))(x)
        found = dt.grad(lambda x, pick=pick: total(f(x, at)[pick]))(x)
        np.testing.assert_allclose(found, 2 * plain)


def test_only_what_is_asked_for_has_to_be_given() -> None:
    f = dt.op("f(x: [N], w: [N]) -> s:\n  s[] = sum(x[i] * w[i])")
    f.defvjp("dw[i] = ds[] * x[i]")
    x, w = RNG.standard_normal((2, 3))
    np.testing.assert_allclose(dt.grad(f, 1)(x, w), x)
    np.testing.assert_allclose(f.gradient("w")(x, np.float64(2)), 2 * x)
    with pytest.raises(dt.GradientError, match=r"gradient of f by x: missing rule: .* no dx"):
        dt.grad(f)(x, w)


def test_names_that_are_taken_get_a_number() -> None:
    f = dt.op("f(x: [N], dy: [N]) -> y:\n  y[i] = x[i] * dy[i]")
    f.defvjp("dx[i] = 2 * dy_1[i] * dy[i]\nddy[i] = 3 * dy_1[i] * x[i]")
    x, dy, g = RNG.standard_normal((3, 4))
    found = dt.vjp(f, x, dy)[1](g)
    np.testing.assert_allclose(found, (2 * g * dy, 3 * g * x))


def test_sizes_indices_and_names_of_a_rule_do_not_collide() -> None:
    """Sizes of the rule meet those of the operator, formulas too; a tensor is called like an
    index and a temporary like one of the operator."""
    f = dt.op("f(X: [N], W: [R], k: []) -> O:\n  t[i] = X[i] * k\n  O[i] = sum(t[i+r] * W[r])")
    f.defvjp(
        """
        t[a]  = dO[a] * k
        dW[b] = sum(t[k1] * X[k1+b]) where k1 in 0:N-R+1, b in 0:R
        dX[j] = sum(where(0 <= j - r < N - R + 1, t[j-r] * W[r], 0)) where j in 0:N, r in 0:R
        dk[]  = sum(dO[z] * X[z+r] * W[r])
    """
    )
    arrays = (RNG.standard_normal(7), RNG.standard_normal(3), np.float64(1.5))
    dt.check_grads(f, arrays, order=2)


def test_recurrences_and_reducers_of_the_user() -> None:
    scan = dt.op("""
        scan(x: [N]) -> c:
            c[0] = x[0]
            c[i] = c[i-1] + x[i] where i in 1:N
    """)
    scan.defvjp("""
        dx[N-1] = dc[N-1]
        dx[i] = dx[i+1] + dc[i] where i in 0:N-1
    """)
    dt.check_grads(scan, (RNG.standard_normal(5),), order=2)
    add = dt.op("reducer add(a; b) = a + b from 0.0\ny[i] = add(x[i,k])", name="added")
    add.defvjp("dx[i,k] = dy[i] where k in 0:K")
    x, g = RNG.standard_normal((3, 4)), RNG.standard_normal(3)
    np.testing.assert_allclose(dt.vjp(add, x)[1](g)[0], np.repeat(g[:, None], 4, 1))
    ranked = dt.op("p[] = argmax(x[i]) where i in 0:N", name="place").defvjp(
        "dx[i] = where(i == p[], 0, 0 * x[i]) where i in 0:N"
    )
    assert ranked.rules[0].vjp is not None


def test_a_rule_that_has_a_rule() -> None:
    """The derivative of the derivative is given too."""
    rule = dt.op("rule(x: [N], dy: [N]) -> dx:\n  dx[i] = 2 * x[i] * dy[i]")
    rule.defvjp("dx_1[i] = 7 * ddx[i]\nddy[i] = 2 * x[i] * ddx[i]")
    f = dt.op("f(x: [N]) -> y:\n  y[i] = x[i] ** 2").defvjp(rule)
    x, one = np.array([0.5, 2.0]), np.ones(2)
    np.testing.assert_allclose(f.gradient("x")(x, one), 2 * x)
    second = f.gradient("x").gradient("x")
    np.testing.assert_allclose(second(*(one for _ in second.params)), 7 * one)


def test_a_scatter_in_a_rule() -> None:
    take = dt.op("take(w: [V, D], at: i32[N]) -> y:\n  y[n,d] = w[at[n],d]")
    take.defvjp("dw: [V, D]\ndw[at[n],d] += 2 * dy[n,d]")
    w, at, g = RNG.standard_normal((5, 2)), np.array([1, 4, 1], np.int32), RNG.random((3, 2))
    wanted = np.zeros((5, 2))
    np.add.at(wanted, at, 2 * g)
    np.testing.assert_allclose(dt.vjp(take, w, at)[1](g)[0], wanted)


def test_sizes_that_have_to_be_numbers() -> None:
    flat = dt.op("flat(x: [H, W]) -> y:\n  y[n] = x[n//W, n%W] ** 2 where n in 0:H*W")
    flat.defvjp("dx[h,w] = 4 * x[h,w] * dy[h*W+w] where h in 0:H, w in 0:W")
    x = RNG.standard_normal((2, 3))
    np.testing.assert_allclose(dt.vjp(flat, x)[1](np.ones(6))[0], 4 * x)


def test_rules_are_part_of_equality_and_not_of_the_text() -> None:
    plain, own, other = dt.op(SOFTMAX), softmax(), softmax(tripled=True)
    assert own != plain and own != other and own == softmax() and hash(own) == hash(plain)
    assert own.text == plain.text and own.fingerprint == plain.fingerprint
    assert pickle.loads(pickle.dumps(own)) == own
    schedule = plain.schedule().parallel("y.i")
    np.testing.assert_allclose(own.with_schedule(schedule)(X), plain(X))
    step = dt.program(lambda x: (own(x), plain(x)))
    assert len(step.graph(X).nodes) == 2


def test_rules_in_torch() -> None:
    torch = pytest.importorskip("torch")
    f = dt.torch(softmax())
    x = torch.tensor(X, requires_grad=True)
    assert torch.autograd.gradcheck(f, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, (x,))
    g = torch.tensor(RNG.standard_normal((3, 5)))
    (found,) = torch.autograd.grad(dt.torch(softmax(tripled=True))(x), x, g)
    (wanted,) = torch.autograd.grad(f(x), x, g)
    np.testing.assert_allclose(found.numpy(), 3 * wanted.numpy())


def test_a_rule_that_is_the_gradient_changes_nothing(case: tuple[str, list[Any]]) -> None:
    """Of every operator of this folder, in second order too."""
    text, arrays = case
    op = parse(text)
    floats = [
        p.name for p, a in zip(op.params, arrays, strict=True) if np.asarray(a).dtype.kind == "f"
    ]
    own = parse(text).defvjp(adjoint(op, tuple(floats), saved=op.returns))
    dt.check_grads(own, arrays, order=2, interpreted=True)
