"""Rows on the legality of schedules, each under its number."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from reports.runs import agree, refusal

MATMUL = "C[i,j] = sum(A[i,k] * B[k,j])"


@pytest.fixture
def sixteen_threads() -> Any:
    before = dt.threads()
    dt.threads(16)
    yield
    dt.threads(before)


# R25: a reduction over blocks and threads


def test_r25_a_sum_over_blocks_and_threads(sixteen_threads: None) -> None:
    op = dt.op("S[] = sum(X[i] * X[i])")
    x = np.arange(400.0)
    for call, name in (
        (lambda: op.schedule().parallel("i"), "parallel(i)"),
        (lambda: op.schedule().bind("i", "block.x"), "bind(i, block.x)"),
    ):
        said = refusal(call)
        assert said.startswith(f"{name}: S[] is updated by i=0 and by i=1 (test_reports_")
        assert "rfactor(i)" in said  # it says what would help
    chunks = ".split('i', 50).rfactor('io')"
    grid = ".split('io', 4).bind('ioo', 'block.x').bind('ioi', 'thread.x')"
    agree(op, [x], np.float64(21253400.0),
          [chunks + ".parallel('io')", ".privatize('i', 16)", ".privatize('i', 7)",
           ".atomic('S').parallel('i')"],
          gpu=[chunks + ".bind('io', 'block.x')", chunks + grid])  # fmt: skip
    run = dt.Schedule.parse(op, ".privatize('i', 16)")
    assert {float(run(x)) for _ in range(100)} == {21253400.0}


# R38: a reduction's loop is no parallel loop


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_r38_a_parallel_contraction(dtype: Any, sixteen_threads: None) -> None:
    op = dt.op(MATMUL)
    said = refusal(lambda: op.schedule().parallel("k"))
    assert said.startswith("parallel(k): C[0,0] is updated by k=0 and by k=1 (test_reports_")
    assert "rfactor(k)" in said and "parallel on i or j" in said
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (2, 4096)), rng.integers(-4, 5, (4096, 2))
    want = (a @ b).astype(dtype)
    arrays = [a.astype(dtype), b.astype(dtype)]
    ways = [".privatize('k', 16)", ".split('k', 256).rfactor('ko').parallel('ko')",
            ".atomic('C').parallel('k')", ".vectorize('k', 8)"]  # fmt: skip
    agree(op, arrays, want, ways)
    for text in ways[:2]:
        run = dt.Schedule.parse(op, text)
        for _ in range(100):
            np.testing.assert_array_equal(run(*arrays), want)


# R39: joined nests keep what is read before it is written


def test_r39_a_consumer_that_reads_in_reverse() -> None:
    op = dt.op("f() -> G:\n F[y,x] = x + y where y in 0:48, x in 0:48\n"
               " G[y,x] = F[y,47-x] where y in 0:48, x in 0:48")  # fmt: skip
    said = refusal(lambda: op.schedule().compute_with("F", "G", "x"))
    assert said.startswith("compute_with(F, G, x): G[0,0] reads F[0,47] before it is written (")
    y, x = np.mgrid[:48, :48]
    agree(op, [], (y + 47 - x).astype(np.int64), [
        ".compute_with('F', 'G', 'y')", ".compute_at('F', 'G.y')", ".compute_at('F', 'G.x')",
        ".compute_with('F', 'G', 'y').parallel('y').vectorize('G.x', 8)",
    ])  # fmt: skip


def test_r39_a_neighbour_of_a_parallel_loop() -> None:
    op = dt.op("S[i] = a[i] * 2\nR[i] = S[i] - where(i > 0, S[i-1], 0)")
    said = refusal(lambda: op.schedule().compute_with("S", "R", "i").parallel("i"))
    assert said.startswith("parallel(i): S[0] is written by i=0 and read by i=1 (test_reports_")
    both = op.schedule().parallel("S.i").parallel("R.i")
    said = refusal(lambda: both.compute_with("S", "R", "i"))
    assert "S[0] is written by i=0 and read by i=1" in said
    said = refusal(lambda: op.schedule().parallel("S.i").compute_with("S", "R", "i"))
    assert said == "compute_with(S, R, i): loop S.i is parallel and loop R.i is serial"
    a = np.arange(37.0)
    agree(op, [a], np.diff(2 * a, prepend=0), [".compute_with('S', 'R', 'i')"])


# R40: a triangle whose loops are swapped


def test_r40_a_triangle_of_blocks() -> None:
    op = dt.op(
        "lower(A: f32[10, 3]) -> C:\n"
        " C[i,j] = sum(A[i,k] * A[j,k]) where i in 0:10, j in 0:10, j <= i\n"
        " C[i,j] = 0 where i in 0:10, j in 0:10, j > i"
    )
    a = np.random.default_rng(0).integers(-4, 5, (10, 3)).astype(np.float32)
    blocks = ".split('C.0.i', 4).split('C.0.j', 4)"
    agree(op, [a], np.tril(a @ a.T), [
        blocks + ".reorder('C.0.jo', 'C.0.ii')", blocks + ".reorder('C.0.io', 'C.0.jo', 'C.0.ii')",
        blocks + ".reorder('C.0.jo', 'C.0.ii').vectorize('C.0.ji')", ".parallel('C.0.i')",
        ".reorder('C.0.j', 'C.0.i').vectorize('C.0.i', 8)",
    ])  # fmt: skip
