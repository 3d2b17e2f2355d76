"""Elementary functions: at most 2 units in the last place from mpmath, and IEEE's special cases."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from diptych.codegen import host_code
from diptych.codegen.elementary import FUNCTIONS
from diptych.codegen.target import Target

ARRAY = np.ndarray[Any, Any]
COUNT = 512
DTYPES = {"f32": np.float32, "f64": np.float64}
EXACT: dict[str, Callable[..., Any]] = {
    "exp": mpmath.exp,
    "log": mpmath.log,
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "erf": mpmath.erf,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "pow": mpmath.power,
}
NUMPY: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": lambda x: np.array([math.erf(v) for v in x], x.dtype),
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]


def target(fma: bool) -> Target:
    """This machine, or one like it without fused operations and rounding instructions."""
    host = host_code.host_target()
    return host if fma else Target(host.triple, fma=False, rounding=False)


def kernel(native: Any, name: str, dtype: str, lanes: int, fma: bool, args: int = 1) -> Any:
    params = ", ".join(f"x{k}: param {dtype}[{COUNT}]" for k in range(args))
    values = ", ".join(f"x{k}[{lanes} * i + v]" for k in range(args))
    vector = f" vector({lanes})" if lanes > 1 else ""
    code = native(
        f"function k({params}, y: param {dtype}[{COUNT}]):\n"
        f"    for i in 0 .. {COUNT // lanes}:\n"
        f"        for v in 0 .. {lanes}{vector}:\n"
        f"            y[{lanes} * i + v] = {name}({values})\n",
        target(fma),
    )

    def call(*xs: ARRAY) -> ARRAY:
        y = np.full(COUNT, 7, DTYPES[dtype])
        assert code(*xs, y) == 0
        return y

    return call


def arguments(name: str, dtype: str) -> ARRAY:
    """Values of every size that matters to the function."""
    rng = np.random.default_rng(COUNT)
    big, largest = (88.0, 127) if dtype == "f32" else (708.0, 1023)
    half = COUNT // 2
    if name in ("log", "sqrt", "rsqrt"):
        wide = 2.0 ** rng.uniform(-1.17 * largest if dtype == "f32" else -largest, largest, half)
        near = 1 + rng.uniform(-0.3, 0.4, half) * 10.0 ** rng.uniform(-6, 0, half)
        return np.concatenate([wide, near]).astype(DTYPES[dtype])
    scale = {"sin": (30, 300), "cos": (30, 300)}.get(name, (1, 1))[dtype == "f64"]
    wide = rng.normal(size=half) * 10.0 ** rng.uniform(-6, scale, half)
    reach = 1.17 * big if name == "exp" else big
    near = rng.uniform(-reach, big, half)
    near[::2] = rng.uniform(-8, 8, half // 2)
    return np.concatenate([wide, near]).astype(DTYPES[dtype])


def ulps(name: str, got: ARRAY, *xs: ARRAY) -> float:
    """The largest distance from the exact value, in units of its last place."""
    info = np.finfo(got.dtype)
    worst = 0.0
    with mpmath.workdps(60):
        for value, *args in zip(got.tolist(), *[x.tolist() for x in xs], strict=True):
            exact = EXACT[name](*map(mpmath.mpf, args))
            if abs(exact) > float(info.max):
                assert np.isinf(value)
                continue
            exponent = max(mpmath.floor(mpmath.log(abs(exact), 2)) if exact else -9999, info.minexp)
            worst = max(worst, float(abs(value - exact) / mpmath.mpf(2) ** (exponent - info.nmant)))
    return worst


@pytest.mark.parametrize("fma", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [n for n in EXACT if n != "pow"])
def test_at_most_two_ulp(native: Any, name: str, dtype: str, fma: bool) -> None:
    x = arguments(name, dtype)
    got = kernel(native, name, dtype, 8, fma)(x)
    assert ulps(name, got, x) <= 2


@pytest.mark.parametrize("fma", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_power_is_within_two_ulp(native: Any, dtype: str, fma: bool) -> None:
    rng = np.random.default_rng(5)
    x = 2.0 ** rng.uniform(-30, 30, COUNT)
    x[::3] = 1 + rng.uniform(-0.1, 0.1, COUNT)[::3]
    x = x.astype(DTYPES[dtype])
    limit = 87 if dtype == "f32" else 708
    y = (rng.uniform(-limit, limit, COUNT) / np.log(x.astype(float))).astype(DTYPES[dtype])
    got = kernel(native, "pow", dtype, 8, fma, 2)(x, y)
    assert ulps("pow", got, x, y) <= 2


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NUMPY)
def test_special_values(native: Any, name: str, dtype: str, lanes: int) -> None:
    """Infinities, NaN, zeros with their sign, subnormals and the largest numbers."""
    info = np.finfo(DTYPES[dtype])
    values = [*SPECIAL, float(info.max), -float(info.max), float(info.tiny) / 8, -float(info.tiny)]
    x = np.resize(np.array(values, DTYPES[dtype]), COUNT)
    got = kernel(native, name, dtype, lanes, True)(x)
    with np.errstate(all="ignore"):
        want = NUMPY[name](x)
    np.testing.assert_allclose(got, want, rtol=4 * info.eps, atol=0)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_powers(native: Any, dtype: str) -> None:
    values = [*SPECIAL, 2, -2, 3, -3, 0.5, -0.5, 2.5, 1e30, -1e30, 2**24 + 2, 2**53, 7]
    x, y = (g.ravel().astype(DTYPES[dtype]) for g in np.meshgrid(values, values))
    x, y = np.resize(x, COUNT), np.resize(y, COUNT)
    got = kernel(native, "pow", dtype, 8, True, 2)(x, y)
    with np.errstate(all="ignore"):
        want = np.power(x, y)
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(DTYPES[dtype]).eps)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


def test_huge_angles_are_reduced_exactly(native: Any) -> None:
    """The multiples of pi/2 that doubles come nearest to, and the largest double."""
    hard = [6381956970095103.0 * 2.0**797, 1.7976931348623157e308, 1e22, 5.319372648326541e255]
    x = np.resize(np.array([*hard, *(-v for v in hard)]), COUNT)
    for name in ("sin", "cos"):
        got = kernel(native, name, "f64", 4, True)(x)
        assert ulps(name, got[:8], x[:8]) <= 2


@pytest.mark.parametrize("rounding", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_floor_and_ceil(native: Any, dtype: str, rounding: bool) -> None:
    values = [*SPECIAL, 0.5, -0.5, 1.5, -1.5, 8388607.5, -8388607.5, 2.0**60, -(2.0**52) - 1, 1e-30]
    x = np.resize(np.array(values, DTYPES[dtype]), COUNT)
    for name, want in (("floor", np.floor(x)), ("ceil", np.ceil(x))):
        got = kernel(native, name, dtype, 8, rounding)(x)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_a_function_is_emitted_once_for_a_type(native: Any) -> None:
    code = native("""
function twice(x: param f32[8], y: param f32[8]):
    for i in 0 .. 8 vector(8):
        y[i] = exp(x[i]) + exp(exp(x[i]))
""")
    assert code.text.count('define internal <8 x float> @"dt.exp.v8f32"') == 1
    assert set(FUNCTIONS) >= set(EXACT)
