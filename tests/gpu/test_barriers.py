"""Barriers are where threads meet, and nowhere else."""

from __future__ import annotations

import pytest
from diptych.algo.errors import InternalError, ScheduleError
from diptych.lower.ir_parse import parse_function
from diptych.lower.ir_print import print_function
from diptych.lower.passes.barriers import barriers

HEAD = "function f(x: param f32[64], y: param f32[64]):\n"


def placed(body: str, extent: int = 16) -> str:
    """The program of one of 16 threads with its barriers, without the lines around it."""
    lines = [f"        {line}" for line in body.strip().splitlines()]
    head = f"{HEAD}    for t in 0 .. {extent} thread.x:\n        alloc S: shared f32[64]:\n"
    text = print_function(barriers(parse_function(head + "\n".join("    " + x for x in lines))))
    return "\n".join(line[12:] for line in text.splitlines()[3:])


def test_between_a_write_and_another_threads_read():
    body = "S[t] = x[t]\ny[t] = S[15 - t]"
    assert placed(body) == "S[t] = x[t]\nbarrier\ny[t] = S[15 - t]"


def test_none_where_each_thread_keeps_to_its_own_cells():
    body = "S[t] = x[t]\nS[t] sum= 1.0:f32\ny[t] = S[t]"
    assert placed(body) == body


def test_none_between_reads():
    body = "S[t] = x[t]\nbarrier\ny[t] = S[15 - t]\ny[t + 16] = S[14]"
    assert placed(body) == body


def test_between_a_read_and_the_next_turns_write():
    assert (
        placed("""
for k in 0 .. 4:
    S[t] = x[k*16 + t]
    for r in 0 .. 16:
        y[t] sum= S[r]
""")
        == """\
for k in 0 .. 4:
    barrier
    S[t] = x[k * 16 + t]
    barrier
    for r in 0 .. 16:
        y[t] sum= S[r]"""
    )


def test_disjoint_halves_of_a_buffer_need_none():
    body = "S[t] = x[t]\nS[t + 32] = x[t]\ny[t] = S[t + 32]"
    assert placed(body) == body


def test_different_buffers_in_one_loop_need_one_barrier_each_way(matmul, prepare, count_barriers):
    assert count_barriers(prepare(matmul(50, 40, 70))) == 2


def test_global_memory_counts_too():
    body = "y[t] = x[t]\ny[t + 16] = y[15 - t]"
    assert placed(body) == "y[t] = x[t]\nbarrier\ny[t + 16] = y[15 - t]"


def test_outside_of_what_not_all_threads_enter():
    assert (
        placed("""
S[t] = x[t]
if t < 8:
    y[t] = S[t + 8]
""")
        == """\
S[t] = x[t]
barrier
if t < 8:
    y[t] = S[t + 8]"""
    )


def test_inside_of_what_a_whole_block_enters():
    text = """
function f(x: param f32[64], y: param f32[64]):
    for b in 0 .. 4 block.x:
        for t in 0 .. 16 thread.x:
            alloc S: shared f32[16]:
                if b < 3:
                    S[t] = x[b * 16 + t]
                    y[b * 16 + t] = S[15 - t]
"""
    found = print_function(barriers(parse_function(text)))
    assert found == text.lstrip().replace("y[b *", "barrier\n                    y[b *")


def test_an_index_read_from_memory_may_be_any():
    text = "S[t] = x[t]\ny[t] = S[i64(x[t])]"
    assert "barrier" in placed(text)


def test_threads_that_meet_where_no_barrier_can_stand_are_refused():
    with pytest.raises(ScheduleError) as refused:
        placed("if t < 8:\n    S[t] = x[t]\n    y[t] = S[7 - t]")
    assert str(refused.value) == (
        "threads of a block meet on S[t] and S[7 - t] where not all of them come by, so no barrier "
        "can stand between; bind the loops so that each thread uses cells of its own there"
    )


def test_threads_that_write_one_cell_are_refused():
    with pytest.raises(ScheduleError) as refused:
        placed("S[0] = x[t]")
    assert str(refused.value) == (
        "threads of a block meet on S[0] and S[0] where not all of them come by, so no barrier can "
        "stand between; bind the loops so that each thread uses cells of its own there"
    )


def test_blocks_that_meet_are_refused():
    text = """
function f(x: param f32[64], y: param f32[64]):
    for b in 0 .. 4 block.x:
        for t in 0 .. 1 thread.x:
            y[b] = x[b]
            y[b + 32] = y[3 - b]
"""
    with pytest.raises(ScheduleError) as refused:
        barriers(parse_function(text))
    assert str(refused.value) == (
        "y[b] is written by one block and read by another as y[3 - b], which run in any order; "
        "bind other loops to the block axes"
    )


def test_a_written_barrier_in_divergent_flow_is_a_bug():
    with pytest.raises(InternalError) as refused:
        placed("if t < 8:\n    barrier\n    S[t] = x[t]")
    assert str(refused.value) == "a barrier stands where not all threads of a block come by"
