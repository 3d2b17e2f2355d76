"""Reductions in two steps: the nests that `rfactor` makes, and that they compute the same."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen.gpu import emulate_op
from diptych.sched.loop.nest import loops
from diptych.sched.loop.schedule import Schedule

MATMUL = "matmul(A: f32[M, K], B: f32[K, N]) -> C:\n    C[i,j] = sum(A[i,k] * B[k,j])"


def same(op: dt.Op, schedule: Schedule, *arrays: Any) -> None:
    """The schedule validates, and runs to what the interpreter says."""
    schedule.validate()
    want = dt.interpret(op, *arrays)
    out = np.full_like(want, 77)
    got = op.with_schedule(schedule, strict=True)(*arrays, out=out)
    np.testing.assert_array_equal(got, want)


def integers(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).integers(-4, 5, shape).astype(dtype)


def test_what_a_refusal_advises_is_possible() -> None:
    op = dt.op(MATMUL)
    with pytest.raises(dt.ScheduleError, match=r"use rfactor\(ko\)"):
        op.schedule().split("k", 256).parallel("ko")
    made = op.schedule().split("k", 256).rfactor("ko").parallel("ko")
    assert str(made) == (
        "for C.i:\n"
        "  for C.j:\n"
        "    C.rf: f32 heap buffer\n"
        "    C[i,j] = f32(0.0)\n"
        "    parallel for C.ko = k // 256:\n"
        "      C.rf[ko,i,j] = f32(0.0)\n"
        "      for C.ki in 0:256 = k % 256:\n"
        "        C.rf[k // 256,i,j] += A[i,k] * B[k,j]\n"
        "    for C.ko_rf = ko:\n"
        "      C[i,j] += C.rf[ko,i,j]"
    )
    same(op, made, integers(3, 700), integers(700, 2))


def test_split_k_on_the_outside() -> None:
    op = dt.op(MATMUL)
    made = op.schedule().tile(i=4, j=8).reorder("k", "ii", "ji").split("k", 16)
    made = made.rfactor("ko").reorder("ko", "io", "jo").vectorize("ji").parallel("ko")
    assert "parallel for C.ko = k // 16:\n  for C.io" in str(made)
    for m, n, k in ((5, 11, 37), (8, 8, 32), (1, 1, 1), (3, 0, 5), (3, 5, 0)):
        same(op, made, integers(m, k), integers(k, n))


REDUCTIONS = {
    "sum": ("y[i] = sum(x[i,k])", "float32"),
    "mean of halves": ("y[i] = sum(x[i,k]) / 4", "float16"),
    "prod": ("y[i] = prod(x[i,k])", "int32"),
    "max": ("y[i] = max(x[i,k]) + 1", "float32"),
    "min": ("y[i] = min(x[i,k])", "int16"),
    "any": ("y[i] = any(x[i,k] > 3)", "float32"),
    "all": ("y[i] = all(x[i,k] > -4)", "float32"),
    "prefix": ("y[i] = sum(x[i,k], where=k <= i) where i in 0:I", "float32"),
    "band": ("y[i] = sum(x[i,k], where=(k >= i) & (k < i + 3)) where i in 0:I", "int32"),
    "edges": ("y[i] = sum(x[i,k] * x.edge[i,k-1])", "float32"),
    "full": ("y[] = sum(x[i,k])", "float32"),
    "windows": ("y[b,i] = sum(x[b,2*i+k] * w[k])", "float32"),
    "recurrence": ("y[i] = sum(where(i > 0, x[i,k] * y[i-1], x[i,k])) where i in 0:I", "int32"),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("way", ['.rfactor("k")', '.split("k", 4).rfactor("ko")', '.split("k", 4)'
                                 '.rfactor("ki")', '.reverse("k").rfactor("k")'])  # fmt: skip
def test_every_reducer(name: str, way: str) -> None:
    text, dtype = REDUCTIONS[name]
    op = dt.op(text)
    for shape in ((7, 13), (5, 4), (3, 1)):
        if name == "windows" and shape[1] < 3:
            continue
        arrays = [integers(*shape, dtype=dtype)]
        if len(op.params) > 1:
            arrays.append(integers(3))
        try:
            made = Schedule.parse(op, way)
        except dt.ScheduleError as error:
            assert "not one formula" in str(error)
            continue
        same(op, made, *arrays)


def test_private_histograms() -> None:
    op = dt.op("hist(at: i32[N], x: f32[N]) -> h:\n    h: [10]\n    h[at[n]] += x[n]")
    made = op.schedule().split("n", 8).rfactor("no").parallel("no")
    at = np.random.default_rng(1).integers(0, 10, 37).astype("int32")
    same(op, made, at, integers(37))


@pytest.mark.parametrize("mark", ['parallel("io")', 'bind("io", "block.x")'])
def test_a_sum_over_blocks_in_two_steps(mark: str) -> None:  # R25
    op = dt.op("S[] = sum(X[i] * X[i])")
    made = Schedule.parse(op, f'split("i", 200).rfactor("io").{mark}')
    x = np.arange(400.0)
    got = emulate_op(op, [x], made) if "bind" in mark else op.with_schedule(made, strict=True)(x)
    assert got == 21253400.0


def test_lanes_of_partial_sums() -> None:
    op = dt.op("y[i] = sum(x[i,k] * x[i,k])")
    made = op.schedule().split("k", 8).rfactor("ki").reorder("ko", "ki").vectorize("ki")
    same(op, made, integers(3, 29))


def test_argmax() -> None:
    op = dt.op("y[i] = argmax(x[i,k])")
    for loop in ("y.k", "y_max.k"):
        made = op.schedule().split(loop, 4).rfactor(f"{loop}o").parallel(f"{loop}o")
        same(op, made, integers(5, 13))


def test_twice() -> None:
    op = dt.op("y[] = sum(x[n])")
    made = op.schedule().split("n", 4).split("no", 4).rfactor("noo").rfactor("noi")
    assert "y.rf.rf" in str(made)
    same(op, made, integers(77))


def test_partial_results_move_with_their_stage() -> None:
    op = dt.op("m[i] = max(x[i,j])\ny[i] = m[i] * 2")
    made = op.schedule().split("m.j", 2).rfactor("m.jo").compute_at("m", "y.i")
    same(op, made, integers(5, 7))


def test_text_and_file(tmp_path: Path) -> None:
    op = dt.op(MATMUL)
    made = op.schedule().split("k", 8).rfactor("ko", into="part").parallel("ko")
    assert made.text == '.split("k", 8).rfactor("ko", into="part").parallel("ko")'
    assert Schedule.parse(op, made.text) == made == pickle.loads(pickle.dumps(made))
    made.save(tmp_path / "k.sched")
    assert Schedule.load(op, tmp_path / "k.sched") == made


SYM = """reducer sym(m, s, o; n, t, r) = m + n, s + t + m * n, o + r - m * n from 0, 0, 0
lift sym: block(x: [K], w: [K], v: [K, D]) -> m, s, o:
lift sym: m = sum(x[k])
lift sym: q = sum(x[k] * x[l], where=k < l)
lift sym: s = sum(w[k]) + q
lift sym: o[d] = sum(v[k,d]) - q
m[i], s[i], o[i,d] = sym(x[i,j], 1, v[j,d])"""


@pytest.mark.parametrize(
    "steps",
    [
        '.privatize("o.j", copies=3).rfactor("o.ji")',
        '.rfactor("o.j").privatize("o.j_rf", copies=2).rfactor("o.j_rfo_rf").unroll("o.j_rfi")',
        '.rfactor("o.j").rfactor("o.j_rf").vectorize("o.update.d", 4)',
    ],
)
def test_a_fold_factored_again_means_the_same_at_all_sizes(steps: str) -> None:
    """A chunk is no block of a lift; loops of new stages are called unlike those there are."""
    op = dt.op(SYM)
    schedule = Schedule.parse(op, steps)
    schedule.validate()
    arrays = integers(3, 8), integers(8, 5)
    got = op.with_schedule(schedule, strict=True)(*arrays)
    for one, want in zip(got, dt.interpret(op, *arrays), strict=True):
        np.testing.assert_array_equal(one, want)


def test_loops_of_a_reduction_factored_twice_have_names_of_their_own() -> None:
    """The combining of before keeps its loop; that of now is another."""
    op = dt.op(SYM)
    nest = op.schedule().rfactor("o.j").rfactor("o.j_rf").nest()
    names = [loop.name for loop in loops(nest.tree)]
    assert len(names) == len(set(names))
    assert {"o.update.d", "o.update.d_"} <= set(names)
