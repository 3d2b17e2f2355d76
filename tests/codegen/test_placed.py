"""What is computed, kept and staged elsewhere gives the interpreter's values at every size."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.isl import raw
from diptych.algo.tensor_expr.points import points
from guard import Fenced

Array = np.ndarray[Any, Any]
EXAMPLES = Path(dt.__file__).parent / "examples"
RNG = np.random.default_rng(5)


def small(*shape: int, dtype: str = "float32") -> Array:
    return RNG.integers(-4, 5, shape).astype(dtype)


def agrees(op: Any, schedule: Any, *arrays: Array) -> None:
    """Inputs and outputs end at a protected page; outputs begin as nonsense."""
    arrays = tuple(Fenced(a, at_end=True).array for a in arrays)
    want = dt.interpret(op, *arrays)
    several = isinstance(want, tuple)
    out = [Fenced(np.full_like(w, 99), at_end=True).array for w in (want if several else [want])]
    op.with_schedule(schedule, strict=True)(*arrays, out=tuple(out) if several else out[0])
    for got, expected in zip(out, want if several else [want], strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("factor", [1, 2, 3, 50, 100, 101, 102, 128])
def test_r08_a_reduction_under_a_split_loop_of_its_reader(factor: int) -> None:
    op = dt.op("B[i] = sum(A[i,k])\nC[i] = B[i]")
    made = op.schedule().split("C.i", factor)
    for schedule in (made.compute_at("B", "C.ii"), made.compute_at("B", "C.io")):
        agrees(op, schedule, small(101, 101))


@pytest.mark.parametrize("tail", ["guard", "separate"])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 100])
def test_r43_staged_tiles(size: int, tail: str) -> None:
    op = dt.op("C[i,j] = sum(A[i,k] * B[k,j])")
    made = op.schedule().split("i", 16, tail=tail).split("j", 16, tail=tail)
    made = made.split("k", 16, tail=tail).reorder("io", "jo", "ko", "ii", "ji", "ki")
    made = made.stage("A", at="ko").stage("B", at="ko", layout=("j//8", "k", "j%8"))
    agrees(op, made, small(size, size), small(size, size))


@pytest.mark.parametrize("dtype", ["int8", "float16", "float64"])
@pytest.mark.parametrize("width", [4, 8, 16])
def test_r44_a_copy_before_a_guarded_store(width: int, dtype: str) -> None:
    op = dt.op("T[x] = A[x]\nY[x] = T[x]")
    made = op.schedule().split("Y.x", width).compute_at("T", "Y.xo")
    made = made.vectorize("Y.xi").vectorize("T.x", width)
    for n in (1, 2, 7, 15, 16, 17, 33):
        agrees(op, made, small(n, dtype=dtype))


LAYER = dt.op("C[i,j] = max(sum(A[i,k] * B[k,j]) + bias[j], 0)")


def blis(tail: str) -> Any:
    """The five loops around a register tile, small enough for small sizes."""
    made = LAYER.schedule().split("j", 32, into=("jc", "jb"), tail=tail)
    made = made.split("jb", 16, into=("jr", "ji"), tail=tail)
    made = made.split("k", 8, into=("pc", "kp"), tail=tail)
    made = made.split("i", 12, into=("ic", "ib"), tail=tail)
    made = made.split("ib", 4, into=("ir", "ii"), tail=tail)
    made = made.reorder("jc", "pc", "ic", "jr", "ir", "kp", "ii", "ji")
    made = made.compute_at("C.final", "ir").compute_at("C.init", "ir")
    made = made.stage("C", at="ir", scope="register")
    made = made.stage("B", at="pc", scope="heap", layout=("j//16", "k", "j%16"))
    made = made.stage("A", at="ic", layout=("i//4", "k", "i%4"))
    return made.unroll("ii").vectorize("ji").parallel("ic")


@pytest.mark.parametrize("tail", ["guard", "separate"])
def test_blis_with_an_epilogue(tail: str) -> None:
    made = blis(tail)
    for m, n, k in [(1, 1, 1), (12, 32, 8), (13, 33, 17), (5, 40, 7), (24, 64, 16), (8, 8, 0)]:
        agrees(LAYER, made, small(m, k), small(k, n), small(n))


FILTERS = [
    "t[y,x] = a[y,x] + 2*a[y,x+1] + a[y,x+2]\nb[y,x] = t[y,x] + 2*t[y+1,x] + t[y+2,x]",
    "t[y,x] = a[y,2*x] + a[y,2*x+1]\nb[y,x] = t[2*y,x] + t[2*y+1,x]",
    "t[y,x] = a[y,2*x] + a[y,2*x+2]\nb[y,x] = t[2*y,x] + t[2*y+1,x] - t[2*y+3,x]",
    "f(a: [H, W], w: [3]) -> b:\n  t[y,x] = sum(a[y,x+k] * w[k])\n  b[y,x] = sum(t[y+k,x] * w[k])",
    "t[y,x] = a[y,x] + 1\n"
    "b[y,x] = t.edge[y-1,x] + t.edge[y+2,x] - t.edge[y,x-1] where y in 0:Y, x in 0:X",
]


@pytest.mark.parametrize("text", FILTERS)
def test_windows(text: str) -> None:
    op = dt.op(text)
    made = op.schedule().split("b.y", 4)
    kept = made.compute_at("t", "b.yi")
    schedules = [
        op.schedule().compute_at("t", "b.y").store_at("t").vectorize("b.x", 4),
        op.schedule().compute_at("t", "b.x").store_at("t"),
        kept.store_at("t", "b.yo").vectorize("b.x", 8).vectorize("t.x", 8).parallel("b.yo"),
        made.compute_at("t", "b.yo").store_at("t").unroll("b.yi"),
        kept.store_at("t", "b.yo", fold={"y": 7}),
    ]
    for schedule in schedules:
        for rows, columns in ((9, 12), (16, 9), (21, 30)):
            inputs = {"a": small(rows, columns), "w": small(3)}
            agrees(op, schedule, *(inputs[p.name] for p in op.params))


def test_double_buffers() -> None:
    product, window = dt.op("C[i,j] = sum(A[i,k] * B[k,j])"), dt.op("y[i] = x[i] + x[i+1] * x[i+2]")
    made = product.schedule().tile(i=8, j=24).split("k", 16)
    made = made.reorder("jo", "ko", "io", "ki", "ii", "ji")
    packed = made.stage("B", at="ko", scope="heap", layout=("j//8", "k", "j%8"), double=True)
    for schedule in (made.stage("B", at="jo", double=True), packed.vectorize("ji", 8)):
        for m, n, k in ((1, 1, 1), (9, 50, 33), (16, 24, 48)):
            agrees(product, schedule.parallel("C.io"), small(m, k), small(k, n))
    for n in (3, 9, 10, 11, 33):
        agrees(window, window.schedule().split("i", 8).stage("x", at="io", double=True), small(n))


def test_a_chain_of_windows_in_parallel_strips() -> None:
    op = dt.op(
        "s[y,x] = a[y,x] + a[y+1,x]\nt[y,x] = s[y,x] + s[y+2,x+1]\nb[y,x] = t[2*y,x] - t[2*y+1,x+2]"
    )
    made = op.schedule().split("b.y", 3).compute_at("t", "b.yi").store_at("t", "b.yo")
    made = made.compute_at("s", "b.yi").store_at("s", "b.yo").parallel("b.yo")
    for rows in (5, 6, 13, 20, 31):
        agrees(op, made, small(rows, 9))


def test_outputs_and_recurrences_are_computed_once() -> None:
    pair = dt.op("f(x) -> t, y:\n  t[i] = x[i] + 1\n  y[i] = t[i] * t[i+2]")
    scan = dt.op("c[0] = x[0]\nc[i] = c[i-1] + x[i] where i in 1:I\ny[i] = c[i] + c[i+2]")
    cases = [
        (pair, pair.schedule().compute_at("t", "y.i")),
        (pair, pair.schedule().compute_at("y", "t.i")),
        (pair, pair.schedule().split("t.i", 4).compute_at("y", "t.io")),
        (scan, scan.schedule().compute_at("c", "y.i").store_at("c")),
        (scan, scan.schedule().split("y.i", 4).compute_at("c", "y.io").store_at("c")),
    ]
    for op, schedule in cases:
        for n in (3, 4, 13, 20):
            agrees(op, schedule, small(n))


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Modules of the examples, imported as a user runs them."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return __import__


def test_the_examples(examples: Any) -> None:
    modules = ("blis_matmul", "sliding_blur", "split_k", "time_skewed_stencil")
    dense, blur, gram, plate = map(examples, modules)
    arrays = small(99, 260), small(260, 49), small(49)
    written = {
        "blis_matmul": (dense.dense, dense.SCHEDULE, arrays),
        "sliding_blur": (blur.blur, blur.SLIDING, (small(75, 50), small(5))),
        "overlapped_blur": (blur.blur, blur.OVERLAPPED, (small(75, 150), small(5))),
        "split_k": (gram.gram, gram.SCHEDULE, (small(5000, 9), small(5000, 33))),
        "time_skewed_stencil": (plate.heat, plate.schedule, (small(13, 40),)),
    }
    for name, (op, schedule, inputs) in written.items():
        file = type(schedule).load(op, EXAMPLES / f"{name}.sched")
        assert file == schedule
        agrees(op, file, *inputs)
    for name in (*modules, "timing"):
        sys.modules.pop(name)


def test_flash_attention(examples: Any) -> None:
    flash = examples("flash_attention")
    file = dt.Schedule.load(flash.attention, EXAMPLES / "flash_attention.sched")
    assert file == flash.schedule()
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(n, 64)).astype("f") for n in (37, 70, 70))
    got = flash.attention.with_schedule(file, strict=True)(q, k, v)
    np.testing.assert_allclose(got, dt.interpret(flash.attention, q, k, v), rtol=0, atol=1e-5)
    for name in ("flash_attention", "timing"):
        sys.modules.pop(name)


@pytest.mark.parametrize("size", [1, 3, 4, 5, 8, 9, 31])
def test_the_only_tile_of_a_reduction_in_blocks_is_one_buffer(size: int) -> None:
    """isl could run `init` of the first block before the loop over all of them."""
    for text in ("d[] = sum(a[k] * b[k])", "d[] = sum(a[k] * b[k]) + 1"):
        op = dt.op(text)
        made = op.schedule().split("k", 4).compute_at("d.init", "ko")
        made = made.compute_at("d.final", "ko") if text.endswith("1") else made
        for scope in ("register", "stack"):
            agrees(op, made.stage("d", at="ko", scope=scope), small(size), small(size))


def test_a_store_of_the_last_block_that_nothing_reads_is_left_out() -> None:
    op = dt.op("C[i] = sum(A[i,k]) * 2")
    made = op.schedule().split("k", 4).reorder("ko", "i", "ki").compute_at("C.final", "i")
    made = made.compute_at("C.init", "i").stage("C", at="i", scope="register")
    store = made.nest(sizes={"I": 2, "K": 10}).stmts["C.acc.store"]
    blocks = points(store.dims, store.domain, ()).project_out(raw.dim_type.set, 1, 1)
    assert blocks.dim_max_val(0).to_python() == 1  # of blocks 0, 1 and 2
    for rows, columns in ((1, 4), (1, 9), (5, 10)):
        agrees(op, made, small(rows, columns))


SCAN = "c[b,0] = x[b,0]\nc[b,i] = c[b,i-1] + x[b,i] where i in 1:N"
EDIT = """
    edit(a: i32[N], b: i32[M]) -> d:
        d[i,0] = i where i in 0:N+1
        d[0,j] = j where j in 1:M+1
        d[i,j] = min(min(d[i-1,j] + 1, d[i,j-1] + 1),
            d[i-1,j-1] + where(a[i-1] == b[j-1], 0, 1)) where i in 1:N+1, j in 1:M+1
