"""Elementary functions: at most 2 units in the last place from mpmath, and IEEE's special cases.

f32 is compared with NumPy's f64, whose own error is nothing beside a unit of f32, on arguments of
every exponent; f64 with mpmath. With DIPTYCH_TEST=full these are tens of millions and thousands.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from codegen.levels import LEVELS, level
from diptych.codegen import host_code
from diptych.codegen.elementary import FUNCTIONS
from diptych.codegen.target import Target

ARRAY = np.ndarray[Any, Any]
COUNT = 512
FULL = os.environ.get("DIPTYCH_TEST") == "full"
DTYPES = {"f32": np.float32, "f64": np.float64}
EXACT: dict[str, Callable[..., Any]] = {
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.power(2, x),
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "log1p": mpmath.log1p,
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "erf": mpmath.erf,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "pow": mpmath.power,
}
NUMPY: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(x, np.zeros_like(x)),
    "erf": lambda x: np.array([math.erf(v) for v in x], x.dtype),
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]
CODE = ["host"] if not LEVELS else ["x86-64", "x86-64-v3", "x86-64-v4"]


def target(fma: bool) -> Target:
    """This machine, or one like it without fused operations and rounding instructions."""
    host = host_code.host_target()
    return host if fma else Target(host.triple, fma=False, rounding=False)


def kernel(
    native: Any, name: str, dtype: str, lanes: int, on: tuple[Any, ...] = (), count: int = COUNT
) -> Any:
    """The function on arrays of `count` numbers, for a target and LLVM's machine."""
    args = 2 if name == "pow" else 1
    params = ", ".join(f"x{k}: param {dtype}[{count}]" for k in range(args))
    values = ", ".join(f"x{k}[{lanes} * i + v]" for k in range(args))
    vector = f" vector({lanes})" if lanes > 1 else ""
    code = native(
        f"function k({params}, y: param {dtype}[{count}]):\n"
        f"    for i in 0 .. {count // lanes}:\n"
        f"        for v in 0 .. {lanes}{vector}:\n"
        f"            y[{lanes} * i + v] = {name}({values})\n",
        *on,
    )

    def call(*xs: ARRAY) -> ARRAY:
        y = np.full(count, 7, DTYPES[dtype])
        assert code(*xs, y) == 0
        return y

    return call


def turning_points(name: str) -> ARRAY:
    """Where a function changes its way, or its result overflows or vanishes."""
    limits = [1.0, 0.55, 4.0, 5.95, 10.0, 20.0, 37.0, 88.7, 103.97, 128.0, 150.0, 709.78, 745.1]
    exponents = [1022.0, 1024.0, 1074.0, 3e4, 1.6e6, math.pi, math.pi / 2, math.log(2) / 2]
    return np.array([s * v for v in [*limits, *exponents, 1.5, 9.02] for s in (1, -1)])


