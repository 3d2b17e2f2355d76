"""The autodiff rows of the collected user reports, each under its number."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.errors import GradientError
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.reverse import adjoint
from exact import run


def grad(text: str, wrt: str, **values: Any) -> Any:
    """The gradient by one parameter; the cotangents are among the values."""
    given = {name: np.asarray(value) for name, value in values.items()}
    (found,) = run(adjoint(parse(text), wrt), given).values()
    return found


def test_r28_the_adjoint_of_a_diagonal_read_keeps_its_equality() -> None:
    x = np.arange(16.0).reshape(4, 4)
    found = grad("D[i] = X[i,i]", "X", X=x, dD=[2.0, 3, 5, 7])
    np.testing.assert_array_equal(found, np.diag([2.0, 3, 5, 7]))
    wide = np.zeros((4, 8))
    wide[range(4), range(0, 8, 2)] = [2, 3, 5, 7]
    found = grad("D[i] = X[i,2*i]", "X", X=np.ones((4, 8)), dD=[2.0, 3, 5, 7])
    np.testing.assert_array_equal(found, wide)
    text = "up(X: [N]) -> D:\n D[i] = X[i//2] where i in 0:2*N"
    np.testing.assert_array_equal(grad(text, "X", X=np.ones(2), dD=[2.0, 3, 5, 7]), [5, 12])


def test_r29_ties_share_evenly() -> None:
    ones, dy = np.ones(3), np.array([0.3, -2.0, 5.0])
    da = grad("Y[i] = max(A[i], B[i])", "A", A=ones, B=ones, dY=dy)
    db = grad("Y[i] = max(A[i], B[i])", "B", A=ones, B=ones, dY=dy)
    np.testing.assert_array_equal(da, dy / 2)
    np.testing.assert_array_equal(da + db, dy)
    apart = np.array([0.0, 1.0, np.nan])
    da = grad("Y[i] = max(A[i], B[i])", "A", A=ones, B=apart, dY=dy)
    db = grad("Y[i] = max(A[i], B[i])", "B", A=ones, B=apart, dY=dy)
    np.testing.assert_array_equal(da + db, dy)
    m = grad("M[] = max(x[k])", "x", x=[3.0, 3, 1], dM=1.0)
    np.testing.assert_array_equal(m, [0.5, 0.5, 0])
    np.testing.assert_array_equal(grad("y[i] = max(x[i], 0)", "x", x=[0.0], dy=[1.0]), [0.5])
    found = grad("y[i] = where(x[i] > 0, x[i], 0)", "x", x=[0.0, 2.0], dy=[1.0, 1.0])
    np.testing.assert_array_equal(found, [0, 1])


def test_r30_a_guarded_root_has_a_clean_gradient() -> None:
    zero = np.zeros(2)
    np.testing.assert_array_equal(grad("L[] = sum(x[i]*x[i])", "x", x=zero, dL=1.0), zero)
    guarded = """
        q[] = sum(x[i]*x[i])
        s[] = sqrt(where(q[] > 0, q[], 1))
        L[] = where(q[] > 0, s[], 0)
    """
    np.testing.assert_array_equal(grad(guarded, "x", x=zero, dL=1.0), zero)
    found = grad("y[i] = where(x[i] > 0, sqrt(x[i]), 0)", "x", x=[-1.0, 0, 4], dy=np.ones(3))
    np.testing.assert_array_equal(found, [0, 0, 0.25])
    through = "N[] = sqrt(sum(x[i]*x[i]))\nL[] = N[] * N[]"
    # The root that would have no slope at 0 is gone from the derivative: it reads 2 * dL[] * x[i].
    np.testing.assert_array_equal(grad(through, "x", x=zero, dL=1.0), zero)


def test_r32_repeated_gathers_accumulate() -> None:
    found = grad("Y[i] = X[J[i]]", "X", X=[0.1], J=[0, 0], dY=[0.2, 0.3])
    np.testing.assert_allclose(found, [0.5], rtol=1e-15)
    rng = np.random.default_rng(0)
    picks, dy = rng.integers(0, 4, 10000), rng.standard_normal(10000)
    found = grad("Y[i] = X[J[i]]", "X", X=np.ones(5), J=picks, dY=dy)
    np.testing.assert_allclose(found, np.bincount(picks, weights=dy, minlength=5), rtol=1e-12)
    assert found[4] == 0
    text = "f(X: f64[N], J: i32[M]) -> Y:\n Y[i] = X[J[i]]"
    with pytest.raises(GradientError, match="by J: it has elements of type i32"):
        adjoint(parse(text), "J")


@pytest.mark.parametrize(
    ("x", "wanted"),
    [([2, 0, 3], [0, 6, 0]), ([0, 0, 3], [0, 0, 0]), ([2, 5, 3], [15, 6, 10])],
    ids=str,
)
def test_r33_the_gradient_of_a_product_with_zeros(x: list[float], wanted: list[float]) -> None:
    found = grad("P[] = prod(x[i])", "x", x=np.array(x, float), dP=1.0)
    np.testing.assert_array_equal(found, wanted)


def test_r33_a_batch_of_products_with_random_zeros() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((4, 6)) * (rng.random((4, 6)) > 0.3)
    dt.check_grads(parse("P[b] = prod(x[b,i])"), (x,), order=2)


@pytest.mark.parametrize("text", ["exp(-x[]**2)", "exp(-(x[]*x[]))"])
def test_r35_higher_derivatives_of_a_gaussian_at_0(text: str) -> None:
    op: Op = parse(f"y[] = {text}")
    values: dict[str, Any] = {"x": np.float64(0)}
    found = []
    for _ in range(4):
        back = adjoint(op, "x")
        # dy = 1 makes the gradient the derivative; it stays 1 in what follows.
        values[back.params[-1].name] = np.float64(1)
        found.append(float(run(back, values)[back.returns[0]]))
        op = back
    assert found == [0, -2, 0, 12]


def test_r36_a_strided_convolution_has_its_exact_adjoint() -> None:
    w, dy = [1.0, 2, 4], np.ones(3)
    found = grad("O[y] = sum(I[2*y+k] * W[k])", "I", I=np.ones(8), W=w, dO=dy)
    np.testing.assert_array_equal(found, [1, 2, 5, 2, 5, 2, 4, 0])
    found = grad("O[y] = sum(I[2*y+3*k] * W[k])", "I", I=np.ones(12), W=w, dO=dy)
    np.testing.assert_array_equal(found, [1, 0, 1, 2, 1, 2, 4, 2, 4, 0, 4, 0])


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_r36_every_stride_and_dilation(stride: int, dilation: int) -> None:
    op = parse(f"O[y] = sum(I[{stride}*y+{dilation}*k] * W[k])")
    rng = np.random.default_rng(1)
    for taps in (1, 2, 3, 4):
        for length in range(7, 13):
            if (taps - 1) * dilation < length:
                arrays = rng.standard_normal(length), rng.standard_normal(taps)
                dt.check_grads(op, arrays)
