"""Kernels with dynamic sizes next to protected pages, and how they are told the sizes."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from guard import Fenced

Array = np.ndarray[Any, Any]
MATMUL = dt.op("C[i,j] = sum(A[i,k] * B[k,j])").dynamic(I=64, J=64, K=64)
VALID = dt.op("f(x: f32[N], w: f32[K]) -> y:\n dynamic N <= 300\n y[i] = sum(x[i+k] * w[k])")
CALLS = [
    "",
    '.tile(i=8, j=16).reorder("io", "jo", "k", "ii", "ji").vectorize("ji").parallel("io")',
    '.tile(i=4, j=16).reorder("io", "jo", "k", "ii", "ji").stage("C", at="jo", scope="register")'
    '.unroll("ii").vectorize("ji")',
    '.split("k", 8).reorder("ko", "i", "j", "ki").stage("B", at="ko", scope="heap")',
]


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def fenced(values: Array, *, at_end: bool) -> Array:
    return Fenced(values, at_end=at_end).array


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("calls", CALLS)
def test_nothing_outside_is_touched(calls: str, at_end: bool) -> None:
    call = MATMUL.with_schedule(dt.Schedule.parse(MATMUL, calls), True) if calls else MATMUL
    for n in (1, 2, 15, 17, 64):
        a, b = floats(n, n // 3 + 1), floats(n // 3 + 1, n // 2 + 1)
        want = dt.interpret(MATMUL, a, b)
        out = fenced(np.zeros_like(want), at_end=at_end)
        call(fenced(a, at_end=at_end), fenced(b, at_end=at_end), out=out)
        np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("at_end", [False, True])
def test_an_empty_result_is_not_written(at_end: bool) -> None:
    for n in (1, 2, 3, 66, 67):  # the default schedule takes strips of 64 lanes
        x, w = floats(n), floats(3)
        want = dt.interpret(VALID, x, w)
        out = fenced(np.zeros_like(want), at_end=at_end)
        VALID(fenced(x, at_end=at_end), fenced(w, at_end=at_end), out=out)
        np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


def test_arrays_that_are_not_aligned() -> None:
    for n in (3, 40):
        raw = np.zeros(4 * n + 1, np.uint8)
        x = raw[1:].view(np.float32)
        x[:] = floats(n)
        np.testing.assert_allclose(VALID(x, floats(3)), dt.interpret(VALID, x, floats(3)), 1e-4)


def test_one_code_serves_calls_of_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    inputs = [(floats(n, 9), floats(9, 7)) for n in range(1, 65)]
    with ThreadPoolExecutor(4) as executor:
        results = list(executor.map(lambda pair: MATMUL(*pair), inputs))
    for (a, b), got in zip(inputs, results, strict=True):
        np.testing.assert_allclose(got, dt.interpret(MATMUL, a, b), rtol=1e-4, atol=1e-4)
