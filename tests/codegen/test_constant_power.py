"""Powers by a number that the program gives: multiplications, as exact as the general function."""

from __future__ import annotations

from typing import Any

import diptych as dt
import mpmath
import numpy as np
import pytest
from diptych.codegen import host_code
from diptych.codegen.target import Target

DTYPES = {"f32": np.float32, "f64": np.float64}
POWERS = [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 12.0, 31.0, 64.0, 65.0, 2.5,
          -1.0, -2.0, -3.0, -7.0, -0.5]  # fmt: skip
COUNT = 256
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 3.0, -3.0, 1e-30, -1e30]


def power(native: Any, dtype: str, n: float, fma: bool) -> Any:
    """x ** n in lanes, on this machine or on one like it without fused operations."""
    host = host_code.host_target()
    code = native(
        f"function k(x: param {dtype}[{COUNT}], y: param {dtype}[{COUNT}]):\n"
        f"    for i in 0 .. {COUNT // 8}:\n"
        f"        for v in 0 .. 8 vector(8):\n"
        f"            y[8 * i + v] = x[8 * i + v]**{n}:{dtype}\n",
        host if fma else Target(host.triple, fma=False, rounding=False),
    )

    def call(x: Any) -> Any:
        y = np.full(COUNT, 7, DTYPES[dtype])
        assert code(x, y) == 0
        return y

    return call


def ulps(got: Any, x: Any, n: float) -> float:
    """The largest distance from the exact power, in units of its last place."""
    info, worst = np.finfo(got.dtype), 0.0
    with mpmath.workdps(40):
        for value, base in zip(got.tolist(), x.tolist(), strict=True):
            exact = mpmath.mpf(base) ** mpmath.mpf(n)
            if abs(exact) > float(info.max):
                assert np.isinf(value)
                continue
            exponent = max(int(mpmath.floor(mpmath.log(abs(exact), 2))), info.minexp)
            worst = max(worst, float(abs(value - exact) / mpmath.mpf(2) ** (exponent - info.nmant)))
    return worst


@pytest.mark.parametrize("fma", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", POWERS)
def test_within_two_ulp(native: Any, n: float, dtype: str, fma: bool) -> None:
    """Bases whose powers are of every size, subnormal and too great too."""
    rng = np.random.default_rng(COUNT)
    reach = (150 if dtype == "f32" else 1074) / max(1.0, abs(n))
    x = 2.0 ** rng.uniform(-min(reach, 120), min(reach, 120), COUNT)
    x[::2] = rng.uniform(1, 2, COUNT // 2)
    if n == int(n):
        x[::3] *= -1
    x = x.astype(DTYPES[dtype])
    assert ulps(power(native, dtype, n, fma)(x), x, n) <= 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", POWERS)
def test_special_values(native: Any, n: float, dtype: str) -> None:
    info = np.finfo(DTYPES[dtype])
    values = [*SPECIAL, info.max, info.tiny, -info.tiny / 8]
    x = np.resize(np.array(values, DTYPES[dtype]), COUNT)
    got = power(native, dtype, n, True)(x)
    with np.errstate(all="ignore"):
        want = np.power(np.where(np.isneginf(x) & (n == 0.5), np.inf, x), DTYPES[dtype](n))
    np.testing.assert_allclose(got, want, rtol=4 * info.eps)
    zero = (want == 0) & ((x != 0) | (n != 0.5))  # NumPy takes a square root there
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    if n == 0.5:
        assert not np.signbit(got[x == 0]).any()


def test_squares_cost_what_products_do() -> None:
    """No logarithm is in the code of a square, nor of a seventh power."""
    x = np.arange(64, dtype=np.float32)
    for text, same in (("y[i] = x[i] ** 2", x * x), ("y[i] = x[i] ** 7", x**7)):
        op = dt.op(text)
        np.testing.assert_allclose(op(x), same, rtol=1e-6)
        assert "dt.pow" not in op.source("llvm")