"""


@pytest.mark.parametrize("scope", ["stack", "register"])
@pytest.mark.parametrize("size", [1, 2, 4, 5, 11])
def test_a_block_of_a_recurrence_is_staged(size: int, scope: str) -> None:
    """Only what came before is loaded: the start in the first block, the last value in others."""
    op = dt.op(SCAN)
    made = op.schedule().split("c.1.i", 4).split("c.1.b", 2)
    made = made.reorder("c.1.bo", "c.1.io", "c.1.ii", "c.1.bi").stage("c", at="c.1.io", scope=scope)
    agrees(op, made, small(3, size))
    agrees(op, made.unroll("c.1.ii").vectorize("c.1.bi").parallel("c.1.bo"), small(3, size))


@pytest.mark.parametrize("sizes", [(1, 1), (3, 4), (5, 9), (12, 7)])
def test_tiles_of_a_recurrence_in_the_plane_are_staged(sizes: tuple[int, int]) -> None:
    op = dt.op(EDIT)
    made = op.schedule().tile({"d.2.i": 3, "d.2.j": 4})
    arrays = [small(n, dtype="int32") for n in sizes]
    agrees(op, made.stage("d", at="d.2.jo"), *arrays)
    wave = made.skew("d.2.jo", "d.2.io").reorder("d.2.jo", "d.2.io", "d.2.ii", "d.2.ji")
    agrees(op, wave.parallel("d.2.io").stage("d", at="d.2.io"), *arrays)
