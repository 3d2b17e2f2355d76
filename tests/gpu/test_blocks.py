"""Values stay with the block or thread that made them: refused where the schedule is built."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from diptych.algo.dtypes import f32
from diptych.algo.errors import ScheduleError
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse
from diptych.codegen.gpu import emulate_op, kernel_of
from diptych.codegen.nvptx import compile_ptx
from diptych.sched.loop.schedule import Schedule
from diptych.sched.loop.tree import edit
from diptych.sched.loop.validate import validate

BIAS = parse("y[n,f] = max(x[n,f] + b[f], 0)", name="bias")
ABT = parse("C[i,j] = sum(A[i,k] * B[j,k])", name="abt")
CONV = parse("y[n,o,h,w] = sum(x[n,c,2*h+r,2*w+s] * k[o,c,r,s])", name="conv")
NORM = parse("v[n] = sum(x[n,d] * x[n,d])\ny[n,d] = x[n,d] / (v[n] + 1)", name="norm", returns="y")
SCAN = parse(
    "scan(x: f32[N,M]) -> c:\n  c[0,j] = x[0,j]\n  c[i,j] = c[i-1,j] + x[i,j] where i in 1:N"
)
rng = np.random.default_rng(0)


def check(schedule: Schedule, *shapes: tuple[int, ...]) -> None:
    """The emulated result is the oracle's, and there is PTX for it."""
    arrays = [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]
    got = emulate_op(schedule.op, arrays, schedule)
    np.testing.assert_array_equal(got, interpret(schedule.op, *arrays))
    types = [(f32, shape) for shape in shapes]
    assert ".visible .entry" in compile_ptx(kernel_of(schedule.op, types, schedule), "sm_80").ptx


def abt(jo: str, *more: tuple[str, str]) -> Schedule:
    schedule = Schedule(ABT).split("C.j", 2).stage("C", at="C.jo", scope="register")
    schedule = schedule.reorder("C.k", "C.i").bind(jo, "block.x")
    for loop, axis in more:
        schedule = schedule.bind(loop, axis)
    return schedule


ELSEWHERE = {
    "bind(y.f, block.x): y[0,1] reads x.local[0,1], which another block has written to its own "
    "(<text>:1); a local buffer is one thread's: bind the loops of all that use it to block.x, or "
    "stage it inside of them": lambda: (
        Schedule(BIAS).stage("x", at="y.n", scope="local").bind("y.f", "block.x")
    ),
    "stage(b, at=y.n): y[0,1] reads b.register[1], which another block has written to its own "
    "(<text>:1); a register buffer is one thread's: bind the loops of all that use it to block.x, "
    "or stage it inside of them": lambda: (
        Schedule(BIAS).bind("y.f", "block.x").stage("b", at="y.n", scope="register")
    ),
    "bind(y.store.f, block.x): y.store reads y.register[0,1], which another block has written to "
    "its own (<text>:1); a register buffer is one thread's: bind the loops of all that use it to "
    "block.x, or stage it inside of them": lambda: (
        Schedule(BIAS).stage("y", at="y.n", scope="register").bind("y.store.f", "block.x")
    ),
    "bind(y.f, block.x): y[0,1] reads b.shared[1], which another block has written to its own "
    "(<text>:1); a shared buffer is one block's: bind the loops of all that use it to block.x, or "
    "stage it inside of them": lambda: (
        Schedule(BIAS).stage("b", at="y.n", scope="shared").bind("y.f", "block.x")
    ),
    "bind(C.i, block.y): C.update[1,0,0] reads C.register[1,0], which another block has written to "
    "its own (<text>:1); a register buffer is one thread's: bind the loops of all that use it to "
    "block.y, or stage it inside of them": lambda: abt("jo", ("C.i", "block.y")),
    "bind(y.w, block.y): y.store reads y.local[0,0,0,1], which another block has written to its "
    "own (<text>:1); a local buffer is one thread's: bind the loops of all that use it to block.y, "
    "or stage it inside of them": lambda: (
        Schedule(CONV).stage("y", at="y.h", scope="local").bind("y.w", "block.y")
    ),
    "bind(A.pack.k, thread.y): C.update[0,0,1] reads A.local[0,1], which another thread has "
    "written to its own (<text>:1); a local buffer is one thread's: bind the loops of all that use "
    "it to thread.y, or stage it inside of them, or use scope shared": lambda: (
        Schedule(ABT).stage("A", at="C.i", scope="local").bind("A.pack.k", "thread.y")
    ),
    "bind(C.j, thread.x): C.update[0,1,0] reads A.local[0,0], which another thread has written to "
    "its own (<text>:1); a local buffer is one thread's: bind the loops of all that use it to "
    "thread.x, or stage it inside of them, or use scope shared": lambda: (
        Schedule(ABT).stage("A", at="C.i", scope="local").bind("C.j", "thread.x")
    ),
    "bind(y.f, thread.x): b is shared by the threads of a block, but lives in loop y.f, which one "
    "thread runs (loop y.f is bound to thread.x); stage it outside of that loop, or use scope "
    "register or local": lambda: (
        Schedule(BIAS).stage("b", at="y.f", scope="shared").bind("y.f", "thread.x")
    ),
    "stage(x, at=y.f): x is shared by the threads of a block, but lives in loop y.f, which one "
    "thread runs (loop y.n is bound to thread.x); stage it outside of that loop, or use scope "
    "register or local": lambda: (
        Schedule(BIAS).bind("y.n", "thread.x").stage("x", at="y.f", scope="shared")
    ),
}


