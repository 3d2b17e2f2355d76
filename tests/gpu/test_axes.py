"""Loops bound to GPU axes become the program of one thread."""

from __future__ import annotations

import re

import pytest
from diptych.algo.errors import ScheduleError
from diptych.lower.ir import allocated
from diptych.lower.ir_parse import parse_function
from diptych.lower.ir_print import print_function
from diptych.lower.passes.axes import axes
from diptych.lower.passes.simplify import simplify


def after(text: str) -> str:
    return print_function(axes(parse_function(text)))


def test_a_host_function_stays_the_same_object():
    function = parse_function(
        "function f(x: param f32[4]):\n    for i in 0 .. 4:\n        x[i] = 0.0:f32\n"
    )
    assert axes(function) is function


def test_axes_go_outside_and_guards_inside():
    assert (
        after("""
function f(x: param f32[100], y: param f32[100]):
    for io in 0 .. 7 block.x:
        for i in 0 .. min(16, 100 - io*16) thread.x:
            x[io*16 + i] = 0.0:f32
        for j in 0 .. 8 thread.x:
            if io*8 + j < 100:
                y[io*8 + j] = 1.0:f32
""")
        == """\
function f(x: param f32[100], y: param f32[100]):
    for io in 0 .. 7 block.x:
        for i in 0 .. 16 thread.x:
            if i < min(16, 100 - io * 16):
                x[io * 16 + i] = 0.0:f32
            if i < 8:
                if io * 8 + i < 100:
                    y[io * 8 + i] = 1.0:f32
"""
    )


def test_a_function_for_a_grid_is_a_launch_even_where_nothing_is_bound():
    nothing = parse_function("function f(y: param f32[4]):\n    y[0] = 1.0:f32\n")
    assert axes(nothing) is nothing
    assert (
        print_function(axes(nothing, grid=True))
        == """\
function f(y: param f32[4]):
    for thread in 0 .. 1 thread.x:
        y[0] = 1.0:f32
"""
    )


def test_shared_memory_under_no_bound_loop_is_allocated_for_the_block():
    assert (
        after("""
function f(x: param f32[4], y: param f32[4]):
    for i in 0 .. 4 block.x:
        for k in 0 .. 2:
            alloc S: shared f32[1]:
                S[0] = x[i]
                y[i] = S[0]
""")
        == """\
function f(x: param f32[4], y: param f32[4]):
    for i in 0 .. 4 block.x:
        for thread in 0 .. 1 thread.x:
            alloc S: shared f32[1]:
                for k in 0 .. 2:
                    S[0] = x[i]
                    y[i] = S[0]
"""
    )


def test_a_statement_without_threads_runs_once():
    assert (
        after("""
function f(s: param f32[3], y: param f32[3, 8]):
    for b in 0 .. 3 block.x:
        s[b] sum= 1.0:f32
        for t in 0 .. 8 thread.x:
            y[b, t] = s[b]
""")
        == """\
function f(s: param f32[3], y: param f32[3, 8]):
    for b in 0 .. 3 block.x:
        for t in 0 .. 8 thread.x:
            if t == 0:
                s[b] sum= 1.0:f32
            y[b, t] = s[b]
"""
    )


def test_an_unbound_copy_is_dealt_out_to_the_threads():
    text = after("""
function f(x: param f32[3, 20], y: param f32[3, 8]):
    for b in 0 .. 3 block.x:
        alloc S: shared f32[20]:
            for k in 0 .. 20:
                S[k] = x[b, k]
            for t in 0 .. 8 thread.x:
                y[b, t] = S[t + 12]
""")
    assert (
        text
        == """\
function f(x: param f32[3, 20], y: param f32[3, 8]):
    for b in 0 .. 3 block.x:
        for t in 0 .. 8 thread.x:
            alloc S: shared f32[20]:
                for k.turn in 0 .. 3:
                    if k.turn * 8 + t < 20:
                        S[k.turn * 8 + t] = x[b, k.turn * 8 + t]
                y[b, t] = S[t + 12]
"""
    )


