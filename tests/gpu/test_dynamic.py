"""GPU kernels of operators with dynamic sizes: grids for the most, threads beyond the end idle."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest

Array = np.ndarray[Any, Any]
MATMUL = dt.op("C[i,j] = sum(A[i,k] * B[k,j])").dynamic(I=40, J=40, K=20)
BOUND = '.bind("io", "block.y").bind("jo", "block.x").bind("ii", "thread.y").bind("ji", "thread.x")'
CALLS = [
    f'.tile(i=8, j=8).reorder("io", "jo", "ii", "ji", "k"){BOUND}',
    '.tile(i=8, j=8).split("k", 4).reorder("io", "jo", "ko", "ii", "ji", "ki")'
    f'.stage("A", at="ko", scope="shared").stage("B", at="ko", scope="shared"){BOUND}',
]


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("calls", CALLS)
def test_matmul(calls: str) -> None:
    schedule = dt.Schedule.parse(MATMUL, calls)
    for n in (1, 9, 40):
        a, b = floats(n, n // 3 + 1), floats(n // 3 + 1, n // 2 + 1)
        want = dt.interpret(MATMUL, a, b)
        np.testing.assert_allclose(schedule.on("simt")(a, b), want, rtol=1e-4, atol=1e-4)
    text = schedule.source("ptx", I=8, J=8, K=8)
    assert text == schedule.source("ptx", I=9, J=10, K=20)
    assert ("bar.sync" in text) == ("shared" in calls)


def test_gather() -> None:
    op = dt.op("f(W: f32[V, D], at: i64[B]) -> y:\n dynamic V <= 30, B <= 30\n y[b,d] = W[at[b],d]")
    schedule = op.schedule().split("b", 8).bind("bo", "block.x").bind("bi", "thread.x")
    for n in (1, 9, 30):
        w, at = floats(n, 5), np.arange(2 * n // 3 + 1) % n
        np.testing.assert_array_equal(schedule.on("simt")(w, at), w[at])
    with pytest.raises(dt.ShapeError, match="dim 0 has extent 9, but at"):
        schedule.on("simt")(floats(9, 5), np.array([9]))


def test_a_loop_over_a_dynamic_size_on_an_axis() -> None:
    op = dt.op("y[i] = x[i] * 2").dynamic(I=300)
    schedule = op.schedule().bind("i", "thread.x")
    for n in (1, 32, 299):
        np.testing.assert_array_equal(schedule.on("simt")(floats(n)), 2 * floats(n))
