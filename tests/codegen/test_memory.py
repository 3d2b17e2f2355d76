"""Kernels whose temporaries lie otherwise, whose stores stream, and that prefetch."""

from __future__ import annotations

import re
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen.emit_lanes import NARROW
from diptych.codegen.host import machine
from diptych.codegen.symbols import ALLOWED, undefined_symbols
from diptych.lower.ir import If, Prefetch, walk
from diptych.lower.kernel import translate
from guard import Fenced

rng = np.random.default_rng(0)
CHAIN = dt.op(
    "s[i,j] = x[i,j] + 1\nt[i,j] = s[i,j] * x[i,j]\ny[j,i] = t[i,j] - s[i,j]", returns="y"
)
GATHER = dt.op("y[n,d] = w[at[n],d]")
SIZES = {"I": 13, "J": 19}


@pytest.mark.parametrize("shape", [(13, 19), (16, 32), (1, 1), (5, 64), (0, 3)])
@pytest.mark.parametrize(
    "text",
    [
        '.layout("t", "j//8", "i", "j%8")',
        '.layout("t", "j", "i").vectorize("t.j", 8).vectorize("y.i", 4)',
        '.layout("t", "j%3", "j//3", "i*2").parallel("t.i")',
        '.pad("t", i=8, j=16).vectorize("t.j", 16).vectorize("y.i")',
        '.pad("t", d0=4, j=5).layout("t", "j", "i").pad("s", i=7)',
        '.align("t", 4096).align("s", 2048).parallel("t.i")',
        '.parallel("y.j").compute_at("t", "y.j").align("t", 1024)',
        '.stream("y").vectorize("y.i").parallel("y.j")',
        '.stream("t").stream("s").vectorize("t.j").parallel("t.i").parallel("s.i")',
        '.stream("y").stream("t").unroll("t.j")',
        '.prefetch("x", "s.j", 8)',
        '.prefetch("x", "s.i", 1).vectorize("s.j")',
        '.prefetch("x", "t.i", 2).prefetch("s", "t.j", 4).parallel("t.i")',
        '.prefetch("x", "s.j", 3).vectorize("s.j").prefetch("s", "t.j", 100).unroll("t.j")',
        '.split("t.i", 4, tail="separate").prefetch("s", "t.io", 1).vectorize("t.j", 4)',
        '.reverse("t.i").prefetch("s", "t.i", 2)',
    ],
)  # fmt: skip
def test_results_stay(text: str, shape: tuple[int, int]) -> None:
    x = rng.integers(-3, 4, shape).astype(np.float32)
    schedule = type(CHAIN.schedule()).parse(CHAIN, text)
    out = np.full(shape[::-1], np.nan, np.float32)
    np.testing.assert_array_equal(
        CHAIN.with_schedule(schedule, strict=True)(x, out=out), dt.interpret(CHAIN, x)
    )


def test_streamed_stores_from_sixteen_threads_are_seen_by_their_readers() -> None:
    """t is written past the caches by 16 threads, and read by others in the next loop."""
    op = dt.op("f(x: [N]) -> y:\n  t[i] = x[i] * 2\n  y[i] = t[N - 1 - i] + 1")
    schedule = op.schedule().stream("t").stream("y")
    schedule = schedule.split("t.i", 64).split("y.i", 64)
    schedule = schedule.vectorize("t.ii").vectorize("y.ii").parallel("t.io").parallel("y.io")
    run = op.with_schedule(schedule, strict=True)
    before = dt.threads()
    dt.threads(16)
    try:
        x = np.arange(10000, dtype=np.float32)
        for _ in range(100):
            np.testing.assert_array_equal(run(x), x[::-1] * 2 + 1)
    finally:
        dt.threads(before)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "float16"])
