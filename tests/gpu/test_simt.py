"""GPU kernels on the host: right answers, and races found whatever the values are."""

from __future__ import annotations

import re

import numpy as np
import pytest
from diptych.algo.errors import InternalError
from diptych.codegen.simt import Race, emulate, emulation
from diptych.lower.ir_parse import parse_function
from diptych.lower.run import run
from diptych.lower.verify import verify

rng = np.random.default_rng(0)


def matrices(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
    return a, b, np.full((m, n), np.nan, np.float32)


@pytest.mark.parametrize("sizes", [(32, 32, 48), (50, 40, 70), (1, 1, 1), (17, 15, 25)])
def test_matmul_with_shared_memory(matmul, prepare, sizes):
    a, b, c = matrices(*sizes)
    for seed in range(3):
        c.fill(np.nan)
        emulate(prepare(matmul(*sizes)), [a, b, c], seed)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_the_host_code_is_loop_ir_that_runs_anywhere(matmul, prepare):
    function = prepare(matmul(5, 6, 7, tile=4, depth=3))
    verify(emulation(function).function)
    a, b, c = matrices(5, 6, 7)
    emulate(function, [a, b, c], run=run)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_a_barrier_that_is_missing_is_found_though_values_are_right(
    matmul, prepare, without_barrier, seed
):
    function = without_barrier(prepare(matmul(32, 32, 48)), 0)
    a, b, c = matrices(32, 32, 48)
    with pytest.raises(Race) as race:
        emulate(function, [a, b, c], seed)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert re.fullmatch(
        r"race in matmul on [AB]\.shared\[\d+, \d+\]: block \(x=\d, y=\d\), "
        r"thread \(x=\d+, y=\d+\) writes what thread \(x=\d+, y=\d+\) read, "
        r"with no barrier between",
        str(race.value),
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_other_barrier_too(matmul, prepare, without_barrier, seed):
    function = without_barrier(prepare(matmul(32, 32, 48)), 1)
    with pytest.raises(Race):
        emulate(function, list(matrices(32, 32, 48)), seed)


HEAD = "function f(x: param f32[64], y: param f32[64]):\n"
RACES = {
    "S[t] = x[t]\ny[t] = S[(t + 1) % 4]": (
        r"race in f on S\[\d\]: thread \(x=\d\) reads what no thread of its block has "
        r"written|race in f on S\[\d\]: thread \(x=\d\) (reads what thread \(x=\d\) "
        r"wrote|writes what thread \(x=\d\) read), with no barrier between"
    ),
    "S[0] = x[t]": (
        r"race in f on S\[0\]: thread \(x=\d\) writes what thread \(x=\d\) wrote, with "
        r"no barrier between"
    ),
    "y[0] sum= x[t]": (
        r"race in f on y\[0\]: thread \(x=\d\) writes what thread \(x=\d\) wrote, with "
        r"no barrier between"
    ),
    "y[t] = S[t]": (
        r"race in f on S\[\d\]: thread \(x=\d\) reads what no thread of its block has "
        r"written"
    ),
}


def written(body: str) -> str:
    lines = "".join(f"            {line}\n" for line in body.splitlines())
    return f"{HEAD}    for t in 0 .. 4 thread.x:\n        alloc S: shared f32[4]:\n{lines}"


@pytest.mark.parametrize("body", RACES)
def test_races(body: str):
    x = np.arange(64, dtype=np.float32)
    for seed in range(5):
        with pytest.raises(Race) as race:
            emulate(parse_function(written(body)), [x, np.zeros_like(x)], seed)
        assert re.fullmatch(RACES[body], str(race.value))


def test_blocks_race_whatever_barriers_there_are():
    text = """
function f(x: param f32[8], y: param f32[8]):
    for b in 0 .. 4 block.x:
        for t in 0 .. 2 thread.x:
            y[2*b + t] = x[2*b + t]
            barrier
            y[2*b + t] sum= y[7 - 2*b - t]
"""
    x = np.ones(8, np.float32)
    with pytest.raises(Race) as race:
        emulate(parse_function(text), [x, np.zeros_like(x)])
    assert str(race.value).endswith("of another block wrote, with no barrier between") or str(
        race.value
    ).endswith("of another block read, with no barrier between")


def test_a_barrier_in_divergent_flow_is_refused():
    x = np.ones(64, np.float32)
    with pytest.raises(InternalError) as refused:
        emulate(parse_function(written("if t < 2:\n    S[t] = x[t]\n    barrier")), [x, x.copy()])
    assert str(refused.value) == (
        "a barrier stands where not all threads of a block come by, in\n"
        "    if t < 2:\n        S[t] = x[t]\n        barrier"
    )


def test_each_thread_has_registers_of_its_own_across_barriers(prepare):
    function = prepare("""
function f(x: param f32[2, 8], y: param f32[2, 8]):
    for b in 0 .. 2 block.x:
        alloc S: shared f32[8]:
            alloc r: register f32[8]:
                for i in 0 .. 8 thread.x:
                    r[i] = x[b, i] * 2.0:f32
                for j in 0 .. 8 thread.x:
                    S[j] = x[b, j]
                for k in 0 .. 8 thread.x:
                    y[b, k] = r[k] + S[7 - k]
""")
    x = rng.random((2, 8), np.float32)
    y = np.full_like(x, np.nan)
    emulate(function, [x, y])
    np.testing.assert_array_equal(y, 2 * x + x[:, ::-1])


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize(
    ("dtype", "poison"), [("f32", np.nan), ("i32", (1 << 30) + 0x15), ("u8", 0x55), ("bool", True)]
)
def test_what_a_thread_has_not_written_is_poison(dtype: str, poison: object, barrier: bool):
    function = parse_function(f"""
function f(y: param {dtype}[2, 3]):
    for b in 0 .. 2 block.x:
        for t in 0 .. 3 thread.x:
            alloc r: local {dtype}[2]:
                {"barrier" if barrier else "y[b, t] = r[0]"}
                y[b, t] = r[1]
""")
    y = np.zeros((2, 3), {"f32": "f4", "i32": "i4", "u8": "u1", "bool": "?"}[dtype])
    emulate(function, [y])
    np.testing.assert_array_equal(y, np.full_like(y, poison))


def test_launches_one_after_the_other_order_global_memory(prepare):
    function = prepare("""
function f(x: param f32[8], y: param f32[8]):
    alloc h: heap f32[8]:
        for i in 0 .. 8 block.x:
            h[i] = x[i] + 1.0:f32
        for j in 0 .. 8 thread.x:
            y[j] = h[7 - j]
""")
    x = rng.random(8, np.float32)
    y = np.full_like(x, np.nan)
    emulate(function, [x, y])
    np.testing.assert_array_equal(y, x[::-1] + 1)


def test_a_guarded_read_is_no_read(prepare):
    function = prepare("""
function f(x: param f32[8], y: param f32[8]):
    alloc S: shared f32[8]:
        for i in 0 .. 4 thread.x:
            S[i] = x[i]
        for j in 0 .. 8 thread.x:
            y[j] = where(j < 4, S[min(3 - j, 3)], 0.0:f32)
""")
    x = rng.random(8, np.float32)
    y = np.full_like(x, np.nan)
    emulate(function, [x, y])
    np.testing.assert_array_equal(y, [*x[3::-1], 0, 0, 0, 0])
