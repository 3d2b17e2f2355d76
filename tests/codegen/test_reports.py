"""Rows of the user reports on vectors, unrolling and threads: each test carries its number."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen.gpu import emulate_op

Change = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def several_threads() -> Any:
    before = dt.threads()
    dt.threads(5)
    yield
    dt.threads(before)


def same(op: Any, change: Change, *arrays: Any) -> None:
    """The schedule gives what the interpreter gives, NaN included."""
    run = op.with_schedule(change(op.schedule()), strict=True)
    np.testing.assert_array_equal(run(*arrays), dt.interpret(op, *arrays))


# R02: max and min propagate NaN, whatever the schedule.

EXTREMA: list[Change] = [
    lambda s: s,
    lambda s: s.vectorize("k", 8),
    lambda s: s.split("k", 8).vectorize("ki").unroll("ko"),
    lambda s: s.split("k", 8).rfactor("ko").parallel("ko"),
    lambda s: s.privatize("k", copies=4),
    lambda s: s.privatize("k", copies=3).vectorize("ki"),
    lambda s: s.atomic("M").parallel("k"),
    lambda s: s.atomic("M").split("k", 8).vectorize("ki").parallel("ko"),
    lambda s: s.split("k", 5, tail="separate").unroll("ki"),
]


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("at", [0, 17, 36])
def test_r02_nan_in_a_reduction(name: str, at: int) -> None:
    op = dt.op(f"M[] = {name}(A[k])")
    a = np.arange(37, dtype=np.float32) - 5
    a[at] = np.nan
    for change in EXTREMA:
        run = op.with_schedule(change(op.schedule()), strict=True)
        assert np.isnan(run(a))
    gpu = op.schedule().atomic("M").split("k", 8).bind("ko", "block.x").bind("ki", "thread.x")
    assert np.isnan(emulate_op(op, (a,), gpu))


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("at", [0, 17, 36])
def test_r02_nan_on_either_side(name: str, at: int) -> None:
    op = dt.op(f"Y[i] = {name}(A[i], B[i])")
    clean, spoiled = np.arange(37, dtype=np.float32), np.full(37, 9, np.float32)
    spoiled[at] = np.nan
    changes: list[Change] = [
        lambda s: s,
        lambda s: s.vectorize("i", 8),
        lambda s: s.parallel("i"),
        lambda s: s.split("i", 8).unroll("ii"),
    ]
    for change in changes:
        for arrays in ((clean, spoiled), (spoiled, clean)):
            same(op, change, *arrays)


# R09, R62: more lanes than there are iterations.


def test_r09_more_lanes_than_a_tile_is_wide() -> None:
    op = dt.op("Y[y,x] = (A[y,x] + A[y,x+1] + A[y,x+2]) / 3")
    a = np.random.default_rng(0).integers(0, 9, (16, 18)).astype(np.float32)
    with pytest.raises(dt.ScheduleError) as caught:
        op.schedule().tile(y=2, x=2).vectorize("xi", 8)
    line = str(caught.value).partition(":")[2]
    assert str(caught.value).startswith(
        "vectorize(xi, 8): loop Y.xi has extent 2 (test_reports.py:"
    )
    assert line.endswith("); use at most 2 lanes, or split x by 8 first")
    same(op, lambda s: s.tile(y=2, x=2).vectorize("xi"), a)
    same(op, lambda s: s.tile(y=2, x=8).vectorize("xi", 8), a)


@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (3, 1), (1, 1), (7, 9)])
@pytest.mark.parametrize(
    "change",
    [
        lambda s: s,
        lambda s: s.vectorize("x", 8),
        lambda s: s.vectorize("x"),
        lambda s: s.split("x", 8, tail="separate").vectorize("xi"),
        lambda s: s.split("x", 8).vectorize("xi").parallel("y"),
        lambda s: s.tile(y=4, x=8).vectorize("xi").unroll("yi"),
        lambda s: s.reverse("x").vectorize("x", 16),
    ],
)
def test_r62_dims_smaller_than_the_vector(shape: tuple[int, int], change: Change) -> None:
    op = dt.op("Y[y,x] = A[y,x] + B[y,x]")
    a, b = (np.random.default_rng(n).random(shape, np.float32) for n in (0, 1))
    same(op, change, a, b)


def test_r62_a_strided_convolution_of_width_13() -> None:
    op = dt.op("Y[x] = sum(A[2*x+k] * W[k])")
    a, w = np.arange(27, dtype=np.float32), np.array([1, 2, 3], np.float32)
    for tail in ("guard", "separate"):
        same(op, lambda s, t=tail: s.split("x", 8, tail=t).reorder("xo", "k", "xi")
             .vectorize("xi"), a, w)  # fmt: skip


# R17: nests of splits and unrolls compile soon, or are refused with the number of statements.


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (lambda s: s.split("y", 32).unroll("yi").split("x", 64), None),
        (lambda s: s.split("y", 32).split("yi", 32).unroll("yii").split("x", 64), None),
        (lambda s: s.split("y", 32, tail="separate").split("yi", 32, tail="separate")
         .split("yio", 64, tail="separate").split("x", 64, tail="separate").unroll("yii"), None),
        (lambda s: s.split("y", 32).split("yi", 32).split("yio", 64).split("x", 64)
         .reorder("xo", "yo", "yioo", "yioi", "yii", "xi").unroll("yii").vectorize("xi"), None),
        (lambda s: s.split("y", 32).split("yi", 32).split("yio", 64).unroll("yioi").unroll("yii"),
         "unroll(yii): the unrolled body of loop F.yioi (test_reports.py:LINE) would "
         "have 18432 statements, limit 1536, an inner loop counting for 8; split it and unroll the "
         "inner loop"),
    ],
)  # fmt: skip
def test_r17_padded_splits_under_an_unrolled_loop(change: Change, refusal: str | None) -> None:
    op = dt.op("F[y,x] = i32(y + x) where y in 0:128, x in 0:128")
    start = time.process_time()
    if refusal is None:
        same(op, change)
    else:
        with pytest.raises(dt.ScheduleError) as caught:
            change(op.schedule())
        before, _, after = str(caught.value).partition("test_reports.py:")
        said = f"{before}test_reports.py:LINE){after.partition(')')[2]}"
        assert said == refusal
    assert time.process_time() - start < 10


# R57: idle lanes hold the identity.


@pytest.mark.parametrize("lanes", [4, 8, 16, 32, 64])
@pytest.mark.parametrize(
    ("name", "dtype", "low", "high"),
    [
        ("min", "int8", 5, 100),
        ("max", "int8", -100, -5),
        ("max", "int16", -300, -5),
        ("min", "uint8", 5, 100),
        ("prod", "int32", 1, 3),
        ("sum", "uint8", 1, 255),
        ("max", "float32", -9, -1),
        ("all", "bool", 1, 2),
    ],
)
def test_r57_idle_lanes_hold_the_identity(
    name: str, dtype: str, low: int, high: int, lanes: int
) -> None:
    op = dt.op(f"M[] = {name}(A[k])")
    rng = np.random.default_rng(lanes)
    changes: list[Change] = [
        lambda s: s.vectorize("k", lanes),
        lambda s: s.atomic("M").split("k", lanes).vectorize("ki").parallel("ko"),
    ]
    for n in (1, 2, 3, lanes - 1, lanes, lanes + 1, 33, 70):
        a = rng.integers(low, high, n).astype(dtype)
        for change in changes:
            same(op, change, a)


def test_r57_on_a_gpu_with_idle_threads() -> None:
    op = dt.op("M[] = min(A[k])")
    schedule = op.schedule().atomic("M").split("k", 32).bind("ko", "block.x")
    schedule = schedule.bind("ki", "thread.x")
    for n in (1, 31, 33, 70):
        a = np.random.default_rng(n).integers(5, 100, n).astype(np.int8)
        assert emulate_op(op, (a,), schedule) == a.min()
