"""Atomic updates on GPUs: emulation that knows what may meet, PTX for every type."""

from __future__ import annotations

import numpy as np
import pytest
from diptych.algo.dtypes import from_numpy
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.parse import parse
from diptych.codegen import simt
from diptych.codegen.gpu import emulate_op, kernel_of, ptx_of
from diptych.codegen.ptxas import assemble, find_ptxas
from diptych.lower.ir import Function, Stmt, Update, rebuild
from diptych.lower.ir_parse import parse_function
from diptych.sched.loop.schedule import Schedule

rng = np.random.default_rng(0)
HISTOGRAM = parse("hist(at: [N], x: [N]) -> h:\n  h: [7]\n  h[at[n]] += x[n]")


def spread(schedule: Schedule) -> Schedule:
    """The histogram's loop over blocks and threads."""
    return (
        schedule.atomic("h.update")
        .split("n", 8)
        .bind("no", "block.x")
        .bind("ni", "thread.x")
        .bind("h.init.d0", "thread.x")
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "int64", "float16"])
def test_a_histogram_over_blocks_and_threads(dtype: str) -> None:
    schedule = spread(Schedule(HISTOGRAM))
    at = rng.integers(0, 7, 61).astype(np.int32)
    x = rng.integers(0, 5, 61).astype(dtype)
    for seed in range(3):
        got = emulate_op(HISTOGRAM, (at, x), schedule, seed)
        np.testing.assert_array_equal(got, interpret(HISTOGRAM, at, x))
    types = [(from_numpy(a.dtype), a.shape) for a in (at, x)]
    text = ptx_of(HISTOGRAM, types, schedule, "sm_80")
    assert "atom" in text or "red" in text
    if find_ptxas() is not None:
        for target in ("sm_75", "sm_80", "sm_90"):
            assemble(ptx_of(HISTOGRAM, types, schedule, target), target)


@pytest.mark.parametrize("sign", ["max", "min", "*", "+"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int16", "uint8", "bool"])
def test_every_reducer_of_every_type(sign: str, dtype: str) -> None:
    op = parse(f"f(at: [N], x: [N]) -> h:\n  h: [3]\n  h[at[n]] {sign}= x[n]")
    at = rng.integers(0, 3, 40).astype(np.int32)
    x = rng.integers(0, 3, 40).astype(dtype)
    if dtype.startswith("float") and sign in ("max", "min"):
        x[11] = np.nan
    schedule = spread(Schedule(op))
    np.testing.assert_array_equal(emulate_op(op, (at, x), schedule), interpret(op, at, x))
    if find_ptxas() is not None:
        types = [(from_numpy(a.dtype), a.shape) for a in (at, x)]
        assemble(ptx_of(op, types, schedule, "sm_75"), "sm_75")


def test_r25_a_sum_over_two_blocks() -> None:
    """A reduction spread over several blocks: by atomics, never a silently partial sum."""
    op = parse("S[] = sum(X[i] * X[i])")
    schedule = (
        Schedule(op)
        .atomic("S")
        .split("i", 200)
        .split("ii", 50, into=("it", "iu"))
        .bind("io", "block.x")
        .bind("it", "thread.x")
    )
    x = np.arange(400, dtype=np.float64)
    for seed in range(3):
        assert emulate_op(op, (x,), schedule, seed) == 21253400.0


def _plain(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Update):
        return Update(stmt.buffer, stmt.index, stmt.reducer, stmt.value)
    return rebuild(stmt, _plain)


def test_without_atomics_the_emulation_finds_the_race() -> None:
    at, x = np.zeros(16, np.int32), np.ones(16, np.float32)
    types = [(from_numpy(a.dtype), a.shape) for a in (at, x)]
    function = kernel_of(HISTOGRAM, types, spread(Schedule(HISTOGRAM)))
    plain = Function(function.name, function.params, _plain(function.body))
    with pytest.raises(simt.Race) as caught:
        simt.emulate(plain, [at, x, np.zeros(7, np.float32)])
    assert "writes what thread" in str(caught.value)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("y[t] = h[0]", "race in f on h[0]: thread (x=1) reads what thread (x=0) updated, with"),
        ("h[0] = 1.0:f32", "race in f on h[0]: thread (x=1) writes what thread (x=0) updated, w"),
        ("h[0] sum= 1.0:f32", "race in f on h[0]: thread (x=1) writes what thread (x=0) upda"),
    ],
)
def test_reads_and_writes_still_race_with_atomic_updates(second: str, words: str) -> None:
    function = parse_function(
        "function f(h: param f32[1] align 4, y: param f32[2] align 4):\n"
        "    for t in 0 .. 2 thread.x:\n"
        "        if t == 0:\n"
        "            h[0] atomic sum= 1.0:f32\n"
        "        if t == 1:\n"
        f"            {second}\n"
    )
    for seed in range(20):
        with pytest.raises(simt.Race) as caught:
            simt.emulate(function, [np.zeros(1, np.float32), np.zeros(2, np.float32)], seed)
        if str(caught.value).startswith(words):
            return
    raise AssertionError(str(caught.value))
