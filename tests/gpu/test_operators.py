"""Operators under GPU schedules: PTX that ptxas takes, emulation that agrees with the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from diptych.algo.dtypes import from_numpy
from diptych.algo.errors import DeviceError, ScheduleError, ShapeError
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.parse import parse
from diptych.codegen.gpu import emulate_op, kernel_of, ptx_of
from diptych.codegen.ptxas import assemble, find_ptxas
from diptych.lower.ir import allocated
from diptych.sched.loop.schedule import Schedule

rng = np.random.default_rng(0)
MATMUL = parse("C[i,j] = sum(A[i,k] * B[k,j])", name="matmul")
SOFTMAX = parse(
    """
    m[i] = max(x[i,j])
    e[i,j] = exp(x[i,j] - m[i])
    y[i,j] = e[i,j] / sum(e[i,l])
    """,
    name="softmax",
    returns="y",
)


def check(schedule: Schedule, *arrays: np.ndarray, seeds: int = 2, rtol: float = 1e-5) -> None:
    """The emulated results are the oracle's, no thread races, and ptxas takes the kernel."""
    wanted = interpret(schedule.op, *arrays)
    for seed in range(seeds):
        np.testing.assert_allclose(
            emulate_op(schedule.op, arrays, schedule, seed), wanted, rtol=rtol
        )
    if find_ptxas() is not None:
        types = [(from_numpy(array.dtype), array.shape) for array in arrays]
        for target in ("sm_80", "sm_90"):
            assemble(ptx_of(schedule.op, types, schedule, target), target)


