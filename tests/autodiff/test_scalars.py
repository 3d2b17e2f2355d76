"""Scalar functions of the user's own: called everywhere, printed by name, differentiated."""

from __future__ import annotations

import math
import pickle

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.expr import Access, Call, Const
from diptych.algo.tensor_expr.scalar import VALUE
from diptych.autodiff.accuracy import Scale
from diptych.autodiff.derivatives import Guarded, pullback
from diptych.autodiff.scalars import partials

i, k = dt.indices("i k")
X = np.linspace(-2.9, 3.1, 9)
GELU = "gelu(x) = 0.5 * x * (1 + erf(x / sqrt(2)))"


def op_of(text: str) -> tuple[dt.Op, list[str]]:
    f = dt.scalar(text)
    params = list(f.function.params)
    call = f"{f.function.name}({', '.join(f'{p}[i]' for p in params)})"
    return dt.op(f"out[i] = {call}", functions={f.function.name: f}), params


def test_from_text_and_from_python() -> None:
    @dt.scalar
    def gelu(x):
        return 0.5 * x * (1 + dt.erf(x / dt.sqrt(2)))

    text = dt.scalar(GELU.replace("sqrt(2)", repr(math.sqrt(2))))
    assert gelu == text and repr(gelu).startswith("gelu(x) = 0.5 * x * (1 + erf(x / 1.41")
    assert gelu(1.0) == pytest.approx(0.8413447460685429)


