"""`layout`, `pad`, `align`, `stream`, `prefetch`: what they print, replay and refuse."""

from __future__ import annotations

import pytest
from diptych.algo.errors import ScheduleError
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop.schedule import Schedule

CHAIN = parse(
    "s[i,j] = x[i,j] + 1\nt[i,j] = s[i,j] * x[i,j]\ny[j,i] = t[i,j] - s[i,j]", returns="y"
)
MATMUL = parse("C[i,j] = sum(A[i,k] * B[k,j])")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('.layout("t", "j//8", "i", "j%8")',
         "t: f32 heap buffer laid out [d1 // 8, d0, d1 % 8]"),
        ('.pad("t", j=16)', "t: f32 heap buffer padded to multiples of [1, 16]"),
        ('.pad("t", d0=4, j=5).layout("t", "j", "i")',
         "t: f32 heap buffer laid out [d1, d0] padded to multiples of [4, 5]"),
        ('.align("t", 128)', "t: f32 heap buffer aligned to 128"),
        ('.stream("y")', "    stream y[j,i] = t[i,j] - s[i,j]"),
        ('.prefetch("x", "t.j", 8)', "    prefetch x, 8 ahead"),
        ('.layout("t", "j", "i").compute_at("t", "y.j")',
         "  t: f32 heap buffer laid out [d1, d0]"),
    ],
)  # fmt: skip
def test_they_print_and_replay(text: str, line: str) -> None:
    schedule = Schedule.parse(CHAIN, text)
    assert schedule.text == text
    assert line in str(schedule).splitlines()
    schedule.validate()


def test_pad_takes_a_dictionary_too() -> None:
    assert Schedule(CHAIN).pad("t", {"j": 16}) == Schedule(CHAIN).pad("t", j=16)


def test_a_streamed_result_is_stored_once() -> None:
    schedule = (
        Schedule(MATMUL).tile(i=4, j=16).reorder("io", "jo", "k", "ii", "ji")
        .stage("C", at="jo", scope="register").stream("C")
    )  # fmt: skip
    assert "stream C[" in str(schedule)


@pytest.mark.parametrize(
    ("op", "text", "message"),
    [
        (CHAIN, '.layout("x", "i")',
         "layout(x): x is an argument, and how it lies is the caller's; stage a copy of it, as in "
         "stage(x, at=..., layout=...)"),
        (CHAIN, '.layout("y", "i")',
         "layout(y): y is an output, and how it lies is the caller's; stage a copy of it, as in "
         "stage(y, at=..., layout=...)"),
        (CHAIN, '.layout("q", "i")', "layout(q): there is no buffer q (there are s, t, y, x)"),
        (CHAIN, '.layout("t")',
         "layout(t): expected the axes of its storage, outermost first, over i, j"),
        (CHAIN, '.layout("t", "i")',
         "layout(t): in layout (i) the elements [0,0] and [0,1] of a block share one place"),
        (CHAIN, '.layout("t", "i", "j//2")',
         "layout(t): in layout (i, j//2) the elements [0,0] and [0,1] of a block share one place"),
        (CHAIN, '.layout("t", "i", "j-3")',
         "layout(t): layout axis 'j-3' is negative at the element [0,0]"),
        (CHAIN, '.layout("t", "q", "j")',
         "layout(t): layout axis 'q' is not made of i, j, d0, d1, integers and + - * // %"),
        (CHAIN, '.layout("t", 3)',
         "layout: argument axes: expected (expression, ...), got (3,)"),
        (CHAIN, '.pad("x", i=3)',
         "pad(x, i=3): x is an argument, and how it lies is the caller's; stage a copy of it, as "
         "in stage(x, at=...)"),
        (CHAIN, '.pad("t")',
         "pad(t): expected dimensions and multiples, as in pad(t, j=16)"),
        (CHAIN, '.pad("t", k=3)', "pad(t, k=3): t has no dimension k (there are i, j)"),
        (CHAIN, '.pad("t", j=0)', "pad(t, j=0): expected a multiple of at least 1, got 0"),
        (CHAIN, '.pad("t", j=1.5)',
         "pad: argument multiples: expected {name: integer, ...}, got (('j', 1.5),)"),
        (CHAIN, '.align("t", 3)',
         "align(t, 3): expected a power of two from 1 to 4096, got 3"),
        (CHAIN, '.align("t", 8192)',
         "align(t, 8192): expected a power of two from 1 to 4096, got 8192"),
        (CHAIN, '.align("x", 64)',
         "align(x, 64): x is an argument, and how it lies is the caller's; pass an aligned array, "
         "or stage a copy of it"),
        (CHAIN, '.stream("x")', "stream(x): nothing stores to x: it is an argument"),
        (MATMUL, '.stream("C")',
         "stream(C): C is updated in place by C.update (<text>:1); stage it, as in "
         "stage(C, at=...), so that each element is stored once"),
        (CHAIN, '.compute_at("t", "y.i").stage("t", at="y.i").stream("t")',
         "stream(t): t is a stack buffer, which stays in the caches; only outputs and temporaries "
         "on the heap are streamed"),
        (CHAIN, '.prefetch("x", "s.j", 0)',
         "prefetch(x, s.j, 0): expected a distance of at least 1 iteration, got 0"),
        (CHAIN, '.prefetch("y", "s.j", 1)',
         "prefetch(y, s.j, 1): y is not read under loop s.j (<text>:1); read are x"),
        (CHAIN, '.prefetch("x", "q", 1)',
         "prefetch(x, q, 1): there is no loop q (loops: s.i, s.j, t.i, t.j, y.j, y.i)"),
        (CHAIN, '.prefetch("x", "s.j", 1).prefetch("x", "s.j", 2)',
         "prefetch(x, s.j, 2): loop s.j prefetches x already"),
        (CHAIN, '.prefetch("x", "s.j", 1).split("s.j", 4)',
         "split(s.j, 4): loop s.j (<text>:1) prefetches x; split it before that"),
        (CHAIN, '.prefetch("x", "s.j", 1).fuse("s.i", "s.j")',
         "fuse(s.i, s.j): loop s.j prefetches x; fuse before that"),
        (CHAIN, '.stage("x", at="s.i").prefetch("x.stack", "s.j", 1)',
         "prefetch(x.stack, s.j, 1): x.stack is a stack buffer, which is near already; prefetch "
         "arguments, or temporaries on the heap"),
    ],
)  # fmt: skip
def test_refusals(op: Op, text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Schedule.parse(op, text)
    assert str(caught.value) == message
