"""vjp, jvp, grad and value_and_grad of operators, programs and functions, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest

SEVERAL = dt.op("f(x, n) -> s, q:\n s[] = sum(x[i] * x[i] * n[i])\n q[i] = x[i] * n[i]")
DENSE = dt.op("y[n,f] = sum(x[n,d] * w[d,f])", name="dense")
SQUARE = dt.op("s = sum(y[n,f] * y[n,f])", name="square")
X, N = np.arange(3.0), np.array([1, 2, 3])
W = np.random.default_rng(0).random((2, 5, 4))


def loss(params: dict[str, Any], x: Any) -> Any:
    return SQUARE(DENSE(x, params["w"]))


def both(params: dict[str, Any], x: Any) -> Any:
    h = DENSE(x, params["w"])
    return {"h": h, "s": SQUARE(h)}


PARAMS, DATA = {"w": W[0].T[:, :2].copy()}, W[1]
BY_W = 2 * DATA.T @ DATA @ PARAMS["w"]


def test_vjp_of_several_results() -> None:
    (s, q), pull = dt.vjp(SEVERAL, X, N)
    assert s == 14 and (q == [0, 2, 6]).all()
    dx, dn = pull((1.0, np.ones(3, np.float32)))
    np.testing.assert_array_equal(dx, 2 * X * N + N)
    assert dn is None and dx.dtype == np.float64


def test_jvp() -> None:
    results, tangents = dt.jvp(SEVERAL, (X, N), (np.ones(3), None))
    assert results[0] == 14 and tangents[0] == 2 * (X * N).sum()
    np.testing.assert_array_equal(tangents[1], N)
    y, dy = dt.jvp(dt.op("y[i] = exp(x[i])"), (np.float32([0, 1]),), (np.ones(2),))
    np.testing.assert_allclose(dy, y, rtol=1e-6)
    assert dy.dtype == np.float32


@pytest.mark.parametrize("wrap", [lambda f: f, dt.program])
def test_tangents_of_functions_and_programs(wrap: Callable[..., Any]) -> None:
    move = {"w": W[0].T[:, 2:4].copy()}
    results, found = dt.jvp(wrap(both), (PARAMS, DATA), (move, np.zeros_like(DATA)))
    np.testing.assert_allclose(results["h"], DATA @ PARAMS["w"])
    np.testing.assert_allclose(found["h"], DATA @ move["w"])
    np.testing.assert_allclose(found["s"], (BY_W * move["w"]).sum())
    (value, rows), (moved, still) = dt.jvp(
        wrap(lambda x, n: (x * x * n, n)), (X, N), (np.ones(3, np.float32), None)
    )
    assert value.tolist() == [0, 2, 12] and moved.tolist() == [0, 4, 12]
    assert rows.tolist() == [1, 2, 3] and still.tolist() == [0, 0, 0] and still.dtype == N.dtype


def test_hessian_vector_products_either_way_and_deeper() -> None:
    cube = dt.op("s[] = sum(x[i] ** 3)")
    x, v = np.array([1.0, 2.0, -3.0]), np.array([1.0, 0.5, 2.0])
    for function in (cube, dt.program(lambda x: cube(x))):
        gradient, product = dt.jvp(dt.grad(function), (x,), (v,))
        np.testing.assert_allclose(gradient, 3 * x**2)
        np.testing.assert_allclose(product, 6 * x * v)
        back = dt.grad(lambda x, v, f=function: dt.jvp(f, (x,), (v,))[1])
        np.testing.assert_allclose(back(x, v), 6 * x * v)

    def product_of(x: Any, v: Any) -> Any:
        return dt.jvp(dt.grad(cube), (x,), (v,))[1]

    third = dt.jvp(lambda x: product_of(x, v), (x,), (v,))[1]
    np.testing.assert_allclose(third, 6 * v * v)


@pytest.mark.parametrize("wrap", [lambda f: f, dt.program])
def test_gradients_of_functions_and_programs(wrap: Callable[..., Any]) -> None:
    value, found = dt.value_and_grad(wrap(loss))(PARAMS, DATA)
    np.testing.assert_allclose(value, np.sum((DATA @ PARAMS["w"]) ** 2))
    np.testing.assert_allclose(found["w"], BY_W)
    by_params, by_x = dt.grad(wrap(loss), (0, 1))(PARAMS, DATA)
    np.testing.assert_allclose(by_params["w"], BY_W)
    np.testing.assert_allclose(by_x, 2 * DATA @ PARAMS["w"] @ PARAMS["w"].T)
    results, pull = dt.vjp(wrap(both), PARAMS, DATA)
    pulled, _ = pull({"h": np.ones((5, 2)), "s": 2.0})
    np.testing.assert_allclose(pulled["w"], DATA.T @ np.ones((5, 2)) + 2 * BY_W)
    np.testing.assert_allclose(results["h"], DATA @ PARAMS["w"])


@pytest.mark.parametrize("function", [SEVERAL, lambda x, n: SEVERAL(x, n)], ids=["op", "function"])
def test_derivatives_at_arrays_along_values_of_a_program(function: Any) -> None:
    @dt.program
    def step(seed: Any, move: Any) -> Any:
        _, pull = dt.vjp(function, X, N)
        return pull((seed, move))[0], dt.jvp(function, (X, N), (move, None))[1]

    seed, move = np.array(2.0), np.array([1.0, -1.0, 0.5])
    by_x, (s, q) = step(seed, move)
    np.testing.assert_allclose(by_x, 2 * X * N * seed + N * move)
    np.testing.assert_allclose(s, (2 * X * N * move).sum())
    np.testing.assert_allclose(q, N * move)


def test_argnums_by_its_name() -> None:
    dot = dt.op("s[] = sum(x[i] * y[i])")
    x, y = np.ones(3), np.arange(3.0)
    assert dt.grad(dot, argnums=1)(x, y).tolist() == [1, 1, 1]
    assert [g.tolist() for g in dt.grad(dot, argnums=(0, 1))(x, y)] == [[0, 1, 2], [1, 1, 1]]


def test_a_missing_argument_is_missed_under_the_name_of_the_method() -> None:
    with pytest.raises(TypeError, match=r"^gradient\(\) missing 1 required positional argument"):
        dt.op("s[] = sum(x[i] * y[i])").gradient()  # type: ignore[call-arg]


def test_gradients_of_functions_inside_a_program() -> None:
    @dt.program
    def step(params: dict[str, Any], x: Any) -> Any:
        value, grads = dt.value_and_grad(loss)(params, x)
        return value, grads["w"]

    np.testing.assert_allclose(step(PARAMS, DATA)[1], BY_W)


def test_a_function_of_numpy_is_a_program() -> None:
    result, pull = dt.vjp(np.sin, X)
    np.testing.assert_allclose(result, np.sin(X), rtol=1e-15)
    np.testing.assert_allclose(pull(np.ones(3))[0], np.cos(X), rtol=1e-15)


def test_values_of_another_program_have_no_gradients() -> None:
    square, kept = dt.op("s[] = sum(x[i] ** 2)"), []

    @dt.program
    def first(z: Any) -> Any:
        kept.extend([z, square(z)])
        return kept[1]

    first(X)
    wrong: list[Callable[[Any], Any]] = [
        lambda x: dt.grad(square(x), kept[0]),
        lambda x: dt.grad(square(x), [x, kept[1]]),
        lambda x: dt.grad(kept[1], x),
    ]
    for second in wrong:
        with pytest.raises(dt.GraphError) as error:
            dt.program(second)(np.ones(4))
        assert str(error.value).splitlines()[0].split(": ", 1)[1] == (
            "program <lambda>: input z belongs to another program; a value may be used only in the "
            "trace that made it, so pass it in as an argument"
        )


PULL = dt.vjp(SEVERAL, X, N)[1]
PULL_BOTH = dt.vjp(both, PARAMS, DATA)[1]
REFUSED: dict[str, tuple[Callable[[], Any], type[dt.Error]]] = {
    "vjp of f: expected a cotangent for each of s, q, 1 came": (
        lambda: PULL(np.ones(3)), dt.GradientError),
    "vjp of f: expected a cotangent for each of s, q, 3 came (a list is one for each result; "
    "give an array)": (
        lambda: PULL([1.0, 2.0, 3.0]), dt.GradientError),
    "vjp of f: the cotangent of q has shape (4,), expected (3,)": (
        lambda: PULL((1.0, np.ones(4))), dt.ShapeError),
    "vjp of both: expected cotangents nested as the results are, {'h': *, 's': *}, came *": (
        lambda: PULL_BOTH(np.ones(3)), dt.GradientError),
    "vjp of both: the cotangent of result.h has shape (5, 3), expected (5, 2)": (
        lambda: PULL_BOTH({"h": np.ones((5, 3)), "s": 1.0}), dt.ShapeError),
    "jvp of f: expected primals and tangents as tuples, ndarray and ndarray came": (
        lambda: dt.jvp(SEVERAL, X, N), dt.GradientError),
    "jvp of f: 2 primals and 1 tangents came": (
        lambda: dt.jvp(SEVERAL, (X, N), (X,)), dt.ShapeError),
    "jvp of f: the tangent of x has shape (4,), expected (3,)": (
        lambda: dt.jvp(SEVERAL, (X, N), (np.ones(4), None)), dt.ShapeError),
    "gradient of f: no argument is a float, so there is no gradient": (
        lambda: dt.jvp(SEVERAL, (N, N), (None, None)), dt.GradientError),
    "jvp of loss: expected tangents nested as the primals are, ({'w': *}, *), "
    "came ({'w': *}, ())": (
        lambda: dt.jvp(loss, (PARAMS, DATA), (PARAMS, ())), dt.GradientError),
    "grad of f: expected a scalar result, several results came; use dt.vjp": (
        lambda: dt.grad(SEVERAL)(X, N), dt.GradientError),
    "grad of f: expected the numbers of arguments below 2 to differentiate by, 5 came": (
        lambda: dt.grad(SEVERAL, 5), dt.GradientError),
    "grad of f: expected the numbers of arguments below 2 to differentiate by, 'x' came": (
        lambda: dt.grad(SEVERAL, "x"), dt.GradientError),
    "grad of 3: expected an operator, a program or a function": (
        lambda: dt.grad(3), dt.GradientError),
    "grad of both: expected one scalar result, dict came": (
        lambda: dt.grad(both)(PARAMS, DATA), dt.GradientError),
    "grad of loss: argument 2 was asked for, 2 came": (
        lambda: dt.grad(loss, 2)(PARAMS, DATA), dt.GradientError),
    "gradient of a value of type f64[5,2]: expected a scalar; reduce it first, or give its "
    "cotangent as seed": (
        lambda: dt.grad(lambda w, x: DENSE(x, w))(PARAMS["w"], DATA), dt.GradientError),
    "grad of loss by argument 1: expected arrays of floats, a leaf of it is of type i64[3,4]": (
        lambda: dt.grad(loss, 1)(PARAMS, np.ones((3, 4), int)), dt.GradientError),
    "vjp of loss: no argument is an array of floats, so there is no gradient": (
        lambda: dt.vjp(loss, {}, 3), dt.GradientError),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    act, kind = REFUSED[message]
    with pytest.raises(kind) as refused:
        act()
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "text",
    [
        "o(x: [N]) -> y:\n  y[i] = x[i] / sqrt(sum(x[j]**2))",
        "o(x: [N]) -> y:\n  y[i] = prod(x[j]) * x[i]",
        "o(x: [N]) -> y:\n  m[] = max(x[i])\n  y[i] = exp(x[i] - m[]) / sum(exp(x[j] - m[]))",
    ],
)
def test_gradients_of_gradients_share_what_is_kept(text: str) -> None:
    """One that takes what its operator keeps is not asked for that by its own gradient."""
    o, total = dt.op(text), dt.op("s[] = sum(a[i])")
    x = np.array([0.3, 0.7, 1.1, 1.9])

    def first(z: Any) -> Any:
        return total(dt.grad(lambda z: total(o(z) * o(z)))(z) * z)

    def second(z: Any) -> Any:
        return total(dt.grad(first)(z) * z * z)

    for function in (first, second):
        found = dt.grad(function)(x)
        near = [(function(x + d) - function(x - d)) / 2e-5 for d in 1e-5 * np.eye(4)]
        np.testing.assert_allclose(found, near, rtol=1e-6, atol=1e-8)
        assert dt.program(lambda z, f=function: dt.grad(f)(z))(x).tolist() == found.tolist()


def test_derivatives_of_bf16_have_its_type() -> None:
    """Beside what is wider too, and where the result is one."""
    bf16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    op = dt.op("y[t] = x[t] * w[]")
    x, w = np.ones(3, bf16), np.array(0.5)
    y, pull = dt.vjp(op, x, w)
    assert [c.dtype for c in pull(np.ones_like(y))] == [bf16, float]
    total = dt.op("s[] = sum(x[t]**2)")
    value, slope = dt.value_and_grad(total)(x)
    assert value.dtype == slope.dtype == bf16 and (slope == 2).all()
