"""Single stages, outputs and recurrences under loops: where they run and what the nest says."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop.schedule import Schedule

LAYER = "C[i,j] = max(sum(A[i,k] * B[k,j]) + bias[j], 0)"


def schedule(text: str) -> Schedule:
    return Schedule(parse(text))


def nest(*lines: str) -> str:
    return "\n".join(lines)


def blocked() -> Schedule:
    made = schedule(LAYER).tile(i=8, j=16).split("k", 32)
    return made.reorder("ko", "io", "jo", "ki", "ii", "ji")


def test_init_and_final_run_in_the_first_and_last_block() -> None:
    assert str(blocked().compute_at("C.final", "jo").compute_at("C.init", "jo")) == nest(
        "C.acc: f32 heap buffer",
        "for C.ko = k // 32 and (K + 31) // 32 - 1 and 0:",
        "  for C.io = i // 8:",
        "    for C.jo = j // 16:",
        "      for C.init.ii in 0:8 = i % 8:",
        "        for C.init.ji in 0:16 = j % 16:",
        "          C.acc[i,j] = f32(0.0)",
        "      for C.ki in 0:32 = k % 32:",
        "        for C.ii in 0:8 = i % 8:",
        "          for C.ji in 0:16 = j % 16:",
        "            C.acc[i,j] += A[i,k] * B[k,j]",
        "      for C.final.ii in 0:8 = i % 8:",
        "        for C.final.ji in 0:16 = j % 16:",
        "          C[i,j] = max(C.acc[i,j] + bias[j], f32(0.0))",
    )


def test_the_epilogue_reads_the_register_tile() -> None:
    made = blocked().compute_at("C.final", "jo").compute_at("C.init", "jo")
    text = str(made.stage("C", at="jo", scope="register"))
    assert "C[i,j] = max(C.acc.register[i,j] + bias[j], f32(0.0))" in text
    assert text.startswith("C.acc: f32 heap buffer\nfor C.ko")
    domain = made.stage("C", at="jo").nest(sizes={"I": 8, "J": 16, "K": 100}).stmts
    assert domain["C.acc.load"].dims[0] == "ko"  # in all blocks of k but the first


def test_updates_run_where_the_result_is_made() -> None:
    made = blocked().compute_at("C.update", "C.final.jo")
    assert str(made).splitlines()[6:14] == [
        "for C.final.io = i // 8:",
        "  for C.final.jo = j // 16:",
        "    for C.ko = k // 32:",
        "      for C.ki in 0:32 = k % 32:",
        "        for C.ii in 0:8 = i % 8:",
        "          for C.ji in 0:16 = j % 16:",
        "            C.acc[i,j] += A[i,k] * B[k,j]",
        "    for C.final.ii in 0:8 = i % 8:",
    ]


PAIR = "f(x) -> t, y:\n  t[i] = x[i] + 1\n  y[i] = t[i] * t[i+2]"


def test_an_output_is_computed_once_where_it_is_read() -> None:
    assert str(schedule(PAIR).compute_at("t", "y.i")) == nest(
        "for y.i = i and i - 2:", "  t[i] = x[i] + f32(1.0)", "  y[i] = t[i] * t[i+2]"
    )


def test_an_output_is_computed_as_soon_as_it_can_be() -> None:
    assert str(schedule(PAIR).compute_at("y", "t.i")) == nest(
        "for t.i = i and i + 2:", "  t[i] = x[i] + f32(1.0)", "  y[i] = t[i] * t[i+2]"
    )


def test_blocks_of_an_output() -> None:
    assert str(schedule(PAIR).split("y.i", 4).compute_at("t", "y.io")) == nest(
        "for y.io = i // 4 and (i + 2) // 4 - 1:",
        "  for t.i:",
        "    t[i] = x[i] + f32(1.0)",
        "  for y.ii in 0:4 = i % 4:",
        "    y[i] = t[i] * t[i+2]",
    )


def test_a_scan_beside_its_reader() -> None:
    text = "c[b,0] = x[b,0]\nc[b,i] = c[b,i-1] + x[b,i] where i in 1:I\ny[b,i] = c[b,i] * 2"
    assert str(schedule(text).compute_at("c", "y.i")) == nest(
        "for y.b:",
        "  c: f32 heap buffer",
        "  for y.i = i and 0:",
        "    c[b,0] = x[b,0]",
        "    c[b,i] = c[b,i-1] + x[b,i]",
        "    y[b,i] = c[b,i] * f32(2.0)",
    )


def test_a_sum_is_whole_wherever_it_is_computed() -> None:
    """Pair 2713: in the loop over k, of which y is in the last iteration, t would have one term."""
    text = "t[i,j] = sum(A[i,k] * B[k,j])\ny[i,j] = t[i,j] - s[i]"
    made = schedule(text).reorder("t.i", "t.k", "t.j").compute_at("y", "t.k")
    with pytest.raises(dt.ScheduleError) as refusal:
        made.compute_at("t", "y.j")
    assert str(refusal.value) == (
        "compute_at(t, y.j): an element of t is updated in several iterations of loop t.k "
        "(<text>:1), which goes around; choose a loop outside of it"
    )
    a, b, s = np.arange(42).reshape(6, 7), np.arange(35).reshape(7, 5), np.arange(6)
    for right in (made, schedule(text).compute_at("t", "y.j")):
        np.testing.assert_array_equal(right(a, b, s), a @ b - s[:, None])