@pytest.mark.parametrize("message", ELSEWHERE, ids=range(len(ELSEWHERE)))
def test_values_of_another_block_or_thread_are_refused(message: str):
    with pytest.raises(ScheduleError) as refused:
        ELSEWHERE[message]()
    assert str(refused.value) == message


TOGETHER = {
    "store": Schedule(BIAS).stage("y", at="y.n", scope="register").bind("f", "block.x"),
    "inside": Schedule(BIAS).bind("y.f", "block.x").stage("b", at="y.f", scope="register"),
    "outside": Schedule(BIAS).bind("y.n", "block.x").stage("b", at="y.n", scope="local"),
    "one thread": Schedule(BIAS).bind("y.n", "block.x").stage("b", at="y.f", scope="shared"),
    "threads": Schedule(BIAS).bind("y.f", "thread.x").stage("b", at="y.n", scope="shared"),
    "dealt": Schedule(BIAS).bind("y.f", "thread.x").stage("b", at="y.n", scope="register"),
    "tiles": (
        Schedule(BIAS).split("y.f", 4).stage("b", at="y.fo", scope="register")
        .bind("y.fo", "block.y").bind("y.fi", "thread.x").bind("b.pack.f", "thread.x")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_values_that_stay_are_taken(name: str):
    check(TOGETHER[name], (7, 10), (10,))


def test_every_part_of_an_accumulation_in_its_block():
    check(abt("jo", ("i", "block.y")), (5, 6), (7, 6))


def test_the_whole_schedule_is_checked_for_blocks_too():
    schedule = Schedule(BIAS).stage("x", at="y.n", scope="local").bind("y.n", "block.y")
    schedule.validate()
    marked = schedule.nest()
    tree = edit(marked.tree, {"y.f": lambda loop: replace(loop, kind="block.x")})
    with pytest.raises(ScheduleError) as refused:
        validate(replace(marked, tree=tree))
    assert str(refused.value) == (
        "schedule: y[0,1] reads x.local[0,1], which another block has written to its own "
        "(<text>:1); a local buffer is one thread's: bind the loops of all that use it to "
        "block.x, or stage it inside of them"
    )


SHIFT = parse("b[i,j] = x[i,j] * 2\ny[i,j] = b[i,j+1]", name="shift", returns="y")
SMOOTH = parse("b[i,j] = x[i,j] * 2\ny[i,j] = b[i,j] + b[i,j+2]", name="smooth", returns="y")


def tiles(op: Op, scope: str, *, early: bool) -> Schedule:
    """Tiles of y by block and thread, b computed in each of them, staged before or after."""
    schedule = Schedule(op).split("y.j", 8).reorder("y.jo", "y.i").compute_at("b", "y.jo")
    if early:
        schedule = schedule.stage("b", at="y.jo", scope=scope)
    schedule = schedule.bind("y.jo", "block.x").bind("y.ji", "thread.x").bind("b.j", "thread.x")
    return schedule if early else schedule.stage("b", at="y.jo", scope=scope)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("scope", ["register", "shared"])
def test_positions_count_from_the_first_iteration(scope: str, early: bool):
    """b.j runs from 1 on in the first tile, y.ji from 0: the threads are the same."""
    check(tiles(SHIFT, scope, early=early), (5, 22))


@pytest.mark.parametrize("early", [False, True])
def test_values_for_other_threads_go_through_shared_memory(early: bool):
    check(tiles(SMOOTH, "shared", early=early), (5, 22))
    with pytest.raises(ScheduleError) as refused:
        tiles(SMOOTH, "register", early=early)
    who = "bind(b.j, thread.x)" if early else "stage(b, at=y.jo)"
    assert str(refused.value) == (
        f"{who}: y[0,0] reads b[0,2], which another thread has written to its own "
        "(<text>:2); a register buffer is one thread's: bind the loops of all that use it to "
        "thread.x, or stage it inside of them, or use scope shared"
    )


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (4, 3)])
def test_a_bound_loop_may_be_empty(shape: tuple[int, int]):
    check(Schedule(SCAN).bind("c.1.j", "thread.x"), shape)


def test_a_small_temporary_between_launches_is_global():
    schedule = Schedule(NORM).bind("y.d", "thread.x")
    check(schedule, (1, 3))
    function = kernel_of(NORM, [(f32, (1, 3))], schedule)
    assert [buffer.name for buffer in compile_ptx(function, "sm_80").between] == ["v"]