def test_a_register_tile_around_thread_loops_becomes_each_threads_own():
    function = simplify(
        axes(
            parse_function("""
function f(x: param f32[32, 64], y: param f32[32, 64]):
    for b in 0 .. 2 block.x:
        alloc acc: register f32[16, 64]:
            for i in 0 .. 16 thread.y:
                for j in 0 .. 16 thread.x:
                    for r in 0 .. 4:
                        acc[i, j*4 + r] = x[b*16 + i, j*4 + r]
            for i2 in 0 .. 16 thread.y:
                for j2 in 0 .. 16 thread.x:
                    for r2 in 0 .. 4:
                        y[b*16 + i2, j2*4 + r2] = acc[i2, j2*4 + r2]
""")
        )
    )
    allocs = allocated(function.body)
    assert [(b.name, b.shape) for b in allocs] == [("acc", (1, 4))]
    assert "acc[0, r] = x[16 * b + i, 4 * j + r]" in re.sub(r"  +", "", print_function(function))


def test_nests_one_after_the_other_are_launches_of_their_own():
    assert (
        after("""
function f(x: param f32[8], y: param f32[8]):
    alloc h: heap f32[8]:
        for i in 0 .. 8 thread.x:
            h[i] = x[i]
        for j in 0 .. 8 block.x:
            y[j] = h[7 - j]
""")
        == """\
function f(x: param f32[8], y: param f32[8]):
    alloc h: heap f32[8]:
        for i in 0 .. 8 thread.x:
            h[i] = x[i]
        for j in 0 .. 8 block.x:
            for thread in 0 .. 1 thread.x:
                y[j] = h[7 - j]
"""
    )


REFUSED = {
    "for i in 0 .. x[0] thread.x:\n    y[i] = 1": (
        "thread.x: loop i has no constant bound on its iterations; split it and bind the inner loop"
    ),
    "for i in 0 .. 4 thread.x:\n    alloc S: shared i64[4]:\n        for j in 0 .. 4 thread.y:\n"
    "            S[j] = 1": (
        "shared buffer S is allocated inside a loop bound to a thread axis, so no other thread "
        "sees it; stage it at a loop outside of those"
    ),
    "for b in 0 .. 4 block.x:\n    alloc S: stack i64[4]:\n        for j in 0 .. 4 thread.x:\n"
    "            S[j] = 1": (
        "S is on the stack, outside of the loops bound to thread axes (j), and GPUs have none "
        "there; name its scope, as stage('S', at='...', scope='shared')"
    ),
    "alloc S: register i64[4]:\n    for i in 0 .. 4 thread.x:\n        S[i] = 1\n"
    "    for j in 0 .. 4 thread.x:\n        y[j] = S[3 - j]": (
        "register buffer S: several threads use one cell, and each thread has its own; bind the "
        "loops of every statement that uses it to the same thread axes, or use scope shared"
    ),
    "alloc S: shared i64[4]:\n    for i in 0 .. 4:\n        S[i] = 1\n"
    "    for j in 0 .. 4 block.x:\n        y[j] = S[j]": (
        "shared buffer S: several blocks use one cell, and each block has its own; bind the loops "
        "of every statement that uses it to the same block axes"
    ),
    "alloc S: local i64[4]:\n    for i in 1 .. 4 block.x:\n        S[i] = 1\n"
    "    for j in 0 .. 4 block.x:\n        y[j] = S[j]": (
        "local buffer S: several blocks use one cell, and each block has its own; bind the loops "
        "of every statement that uses it to the same block axes"
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", REFUSED)
def test_refusals(body: str):
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    with pytest.raises(ScheduleError) as refused:
        after(f"function f(x: param i64[4], y: param i64[4]):\n{lines}")
    assert str(refused.value) == REFUSED[body]