def matrices(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.random((m, k), np.float32), rng.random((k, n), np.float32)


def tiled() -> Schedule:
    return (
        Schedule(MATMUL)
        .tile(i=16, j=16)
        .split("k", 24)
        .reorder("io", "jo", "ko", "ii", "ji", "ki")
        .stage("C", at="jo", scope="register")
        .stage("A", at="ko", scope="shared")
        .stage("B", at="ko", scope="shared")
        .bind("io", "block.y")
        .bind("jo", "block.x")
        .bind("ii", "thread.y")
        .bind("ji", "thread.x")
    )


@pytest.mark.parametrize("sizes", [(64, 64, 96), (50, 40, 70), (1, 1, 1), (17, 33, 23), (16, 5, 1)])
def test_matmul_with_shared_tiles(sizes):
    check(tiled(), *matrices(*sizes))


def test_matmul_without_an_accumulator_of_its_own():
    schedule = (
        Schedule(MATMUL)
        .tile(i=8, j=8)
        .split("k", 8)
        .reorder("io", "jo", "ko", "ii", "ji", "ki")
        .stage("A", at="ko", scope="shared")
        .stage("B", at="ko", scope="shared")
        .bind("io", "block.y")
        .bind("jo", "block.x")
        .bind("ii", "thread.y")
        .bind("ji", "thread.x")
    )
    check(schedule, *matrices(20, 12, 20))


def test_copies_bound_by_the_user():
    schedule = tiled().split("A.pack.k", 16).bind("A.pack.i", "thread.y")
    schedule = schedule.bind("A.pack.ki", "thread.x").bind("B.pack.j", "thread.x")
    check(schedule, *matrices(50, 40, 70))


def test_a_tile_of_registers_for_each_thread():
    schedule = (
        Schedule(MATMUL)
        .split("i", 16)
        .split("ii", 2, into=("it", "ir"))
        .split("j", 32)
        .split("ji", 4, into=("jt", "jr"))
        .split("k", 8)
        .reorder("io", "jo", "ko", "it", "jt", "ki", "ir", "jr")
        .stage("C", at="jo", scope="register")
        .stage("A", at="ko", scope="shared")
        .stage("B", at="ko", scope="shared")
        .bind("io", "block.y")
        .bind("jo", "block.x")
        .bind("it", "thread.y")
        .bind("jt", "thread.x")
        .unroll("ir")
        .unroll("jr")
    )
    a, b = matrices(64, 128, 16)
    types = [(from_numpy(array.dtype), array.shape) for array in (a, b)]
    allocs = {
        buffer.name: buffer.shape for buffer in allocated(kernel_of(MATMUL, types, schedule).body)
    }
    assert allocs == {"C.register": (2, 4), "A.shared": (16, 8), "B.shared": (8, 32)}
    assert ".local" not in ptx_of(MATMUL, types, schedule, "sm_80")
    check(schedule, a, b, seeds=1)
    check(schedule, *matrices(35, 45, 20), seeds=1)


def test_elementwise_with_a_last_partial_block():
    op = parse("Y[i,j] = max(X[i,j] + b[j], 0)", name="bias_relu")
    schedule = Schedule(op).split("j", 32).bind("i", "block.x").bind("ji", "thread.x")
    x = rng.standard_normal((9, 50)).astype(np.float32)
    check(schedule, x, x[0].copy())


@pytest.mark.parametrize("sizes", [(0, 4, 3), (5, 7, 0)])
def test_no_elements_and_empty_sums(sizes):
    check(Schedule(MATMUL).bind("i", "block.x").bind("j", "thread.x"), *matrices(*sizes))


def test_wide_accesses():
    op = parse("Y[i,j] = 2 * X[i,j]", name="double")
    schedule = Schedule(op).vectorize("j", 4).bind("i", "block.x").bind("jo", "thread.x")
    x = rng.random((5, 64), np.float32)
    check(schedule, x)
    check(schedule, rng.random((5, 7), np.float32))


def test_softmax_as_one_launch_a_stage():
    schedule = Schedule(SOFTMAX)
    for stage in ("m", "e", "y_sum", "y"):
        schedule = schedule.split(f"{stage}.i", 8)
        schedule = schedule.bind(f"{stage}.io", "block.x").bind(f"{stage}.ii", "thread.x")
    x = rng.standard_normal((37, 53)).astype(np.float32)
    check(schedule, x)
    types = [(from_numpy(x.dtype), x.shape)]
    assert ptx_of(SOFTMAX, types, schedule, "sm_80").count(".entry") == 4


def test_softmax_in_one_launch_with_its_stages_in_shared_memory(count_barriers):
    schedule = Schedule(SOFTMAX)
    for stage in ("y_sum", "e", "m"):
        schedule = schedule.compute_at(stage, "y.i").stage(stage, at="y.i", scope="shared")
    schedule = schedule.bind("y.i", "block.x")
    for stage in ("y", "e"):
        schedule = schedule.split(f"{stage}.j", 16).bind(f"{stage}.ji", "thread.x")
    x = rng.standard_normal((9, 53)).astype(np.float32)
    check(schedule, x)
    assert count_barriers(kernel_of(SOFTMAX, [(from_numpy(x.dtype), x.shape)], schedule)) == 3


def test_a_gather_checks_its_index():
    op = parse("Y[i,j] = W[t[i], j]", name="gather")
    schedule = Schedule(op).bind("i", "block.x").bind("j", "thread.x")
    w, t = rng.random((7, 8), np.float32), np.array([3, 0, 6, 6], np.int64)
    check(schedule, w, t)
    with pytest.raises(ShapeError) as refused:
        emulate_op(op, [w, np.array([3, 0, 7, 6], np.int64)], schedule)
    assert str(refused.value) == (
        "gather: W[t[i],j] is outside W: dim 0 has extent 7, but t[i] is 7 at i=2\n"
        "    in Y[i,j] = W[t[i],j] (<text>:1)"
    )


def test_integers_and_narrow_floats():
    op = parse("Y[i] = X[i] // 3 + X[i] % 5", name="ints")
    schedule = Schedule(op).split("i", 8).bind("io", "block.x").bind("ii", "thread.x")
    check(schedule, rng.integers(-100, 100, 29).astype(np.int32), rtol=0)
    half = parse("S[i] = sum(X[i,k])", name="half")
    schedule = Schedule(half).bind("i", "thread.x")
    check(schedule, rng.integers(-9, 9, (5, 30)).astype(np.float16), rtol=0)


def test_a_schedule_without_gpu_axes_is_refused():
    a, b = matrices(4, 4, 4)
    with pytest.raises(ScheduleError) as refused:
        emulate_op(MATMUL, [a, b], Schedule(MATMUL))
    assert str(refused.value) == (
        'matmul: the schedule binds no loop to a GPU axis; bind one, such as bind("i", "block.x")'
    )


def test_unbound_loops_of_an_accumulator_fall_to_the_threads_that_own_its_cells():
    schedule = Schedule(MATMUL).tile(i=4, j=4).stage("C", at="jo", scope="register")
    schedule = schedule.reorder("k", "ii", "ji")
    check(schedule.bind("C.ii", "thread.y").bind("C.ji", "thread.x"), *matrices(8, 12, 5))


def test_threads_that_share_an_accumulator_are_refused():
    schedule = Schedule(MATMUL).tile(i=4, j=4).stage("C", at="jo", scope="register")
    schedule = schedule.reorder("k", "ii", "ji").bind("C.ii", "thread.x")
    with pytest.raises(ScheduleError) as refused:
        schedule.bind("C.init.ji", "thread.x")
    assert str(refused.value) == (
        "bind(C.init.ji, thread.x): C.update[0,1,0] reads C.register[0,1], which another thread "
        "has written to its own (<text>:1); a register buffer is one thread's: bind the loops of "
        "all that use it to thread.x, or stage it inside of them, or use scope shared"
    )


def test_threads_among_which_a_copy_cannot_be_dealt_are_refused():
    op = parse("C[i,j] = sum(A[i,k] * B[j,k])", name="abt")
    schedule = Schedule(op).split("j", 3).stage("B", at="C.jo", scope="register")
    schedule = schedule.bind("C.ji", "thread.y")
    with pytest.raises(ScheduleError) as refused:
        emulate_op(op, [np.ones((8, 5), np.float32), np.ones((12, 5), np.float32)], schedule)
    assert str(refused.value) == (
        "abt: register buffer B.register: several threads use one cell, and each thread "
        "has its own; bind the loops of every statement that uses it to the same thread axes, or "
        "use scope shared"
    )


def test_a_temporary_between_blocks_and_threads_is_refused_with_the_stage_to_write():
    text = "v[n] = sum(x[n,d] * x[n,d]) / D\ny[n,d] = x[n,d] * rsqrt(v[n])"
    op = parse(text, name="norm", returns="y")
    x = rng.random((16, 64), np.float32)
    tiled = Schedule(op).tile(**{"v.n": 8, "v.d": 32})
    with pytest.raises(ScheduleError) as refused:
        emulate_op(op, [x], tiled.bind("v.ni", "thread.x"))
    assert str(refused.value) == (
        "norm: v.acc is on the heap, outside of the loops bound to thread axes (v.ni), and GPUs "
        "have none there; name its scope, as stage('v', at='v.no', scope='shared')"
    )
    check(tiled.stage("v", at="v.no", scope="shared").bind("v.ni", "thread.x"), x)


def test_a_reduction_over_blocks_is_refused_with_a_witness():  # R25
    dot = parse("S = sum(X[i] * X[i])", name="dot")
    with pytest.raises(ScheduleError) as refused:
        Schedule(dot).split("i", 200).bind("io", "block.x")
    assert str(refused.value) == (
        "bind(io, block.x): S[] is updated by io=0 and by io=1 (<text>:1); use rfactor(io)"
    )


def test_schedules_on_devices():
    import diptych as dt

    a, b = matrices(20, 12, 20)
    matmul = dt.op("C[i,j] = sum(A[i,k] * B[k,j])", name="matmul")
    schedule = matmul.schedule().bind("i", "block.x").bind("j", "thread.x")
    np.testing.assert_allclose(schedule.on("simt")(a, b), a @ b, rtol=1e-5)
    assert ".visible .entry matmul" in schedule.source("ptx", I=64, J=64, K=64)
    with pytest.raises(DeviceError) as refused:
        schedule.on("gpu")
    assert str(refused.value) == "no device is called 'gpu'; expected simt, simt:n, cuda or cuda:n"
    with pytest.raises(DeviceError) as refused:
        schedule(a, b)
    assert str(refused.value) == (
        "matmul: loop C.i is bound to block.x, so this schedule is for a GPU and the call is for "
        'the CPU; use schedule.on("cuda:0")(...), or schedule.on("simt")(...) to emulate it'
    )