def test_in_operators_their_text_and_programs() -> None:
    gelu = dt.scalar(GELU)

    @dt.op(name="y")
    def traced(x):
        y = dt.tensor("y")
        y[i] = gelu(x[i])
        return y

    op = dt.op("y[i] = gelu(x[i])", functions={"gelu": gelu})
    assert op == traced and dt.op(op.text) == op and pickle.loads(pickle.dumps(op)) == op
    assert op.text == f"function {GELU}\ny[i] = gelu(x[i])"
    wanted = [0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in X]
    np.testing.assert_allclose(op(X), wanted, rtol=1e-14)
    np.testing.assert_allclose(dt.interpret(op, X), wanted, rtol=1e-14)
    assert op(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(dt.program(lambda x: gelu(x))(X), wanted, rtol=1e-14)
    total = dt.op("s[] = sum(y[i])", name="total")
    slope = dt.grad(lambda x: total(gelu(x)))(X)
    np.testing.assert_allclose(slope, op.gradient("x")(X, np.ones(9)), rtol=1e-14)
    summed = dt.op("y[i] = gelu(sum(x[i,k]))", functions={"gelu": gelu})
    np.testing.assert_allclose(summed(np.stack([X, -X, X], 1)), wanted, rtol=1e-12)


FORMS = {
    "silu(x) = x * sigmoid(x)": ["dout[i] * (out[i] * (1 - sigmoid(x[i])) + sigmoid(x[i]))"],
    "logistic(x) = 1 / (1 + exp(-x))": ["dout[i] * out[i] / (exp(x[i]) + 1)"],
    "bump(x) = exp(-x**2)": ["-2 * dout[i] * out[i] * x[i]"],
    "elu(x) = where(x > 0, x, exp(x) - 1)": ["where(x[i] > 0, dout[i], dout[i] * exp(x[i]))"],
    "root(x) = where(x > 0, sqrt(x), 0)": ["where(x[i] > 0, dout[i] / (2 * sqrt(x[i])), 0)"],
    "square(x) = x**2": ["2 * dout[i] * x[i]"],
    "entropy(x) = x * log(x)": ["dout[i] * (log(x[i]) + 1)"],
    "hyp(x, z) = sqrt(x*x + z*z)": ["dout[i] * x[i] / out[i]", "dout[i] * z[i] / out[i]"],
    "steps(x) = floor(x) * x": ["dout[i] * floor(x[i])"],
}


@pytest.mark.parametrize("text", FORMS)
def test_derivatives_are_written_as_people_do(text: str) -> None:
    op, params = op_of(text)
    lines = op.gradient(tuple(params)).text.splitlines()
    for name, wanted in zip(params, FORMS[text], strict=True):
        assert f"    d{name}[i] = {wanted}" in lines, lines


FAR = {
    "logc(x) = log(exp(x) + exp(-x))": ([45, 60, -45, -60], lambda x: np.tanh(x)),
    "th(x) = (exp(x) - exp(-x)) / (exp(x) + exp(-x))": ([45, -45, 60, 3], lambda x: np.cosh(x)**-2),
    "rel(x) = (x**3 + 2*x) / (x**2 + 1)": ([1e10, -1e10, 1e5], lambda x: 1 + 0 * x),
    "up(x) = 1 - 1 / (1 + exp(x))": ([-20, -30, 20, 30, 45], lambda x: np.cosh(x / 2)**-2 / 4),
    "down(x) = 1 / (1 + exp(x)) - 1": ([-20, -30, 20, 45], lambda x: -(np.cosh(x / 2)**-2) / 4),
    "logistic(x) = 1 / (1 + exp(-x))": ([-20, 20, 30, 95], lambda x: np.cosh(x / 2)**-2 / 4),
    "well(x) = 1 - 1 / (1 + x*x)": ([1e5, 1e-20, -1e7], lambda x: 2 * x / (1 + x * x)**2),
    "silu(x) = x * sigmoid(x)": ([1e10, 1e5, 30, 20], lambda x: 1 + x * np.exp(-x)),
}  # fmt: skip


@pytest.mark.parametrize("text", FAR)
def test_derivatives_are_accurate_far_out_in_f32(text: str) -> None:
    """What overflows on the way, or is read where its digits have cancelled, is no good form."""
    points, wanted = FAR[text]
    x = np.array(points, np.float32)
    op, _ = op_of(text)
    found = dt.vjp(op, x)[1](np.ones_like(x))[0]
    np.testing.assert_allclose(found, wanted(x.astype(float)), rtol=2e-5, atol=1e-35)


@pytest.mark.parametrize("text", ["up(x) = 1 - 1 / (1 + exp(x))", "th(x) = tanh(x) * 2"])
def test_the_form_that_is_chosen_is_nowhere_worse_than_the_tables(text: str) -> None:
    body = dt.scalar(text).function.body
    x = Access("x", ())
    exact = pullback(body, (Guarded((), Const(1)),))[x]
    scale = Scale(body, exact, [x])
    (chosen,) = partials(dt.scalar(text).function, "even")
    assert scale.rank(chosen) <= scale.rank(exact)
    cancelled = Call("mul", (VALUE, Call("sub", (Const(1), VALUE))))
    assert text.startswith("th") or scale.rank(cancelled) is None


def test_numbers_are_folded() -> None:
    half = op_of("relu6(x) = min(max(x, 0), 6)")[0].gradient("x").text
    assert "dout[i] * 0.25" in half and "/ 2" not in half
    base = op_of("px(x) = 2**x")[0].gradient("x").text
    assert "where" not in base and "bool" not in base
    assert "1 *" not in op_of("mish(x) = x * tanh(log(1 + exp(x)))")[0].gradient("x").text


OTHERS = [
    GELU, "mish(x) = x * tanh(softplus(x))", "th(x) = (exp(x) - exp(-x)) / (exp(x) + exp(-x))",
    "hard(x) = x * min(max(x + 3, 0), 6) / 6", "power(x, z) = x**z", "cb(x) = cbrt(x) * x",
    "gauss(x, m, s) = exp(-(x - m)**2 / (2 * s**2)) / s", "rr(x) = rsqrt(x*x + 1)",
    "lse(a, b) = log(exp(a) + exp(b))", "soft(x) = x / (1 + abs(x))", "sinc(x) = sin(x) / x",
    "ex(x) = expm1(x) * log1p(x)", "two(x) = exp2(x) * log2(x)", "rem(x) = x % 0.7 * x",
    "big(x) = where(x > 1, where(x > 2, x**3, x**2), x) * cos(x)",
    "kept(x, z) = stop_gradient(x) * z",
]  # fmt: skip


@pytest.mark.parametrize("text", [*FORMS, *OTHERS])
def test_against_differences_in_both_modes_and_orders(text: str) -> None:
    op, params = op_of(text)
    rng = np.random.default_rng(0)
    wrt = params[1:] if text.startswith("kept") else params
    dt.check_grads(op, [rng.random(4) * 0.4 + 0.51 for _ in params], wrt, order=2, interpreted=True)


@pytest.mark.parametrize(
    ("text", "points", "slopes"),
    [
        ("logcosh(x) = log(exp(x) + exp(-x))", [-60, -45, 45, 60], [-1, -1, 1, 1]),
        ("th(x) = (exp(x) - exp(-x)) / (exp(x) + exp(-x))", [-45, 0, 45], [0, 1, 0]),
        ("rational(x) = (x**3 + 2*x) / (x**2 + 1)", [-1e10, 0, 1e10], [1, 2, 1]),
    ],
)
def test_slopes_are_finite_where_functions_are_in_f32(
    text: str, points: list[float], slopes: list[float]
) -> None:
    """The shorter forms square what fills the range of f32."""
    op, _ = op_of(text)
    x = np.array(points, np.float32)
    got = op.gradient("x")(x, np.ones_like(x))
    np.testing.assert_allclose(got, slopes, rtol=1e-6, atol=1e-30)


def test_a_branch_that_is_not_taken_stays_out() -> None:
    op, _ = op_of("root(x) = where(x > 0, sqrt(x), 0)")
    found = op.gradient("x")(np.array([-1.0, 0, 4]), np.array([1, np.inf, 1]))
    assert found.tolist() == [0, 0, 0.25]


def test_ties_are_shared_as_asked() -> None:
    op, _ = op_of("relu(x) = max(x, 0)")
    assert op.gradient("x")(np.zeros(1), np.ones(1)).tolist() == [0.5]
    assert op.gradient("x", ties="first")(np.zeros(1), np.ones(1)).tolist() == [1]


def test_given_derivatives() -> None:
    clip = dt.scalar("clip(x) = min(max(x, 0), 1)")

    @clip.defderivative
    def straight_through(x):
        return 1

    assert straight_through is clip
    op = dt.op("y[i] = clip(x[i])", functions={"clip": clip})
    assert op.text == (
        "function clip(x) = min(max(x, 0), 1)\nderivative clip = 1\ny[i] = clip(x[i])"
    )
    assert dt.op(op.text) == op != dt.op("y[i] = clip(x[i])", functions={
        "clip": dt.scalar("clip(x) = min(max(x, 0), 1)")
    })  # fmt: skip
    assert op.gradient("x")(np.ones(9)).tolist() == [1] * 9
    th = dt.scalar("th(x) = tanh(x)").defderivative(lambda x, y: 1 - y * y)
    assert th.function == dt.scalar("th(x) = tanh(x)").defderivative("1 - th * th").function
    made = dt.op("y[i] = th(x[i])", functions={"th": th})
    assert "dx[i] = dy[i] * (1 - y[i] * y[i])" in made.gradient("x").text
    dt.check_grads(made, (X,), order=2)
    outer = dt.scalar("outer(x, z) = clip(x) * z", functions={"clip": clip})
    both = dt.op("y[i] = outer(x[i], z[i])", functions={"outer": outer})
    assert dt.op(both.text) == both
    dx, dz = both.gradient(("x", "z"))(X, 2 * X, np.ones(9))
    np.testing.assert_allclose(dx, 2 * X)
    np.testing.assert_allclose(dz, np.clip(X, 0, 1))


def test_two_functions_of_one_name_print_apart() -> None:
    one, two = dt.scalar("f(x) = x * 2"), dt.scalar("f(x) = x * 3")

    @dt.op
    def both(x):
        y = dt.tensor("y")
        y[i] = one(x[i]) + two(x[i])
        return y

    assert (
        both.text == ("function f(x) = x * 2\nfunction f_1(x) = x * 3\ny[i] = f(x[i]) + f_1(x[i])")
        or "function f_2(x) = x * 3" in both.text
    )
    assert dt.op(both.text)(X).tolist() == both(X).tolist()
    np.testing.assert_allclose(both(X), 5 * X)


def test_in_conditions_reducers_indices_and_schedules() -> None:
    step = dt.scalar("above(x) = x * x > 1")
    half = dt.scalar("half(n) = n // 2")
    op = dt.op(
        "y[n] = where(above(x[n]), w[half(at[n])], 0)", functions={"above": step, "half": half}
    )
    w, at = np.arange(4.0), np.array([7, 2, 5, 0], np.int64)
    assert op(np.array([2.0, 0, -2, 3]), w, at).tolist() == [3, 0, 2, 0]
    gelu = dt.scalar(GELU)
    made = dt.op("y[i] = gelu(x[i])", functions={"gelu": gelu})
    scheduled = made.schedule().split("i", 4).vectorize("ii")
    np.testing.assert_array_equal(scheduled(X), made(X))


def test_functions_in_torch() -> None:
    torch = pytest.importorskip("torch")
    op, _ = op_of("silu(x) = x * sigmoid(x)")
    x = torch.tensor(X, requires_grad=True)
    assert torch.autograd.gradcheck(dt.torch(op), (x,), check_forward_ad=True)


def test_sympy_comes_with_the_first_derivative() -> None:
    import subprocess
    import sys

    code = (
        "import sys, diptych as dt\n"
        "f = dt.scalar('f(x) = x * sigmoid(x)')\n"
        "op = dt.op('y[i] = f(x[i])', functions={'f': f})\n"
        "assert 'sympy' not in sys.modules\n"
        "op.gradient('x')\n"
        "assert 'sympy' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
