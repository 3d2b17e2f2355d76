"""`atomic` and `privatize`: what they do to a nest, what they make legal, what they refuse."""

from __future__ import annotations

import pytest
from diptych.algo.errors import ScheduleError
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop.schedule import Schedule

MATMUL = parse("C[i,j] = sum(A[i,k] * B[k,j])", name="matmul")
HISTOGRAM = parse("hist(at: [N], x: [N]) -> h:\n  h: [13]\n  h[at[n]] += x[n]")


def refusal(schedule: Schedule, text: str) -> str:
    with pytest.raises(ScheduleError) as caught:
        Schedule.parse(schedule.op, schedule.text + text)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    ['.atomic("h.update").parallel("n")', '.atomic("h").parallel("n")',
     '.atomic("h.n").vectorize("n")', '.atomic("n").bind("n", "block.x")',
     '.privatize("n")', '.privatize("n", copies=4)'],
)  # fmt: skip
def test_they_make_a_scatter_legal_and_replay(text: str) -> None:
    schedule = Schedule.parse(HISTOGRAM, text)
    assert schedule.text == text
    schedule.validate()
    schedule.nest(sizes={"N": 50})


def test_privatize_makes_chunks_with_copies() -> None:
    assert str(Schedule(HISTOGRAM).privatize("n", copies=4)) == (
        "h.rf: f32 heap buffer\n"
        "for h.init.d0:\n"
        "  h[d0] = f32(0.0)\n"
        "parallel for h.no in 0:4 = n % 4:\n"
        "  for h.rf.init.d0:\n"
        "    h.rf[no,d0] = f32(0.0)\n"
        "  for h.ni = n // 4:\n"
        "    h.rf[n % 4,at[n]] += x[n]\n"
        "for h.update.d0:\n"
        "  for h.no_rf = no:\n"
        "    h[d0] += h.rf[no,d0]"
    )


def test_chunks_are_contiguous_once_sizes_are_known() -> None:
    from diptych.sched.loop.show import show

    text = show(Schedule(HISTOGRAM).privatize("n", copies=4).nest(sizes={"N": 50}))
    assert "parallel for h.no in 0:4 = n // 13:" in text
    assert "for h.ni in 0:13 = n % 13:" in text


@pytest.mark.parametrize(
    ("op", "text", "message"),
    [
        (HISTOGRAM, '.parallel("n")',
         "parallel(n): an element of h, chosen by data, is updated by n=0 and by n=1 (<text>:3); "
         "use privatize(n, copies=8) or atomic(n)"),
        (HISTOGRAM, '.atomic("h.init")',
         "atomic(h.init): h.init (<text>:3) writes its elements and updates none; only updates, "
         "such as C.update of a reduction, can be atomic"),
        (HISTOGRAM, '.atomic("hh")',
         "atomic(hh): there is no stage or loop hh (there are h.update, h.init.d0, h.n)"),
        (HISTOGRAM, '.atomic("h.init.d0")',
         "atomic(h.init.d0): under loop h.init.d0 (<text>:3) no element is updated; only updates, "
         "such as C.update of a reduction, can be atomic"),
        (HISTOGRAM, ".atomic(3)", "atomic: argument target: expected name, got 3"),
        (HISTOGRAM, '.bind("n", "block.x")',
         "bind(n, block.x): an element of h, chosen by data, is updated by n=0 and by n=1 "
         "(<text>:3); use atomic(n)"),
        (MATMUL, '.privatize("k", copies=4).parallel("ko_rf")',
         "parallel(ko_rf): C[0,0] is updated by ko_rf=0 and by ko_rf=1 (<text>:1); "
         "use parallel on i or j"),
        (MATMUL, '.atomic("C").reorder("k", "i", "j").stage("C", at="k").parallel("k")',
         "parallel(k): C[0,0] is read by k=0 and written by k=1 (<text>:1); "
         "use parallel on i or j"),
        (MATMUL, '.privatize("i")',
         "privatize(i): loop C.i (<text>:1) is no loop of a reduction: what each of its "
         "iterations computes is not accumulated with that of others"),
        (MATMUL, '.privatize("k", copies=0)',
         "privatize(k, copies=0): expected at least 1 copy, got 0"),
        (MATMUL, '.parallel("i").privatize("k")',
         "privatize(k): loop C.i of the same nest is parallel already; fuse the two, or keep one"),
        (MATMUL, '.unroll("k").privatize("k", copies=2)',
         "privatize(k, copies=2): loop C.k (<text>:1) is unroll; privatize before marking loops"),
        (MATMUL, '.privatize("q")', "privatize(q): there is no loop q (loops: C.i, C.j, C.k)"),
    ],
)  # fmt: skip
def test_refusals(op: Op, text: str, message: str) -> None:
    assert refusal(Schedule(op), text) == message


def test_a_reducer_of_a_users_own_is_not_atomic() -> None:
    op = parse("reducer fold(a; b) = where(a > b, a, b) from 0.0\ny[i] = fold(A[i,k])")
    assert refusal(Schedule(op), '.atomic("y")') == (
        "atomic(y): y.update (<text>:2) combines by a reducer of yours, which no instruction does "
        "at once; only sum, prod, max, min, any and all can be atomic"
    )
