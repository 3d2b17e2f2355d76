"""Random GPU schedules of a matrix product and a stencil: right, race-free, no barrier too many."""

from __future__ import annotations

import numpy as np
import pytest
from diptych.algo.dtypes import f32
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.parse import parse
from diptych.codegen.gpu import emulate_op, kernel_of
from diptych.codegen.simt import Race, emulate
from diptych.sched.loop.schedule import Schedule
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MATMUL = parse("C[i,j] = sum(A[i,k] * B[k,j])", name="matmul")
BLUR = parse("Y[y,x] = (X[y,x] + X[y,x+1] + X[y+1,x] + X[y+1,x+2]) / 4", name="blur")
few = settings(
    max_examples=8, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
tiles = st.integers(1, 6)
sizes = st.integers(1, 14)


def matmul(ti: int, tj: int, tk: int, staged: str, scope: str | None) -> Schedule:
    schedule = (
        Schedule(MATMUL).tile(i=ti, j=tj).split("k", tk).reorder("io", "jo", "ko", "ii", "ji", "ki")
    )
    if scope is not None:
        schedule = schedule.stage("C", at="jo", scope=scope)
    for tensor in staged:
        schedule = schedule.stage(tensor, at="ko", scope="shared")
    schedule = schedule.bind("io", "block.y").bind("jo", "block.x")
    return schedule.bind("ii", "thread.y").bind("ji", "thread.x")


@few
@given(
    st.tuples(sizes, sizes, sizes),
    st.tuples(tiles, tiles, tiles),
    st.sampled_from(["A", "B", "AB", ""]),
    st.sampled_from(["register", "local", "shared", None]),
)
def test_matmul(shape, tile, staged, scope):
    rng = np.random.default_rng(0)
    m, n, k = shape
    a = rng.integers(-9, 9, (m, k)).astype(np.float32)
    b = rng.integers(-9, 9, (k, n)).astype(np.float32)
    schedule = matmul(*tile, staged, scope)
    np.testing.assert_array_equal(emulate_op(MATMUL, [a, b], schedule), a @ b)


@few
@given(st.tuples(sizes, sizes), st.tuples(tiles, tiles), st.booleans(), st.booleans())
def test_blur(shape, tile, staged, swapped):
    x = np.random.default_rng(0).random((shape[0] + 1, shape[1] + 2), np.float32)
    y_axis, x_axis = ("x", "y") if swapped else ("y", "x")
    schedule = Schedule(BLUR).tile(y=tile[0], x=tile[1])
    if staged:
        schedule = schedule.stage("X", at="xo", scope="shared")
    schedule = schedule.bind("yo", f"block.{y_axis}").bind("xo", f"block.{x_axis}")
    schedule = schedule.bind("yi", f"thread.{y_axis}").bind("xi", f"thread.{x_axis}")
    np.testing.assert_array_equal(emulate_op(BLUR, [x], schedule), interpret(BLUR, x))


@pytest.mark.parametrize("staged", ["A", "B", "AB"])
@pytest.mark.parametrize("scope", ["register", "shared", None])
def test_every_barrier_is_needed(staged, scope, without_barrier, count_barriers):
    """A kernel that lacks one of its barriers races; so none is missing and none is too many."""
    m, n, k = 8, 6, 9
    function = kernel_of(MATMUL, [(f32, (m, k)), (f32, (k, n))], matmul(4, 3, 3, staged, scope))
    rng = np.random.default_rng(0)
    a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
    c = np.full((m, n), np.nan, np.float32)
    emulate(function, [a, b, c])
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert count_barriers(function) == 2
    for number in range(2):
        with pytest.raises(Race):
            emulate(without_barrier(function, number), [a, b, c], seed=number)