def arguments(name: str, dtype: str, count: int) -> ARRAY:
    """Of every exponent and sign, of the sizes that matter most, and near turning points."""
    rng = np.random.default_rng(len(name))
    kind = DTYPES[dtype]
    whole, width = (np.uint32, 32) if dtype == "f32" else (np.uint64, 64)
    bits = (np.arange(count // 2, dtype=np.float64) * (2.0**width / (count // 2))).astype(whole)
    wide = (bits + rng.integers(0, 2**width // count, count // 2, whole)).view(kind)
    turns = turning_points(name)
    near = rng.choice(turns, count // 8) * (1 + rng.normal(size=count // 8) * 1e-3)
    small = rng.normal(size=count // 8) * 10.0 ** rng.uniform(-8, 0, count // 8)
    about_one = 1 + rng.normal(size=count // 8) * 10.0 ** rng.uniform(-8, 0, count // 8)
    usual = rng.uniform(-8, 8, count - len(wide) - 3 * (count // 8))
    return np.concatenate([wide, *(v.astype(kind) for v in (near, small, about_one, usual))])


def pairs(dtype: str, count: int) -> tuple[ARRAY, ARRAY]:
    """Bases of every exponent and near 1, and exponents by which powers reach every size."""
    rng = np.random.default_rng(5)
    info = np.finfo(DTYPES[dtype])
    x = 2.0 ** rng.uniform(info.minexp - info.nmant + 1, info.maxexp, count)
    x[::2] = 1 + rng.normal(size=count)[::2] * 10.0 ** rng.uniform(-8, -0.6, count)[::2]
    x = np.abs(x.astype(DTYPES[dtype]))
    limit = 104 if dtype == "f32" else 745
    with np.errstate(all="ignore"):
        y = rng.uniform(-limit, limit, count) / np.log(x.astype(float))
    y[::5] = rng.integers(-9, 9, count)[::5]
    return x, np.nan_to_num(y, posinf=3.0, neginf=3.0).astype(DTYPES[dtype])


def ulps_of_single(got: ARRAY, want: ARRAY) -> ARRAY:
    """Distances of f32 from f64, in units of the last place; inf where they are unlike."""
    with np.errstate(all="ignore"):
        unit = np.ldexp(1.0, np.maximum(np.frexp(want)[1] - 1, -126) - 23)
        apart = np.abs(got.astype(np.float64) - want) / unit
        apart[np.isnan(apart)] = np.inf
        apart[np.isinf(got) & (np.abs(want) > 3.4028236e38) & (got * want > 0)] = 0
        apart[(got == want) | (np.isnan(got) & np.isnan(want))] = 0
    return apart


def ulps(name: str, got: ARRAY, *xs: ARRAY) -> float:
    """The largest distance from the exact value, in units of its last place."""
    info = np.finfo(got.dtype)
    worst = 0.0
    with mpmath.workdps(60):
        for value, *args in zip(got.tolist(), *[x.tolist() for x in xs], strict=True):
            if not all(map(math.isfinite, args)):
                continue  # special values have their own test
            if name in ("log", "log2", "log1p", "sqrt", "rsqrt"):
                least = args[0] + (name == "log1p")
                if least <= 0:
                    assert math.isnan(value) if least < 0 else not math.isfinite(1 / (value or 1))
                    continue
            exact = EXACT[name](*map(mpmath.mpf, args))
            if abs(exact) > float(info.max):
                assert np.isinf(value)
                continue
            exponent = max(mpmath.floor(mpmath.log(abs(exact), 2)) if exact else -9999, info.minexp)
            worst = max(worst, float(abs(value - exact) / mpmath.mpf(2) ** (exponent - info.nmant)))
    return worst


@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize("name", EXACT)
def test_single_precision_is_within_two_ulp(native: Any, name: str, code: str) -> None:
    count = 1 << (24 if FULL else 13 if name == "erf" else 16)
    xs = pairs("f32", count) if name == "pow" else (arguments(name, "f32", count),)
    got = kernel(native, name, "f32", 16, level(code), count)(*xs)
    with np.errstate(all="ignore"):
        want = (NUMPY | {"pow": np.power})[name](*(x.astype(np.float64) for x in xs))
    apart = ulps_of_single(got, want)
    worst = int(np.argmax(apart))
    assert apart[worst] <= 2, (*(x[worst] for x in xs), got[worst], want[worst])


@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize("name", EXACT)
def test_double_precision_is_within_two_ulp(native: Any, name: str, code: str) -> None:
    count = 1 << (14 if FULL else 9)
    xs = pairs("f64", count) if name == "pow" else (arguments(name, "f64", count),)
    got = kernel(native, name, "f64", 8, level(code), count)(*xs)
    assert ulps(name, got, *xs) <= 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXACT)
def test_all_widths_give_the_same_bits(native: Any, name: str, dtype: str) -> None:
    """So a schedule does not change a result: scalars, parts of registers, several registers."""
    xs = pairs(dtype, COUNT) if name == "pow" else (arguments(name, dtype, COUNT),)
    first, *others = (kernel(native, name, dtype, lanes)(*xs) for lanes in (1, 2, 8, 32))
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NUMPY)
def test_special_values(native: Any, name: str, dtype: str, lanes: int) -> None:
    """Infinities, NaN, zeros with their sign, subnormals and the largest numbers."""
    info = np.finfo(DTYPES[dtype])
    values = [*SPECIAL, float(info.max), -float(info.max), float(info.tiny) / 8, -float(info.tiny)]
    x = np.resize(np.array(values, DTYPES[dtype]), COUNT)
    got = kernel(native, name, dtype, lanes)(x)
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
    got = kernel(native, "pow", dtype, 8)(x, y)
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
        got = kernel(native, name, "f64", 4)(x)
        assert ulps(name, got[:8], x[:8]) <= 2


@pytest.mark.parametrize("rounding", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_floor_and_ceil(native: Any, dtype: str, rounding: bool) -> None:
    values = [*SPECIAL, 0.5, -0.5, 1.5, -1.5, 8388607.5, -8388607.5, 2.0**60, -(2.0**52) - 1, 1e-30]
    x = np.resize(np.array(values, DTYPES[dtype]), COUNT)
    for name, want in (("floor", np.floor(x)), ("ceil", np.ceil(x))):
        got = kernel(native, name, dtype, 8, (target(rounding),))(x)
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