@pytest.mark.parametrize("more", [1, 7, 15])
def test_rows_that_begin_amid_lines_are_streamed_line_by_line(dtype: str, more: int) -> None:
    """Nothing before the first row and behind the last is touched, wherever memory starts."""
    op = dt.op("t[i,j] = x[i,j] + x[i,0]\ny[i,j] = t[i,j] - x[0,j]", returns="y")
    schedule = op.schedule().compute_at("t", "y.i").stream("y").vectorize("t.j").vectorize("y.j")
    x = rng.integers(-9, 9, (5, 16 * 64 // np.dtype(dtype).itemsize + more)).astype(dtype)
    run = op.with_schedule(schedule, strict=True)
    for at_end in (False, True):
        given, out = Fenced(x, at_end=at_end).array, Fenced(np.zeros_like(x), at_end=at_end).array
        np.testing.assert_array_equal(run(given, out=out), x + x[:, :1] - x[0])
    assert "y.j.line" in run.last.loop_ir and "turn" not in run.last.loop_ir


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint64"])
@pytest.mark.parametrize("wide", [1, 2])
@pytest.mark.parametrize("more", [0, 1, 7, 9, 17])
def test_rows_of_a_tile_are_streamed_line_by_line(dtype: str, wide: int, more: int) -> None:
    """Each row begins elsewhere in a line; nothing outside of the rows is touched."""
    op = dt.op("h[i,j] = x[i,j] - x[i,j+1]\ny[i,j] = h[i,j] + h[i+1,j]", returns="y")
    lanes = 64 // np.dtype(dtype).itemsize
    schedule = op.schedule().split("y.i", 3).split("y.j", wide * lanes)
    schedule = schedule.reorder("y.io", "y.jo", "y.ii", "y.ji").compute_at("h", "y.jo")
    schedule = schedule.vectorize("h.j").vectorize("y.ji").unroll("h.i").unroll("y.ii").stream("y")
    x = rng.integers(0, 9, (8, 34 * lanes + more + 1)).astype(dtype)
    run = op.with_schedule(schedule, strict=True)
    h = x[:, :-1] - x[:, 1:]
    for at_end in (False, True):
        given = Fenced(x, at_end=at_end).array
        out = Fenced(np.zeros_like(h[1:]), at_end=at_end).array
        np.testing.assert_array_equal(run(given, out=out), h[:-1] + h[1:])
    if machine().vector_bytes == 64:
        assert ("y.line" in run.last.loop_ir) == (more % lanes != 0)


def test_rows_of_a_dynamic_length_are_streamed_line_by_line() -> None:
    op = dt.op("dynamic N <= 900\ny[i,n] = 2 * x[i,n]")
    schedule = op.schedule().split("y.n", 16).split("y.i", 2)
    schedule = schedule.reorder("y.io", "y.no", "y.ii", "y.ni").vectorize("y.ni").unroll("y.ii")
    run = op.with_schedule(schedule.stream("y"), strict=True)
    for n in (900, 1, 15, 16, 17, 300, 641):
        x = rng.random((5, n), np.float32)
        np.testing.assert_array_equal(run(x), 2 * x)


@pytest.mark.parametrize(
    "text",
    [
        '.prefetch("w", "n", 4)',
        '.prefetch("w", "n", 4).vectorize("d")',
        '.reorder("d", "n").prefetch("w", "n", 2).vectorize("n")',
        '.prefetch("at", "n", 3)',
        '.prefetch("w", "n", 1000).prefetch("at", "n", 7).parallel("n")',
    ],
)  # fmt: skip
def test_prefetching_what_data_choose_reads_nothing_foreign(text: str) -> None:
    """The indices stand before a protected page; beyond the last there is nothing to read."""
    w = rng.random((7, 5)).astype(np.float32)
    fenced = Fenced(rng.integers(0, 7, 9).astype(np.int32), at_end=True)
    at = fenced.array
    schedule = type(GATHER.schedule()).parse(GATHER, text)
    np.testing.assert_array_equal(GATHER.with_schedule(schedule, strict=True)(w, at), w[at])


def test_prefetching_by_no_indices_reads_nothing() -> None:
    """There is nothing to clamp to, and a condition keeps the statement itself away."""
    op = dt.op("f(w, at: [M], x) -> y:\n  y[d] = sum(where(k < M, w[at[k],d], 1) * x[k], over=k)")
    run = type(op.schedule()).parse(op, '.reorder("k", "d").prefetch("w", "k", 4)')
    w, x = rng.random((7, 5)).astype(np.float32), np.ones(9, np.float32)
    at = Fenced(np.zeros(0, np.int32), at_end=True)
    np.testing.assert_array_equal(op.with_schedule(run, strict=True)(w, at.array, x), [9] * 5)


def test_what_a_choice_guards_is_read_only_where_it_is_taken() -> None:
    """The inner condition is the same for all k, but n says whether it may be asked."""
    op = dt.op("y[i] = sum(where(k < n[i], where(m[at[i]] > 0, x[i,k], -x[i,k]), 0.0))")
    n, m = np.array([0, 0, 40, 7], np.int32), np.array([1, 0, -1], np.int32)
    at, x = np.array([2_000_000_000, -1, 0, 2], np.int32), rng.random((4, 40)).astype(np.float32)
    arrays = {"n": n, "m": m, "at": at, "x": x}
    expected = [0, 0, x[2].sum(dtype=np.float64), -x[3, :7].sum(dtype=np.float64)]
    np.testing.assert_allclose(op(**arrays), expected, rtol=1e-6)


def test_what_llvm_is_told() -> None:
    llvm = CHAIN.schedule().stream("y").prefetch("x", "s.i", 1).align("t", 256)
    text = llvm.source("llvm", **SIZES)
    assert "!nontemporal" in text
    assert "fence seq_cst" in text
    assert "llvm.prefetch" in text
    plain = CHAIN.schedule().source("llvm", **SIZES)
    assert "!nontemporal" not in plain and "fence" not in plain and "llvm.prefetch" not in plain


def test_an_innermost_walk_prefetches_once_a_line() -> None:
    op = dt.op("y[i] = x[i] + 1")
    text = op.schedule().prefetch("x", "i", 64).source("llvm", I=1000)
    assert "llvm.prefetch" in text
    body = translate(op.schedule().prefetch("x", "i", 64).nest(sizes={"I": 1000}), "f").body
    guards = [item for item in walk(body) if isinstance(item, If)]
    assert len(guards) == 1 and isinstance(guards[0].then, Prefetch)


def test_alignment_is_found_within_the_workspace(native: Any) -> None:
    """Wherever the workspace starts, nothing beyond it is touched."""
    kernel = native(
        "function f(x: param f32[16] align 4, y: param f32[16] align 4):\n"
        "    alloc t: heap f32[16] align 4096:\n"
        "        for i in 0 .. 16 vector(16):\n"
        "            t[i] = x[i]\n"
        "        for i in 0 .. 16 vector(16):\n"
        "            y[i] = t[15 - i]\n"
    )
    size = kernel.emitted.workspace.bytes(1)
    memory = np.zeros(size + 8192, np.uint8)
    base = memory.ctypes.data + -memory.ctypes.data % 64
    for shift in range(0, 4096, 64):
        memory.fill(0xA5)
        x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
        kernel.code(0, base + shift, x.ctypes.data, y.ctypes.data)
        np.testing.assert_array_equal(y, x[::-1])
        written = np.flatnonzero(memory != 0xA5) + memory.ctypes.data
        assert written.min() >= base + shift and written.max() < base + shift + size
        assert (written.min() // 64 * 64) % 4096 == 0
    assert undefined_symbols(kernel.object) <= ALLOWED


@pytest.mark.parametrize("wide", [8, 16])
def test_partial_sums_of_each_lane_are_its_own(wide: int) -> None:
    """However they are indexed, no two lanes add to the same."""
    text = "y[p] = sum(x[i,j], over=(i in 0:N, j in 0:M), where=i + j == p) where p in 0:N+M-1"
    op = dt.op(f"f(x: [N, M]) -> y:\n {text}")
    x = np.arange(63, dtype=np.int32).reshape(7, 9)
    made = op.schedule().split("j", 5).vectorize("p", wide).rfactor("jo")
    np.testing.assert_array_equal(made(x), dt.interpret(op, x))


def test_cells_of_each_lane_are_its_own_where_quotients_index_them() -> None:
    a, b = np.arange(144, dtype="f4").reshape(48, 3), np.arange(51, dtype="f4").reshape(3, 17)
    product, total = dt.op("C[i,j] = sum(A[i,k] * B[k,j])"), dt.op("y[i] = sum(x[i,j])")
    made = product.schedule().split("i", 16).fuse("ii", "j").rfactor("k").vectorize("ii_j", 8)
    np.testing.assert_array_equal(product.with_schedule(made, strict=True)(a, b), a @ b)
    made = total.schedule().stage("y", at="i", scope="stack").split("i", 17).split("ii", 3)
    made = made.split("iii", 4).vectorize("iiii")
    np.testing.assert_array_equal(total.with_schedule(made, strict=True)(a), a.sum(1))


@pytest.mark.parametrize("dtype", ["u1", "i2", "f2", "f4", "bool"])
@pytest.mark.parametrize("rows", [64, 61])
def test_many_lanes_of_narrow_elements_are_a_loop(dtype: str, rows: int) -> None:
    """What no instruction gathers or scatters is written out a limited number of times."""
    x = np.arange(66 * (rows + 1)).reshape(rows + 1, 66).astype(dtype)
    op = dt.op("y[i,j] = where(x[i,j] > x[i+1,j+2], x[i,j+2], x[i,j])")
    made = op.schedule().unroll("j").vectorize("i", 64)
    np.testing.assert_array_equal(made(x), dt.interpret(op, x))
    text = made.source("llvm")
    assert (re.search(r"@(gather|scatter)\.v", text) is not None) == (dtype != "f4")
    assert (
        dtype == "f4" or text.count("masked.gather") + text.count("masked.scatter") <= NARROW / 16
    )
