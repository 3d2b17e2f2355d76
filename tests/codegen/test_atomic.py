"""Atomic updates on the host: parallel loops whose only conflicts they are."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen.symbols import ALLOWED, undefined_symbols

rng = np.random.default_rng(0)
HISTOGRAM = dt.op("hist(at: [N], x: [N]) -> h:\n  h: [13]\n  h[at[n]] += x[n]")


@pytest.fixture(autouse=True)
def many_threads() -> Any:
    before = dt.threads()
    dt.threads(16)
    yield
    dt.threads(before)


@pytest.mark.parametrize("sign", ["+", "*", "max", "min"])
@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32",
     "int64", "uint64", "bool"],
)  # fmt: skip
def test_every_reducer_of_every_type(sign: str, dtype: str) -> None:
    """Few cells and many updates: one lost shows."""
    op = dt.op(f"f(at: [N], x: [N]) -> h:\n  h: [3]\n  h[at[n]] {sign}= x[n]")
    at = rng.integers(0, 3, 4001).astype(np.int32)
    x = rng.integers(0, 4, 4001).astype(dtype)
    if sign == "*" and np.dtype(dtype).kind in "fi":
        x = (rng.integers(0, 2, 4001) * 2 - 1).astype(dtype)
    if sign in ("max", "min") and np.dtype(dtype).kind == "f":
        x[at == 1] = -np.abs(x[at == 1])
        x[77] = np.nan
    want = dt.interpret(op, at, x)
    schedules = [
        op.schedule().atomic("h").parallel("n"),
        op.schedule().atomic("n").split("n", 96).vectorize("ni").parallel("no"),
    ]
    for schedule in schedules:
        run = op.with_schedule(schedule, strict=True)
        for _ in range(3):
            np.testing.assert_array_equal(run(at, x), want)


def test_a_hundred_repetitions_on_sixteen_threads() -> None:
    """R32's counts: positions repeat, every update arrives, what nobody names is 0."""
    at = rng.integers(0, 11, 10000).astype(np.int32)
    x = rng.integers(0, 100, 10000).astype(np.float64)
    run = HISTOGRAM.with_schedule(HISTOGRAM.schedule().atomic("h").parallel("n"), strict=True)
    want = np.bincount(at, weights=x, minlength=13)
    for _ in range(100):
        np.testing.assert_array_equal(run(at, x), want)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_r38_a_reduction_loop_in_parallel(dtype: str) -> None:
    op = dt.op("C[i,j] = sum(A[i,k] * B[k,j])")
    a = rng.integers(-4, 5, (2, 4096)).astype(dtype)
    b = rng.integers(-4, 5, (4096, 2)).astype(dtype)
    schedules = [
        op.schedule().atomic("C").parallel("k"),
        op.schedule().atomic("C").split("k", 64).reorder("ko", "i", "j", "ki").parallel("ko"),
        op.schedule().atomic("C").split("k", 64).reorder("ko", "i", "j", "ki").parallel("ko")
        .vectorize("ki"),
    ]  # fmt: skip
    for schedule in schedules:
        run = op.with_schedule(schedule, strict=True)
        for _ in range(100):
            np.testing.assert_array_equal(run(a, b), a @ b)


def test_r25_a_sum_on_sixteen_threads() -> None:
    op = dt.op("S[] = sum(X[i] * X[i])")
    run = op.with_schedule(op.schedule().atomic("S").parallel("i"), strict=True)
    for _ in range(100):
        assert run(np.arange(400, dtype=np.float64)) == 21253400.0


def test_r72_private_and_conditional_increments() -> None:
    op = dt.op("f(x: i64[N]) -> S:\n  S[] = sum(x[i] + where(i > 10, 1, 0))")
    run = op.with_schedule(op.schedule().atomic("S").parallel("i"), strict=True)
    for n, want in ((0, 0), (1, 1), (10, 10), (100000, 199989)):
        assert run(np.ones(n, np.int64)) == want


def test_an_update_that_no_loop_shares_stays_plain() -> None:
    op = dt.op("C[i] = sum(A[i,k])")
    a = np.ones((4, 8), np.float32)
    schedule = op.schedule().atomic("C").parallel("i")
    assert "atomic" not in schedule.source("llvm", I=4, K=8).replace("op_", "")
    shared = op.schedule().atomic("C").reorder("k", "i").parallel("k")
    assert "atomicrmw fadd" in shared.source("llvm", I=4, K=8)
    np.testing.assert_array_equal(op.with_schedule(shared, strict=True)(a), [8, 8, 8, 8])


@pytest.mark.parametrize("reducer", ["sum", "prod", "max", "min", "any", "all"])
@pytest.mark.parametrize("dtype", ["bool", "i8", "u16", "i32", "u64", "f16", "bf16", "f32", "f64"])
def test_objects_call_no_library(native: Any, dtype: str, reducer: str) -> None:
    if (dtype == "bool") != (reducer in ("any", "all")):
        return
    kernel = native(
        f"function f(h: param {dtype}[8] align 8, x: param {dtype}[8] align 8, at: param i64[8]):\n"
        f"    h[at[0]] atomic {reducer}= x[0]\n"
        f"    for i in 0 .. 8 vector(8):\n"
        f"        h[at[i]] atomic {reducer}= x[i]\n"
        f"        h[0] atomic {reducer}= x[i]\n"
        f"        h[i] atomic {reducer}= x[i]\n"
    )
    assert "monotonic" in kernel.text
    assert undefined_symbols(kernel.object) <= ALLOWED


def test_an_output_that_is_not_aligned_is_refused() -> None:
    out = np.zeros(13 * 4 + 1, np.uint8)[1:].view(np.float32)
    at, x = np.zeros(9, np.int32), np.ones(9, np.float32)
    run = HISTOGRAM.with_schedule(HISTOGRAM.schedule().atomic("h").parallel("n"), strict=True)
    with pytest.raises(dt.ScheduleError) as caught:
        run(at, x, out=out)
    assert str(caught.value) == (
        "hist: h is updated atomically, and its elements are not aligned to 4 bytes; give an "
        "aligned array, or use privatize"
    )
