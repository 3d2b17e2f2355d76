"""Sliding windows: what is kept over iterations, where it is computed, how storage folds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.errors import ScheduleError
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop.fold import check_folds
from diptych.sched.loop.schedule import Schedule

BLUR = "t[y,x] = a[y,x] + a[y,x+1] + a[y,x+2]\nb[y,x] = t[y,x] + t[y+1,x] + t[y+2,x]"


def schedule(text: str) -> Schedule:
    return Schedule(parse(text))


def nest(*lines: str) -> str:
    return "\n".join(lines)


def test_rows_are_kept() -> None:
    assert str(schedule(BLUR).compute_at("t", "b.y").store_at("t")) == nest(
        "t: f32 heap buffer folded [d0 % 4]",
        "for b.y = y and y - 2:",
        "  for t.x:",
        "    t[y,x] = a[y,x] + a[y,x+1] + a[y,x+2]",
        "  for b.x:",
        "    b[y,x] = t[y,x] + t[y+1,x] + t[y+2,x]",
    )


def test_each_row_is_computed_once() -> None:
    made = schedule(BLUR).compute_at("t", "b.y").store_at("t").nest(sizes={"Y": 6, "X": 5})
    assert made.stmts["t"].dims == ("y", "x")


def test_within_blocks() -> None:
    made = schedule(BLUR).split("b.y", 8).compute_at("t", "b.yi").store_at("t", "b.yo")
    assert str(made) == nest(
        "for b.yo = y // 8:",
        "  t: f32 heap buffer folded [d0 % 4]",
        "  for b.yi = y % 8 and y - 8 * yo - 2:",
        "    for t.y:",
        "      for t.x:",
        "        t[y,x] = a[y,x] + a[y,x+1] + a[y,x+2]",
        "    for b.x:",
        "      b[y,x] = t[y,x] + t[y+1,x] + t[y+2,x]",
    )


def test_blocks_of_rows_are_kept() -> None:
    made = schedule(BLUR).split("b.y", 8).compute_at("t", "b.yo").store_at("t")
    assert str(made) == nest(
        "t: f32 heap buffer folded [d0 % 16]",
        "for b.yo = y // 8 and (y - 2) // 8:",
        "  for t.y:",
        "    for t.x:",
        "      t[y,x] = a[y,x] + a[y,x+1] + a[y,x+2]",
        "  for b.yi in 0:8 = y % 8:",
        "    for b.x:",
        "      b[y,x] = t[y,x] + t[y+1,x] + t[y+2,x]",
    )


def test_the_storage_stays_where_it_was_put() -> None:
    made = schedule(BLUR).split("b.y", 8).compute_at("t", "b.yi").store_at("t", "b.yo")
    assert made.split("b.yi", 2).nest().buffers["t"].at == "b.yo"
    assert made.split("b.yo", 2).nest().buffers["t"].at == "b.yoi"
    assert made.split("b.yo", 2).fuse("b.yoo", "b.yoi").nest().buffers["t"].at == "b.yoo_yoi"


def test_a_chain_of_windows() -> None:
    text = "s[y] = a[y] + a[y+1]\nt[y] = s[y] + s[y+1] + s[y+2]\nb[y] = t[y] + t[y+3]"
    made = schedule(text).compute_at("t", "b.y").store_at("t").compute_at("s", "b.y").store_at("s")
    assert str(made) == nest(
        "s: f32 heap buffer folded [d0 % 4]",
        "t: f32 heap buffer folded [d0 % 4]",
        "for b.y = y and y - 3 and y - 5:",
        "  s[y] = a[y] + a[y+1]",
        "  t[y] = s[y] + s[y+1] + s[y+2]",
        "  b[y] = t[y] + t[y+3]",
    )


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_the_fold_is_the_live_window(stride: int, window: int) -> None:
    """A window of n rows at each step; the new rows are written before the old ones are read."""
    reads = " + ".join(f"t[{stride}*y+{n}]" for n in range(window))
    made = schedule(f"t[y] = a[y] * 2\nb[y] = {reads}").compute_at("t", "b.y").store_at("t")
    fold = made.nest().buffers["t"].fold
    live = max(window, stride)  # rows that no window has are computed, too
    assert fold == ((0, 1 << (live - 1).bit_length()),)
    for short in range(1, live):
        with pytest.raises(ScheduleError, match="is written in its place"):
            _folded(made, short)
    _folded(made, live)


def _folded(made: Schedule, n: int) -> None:
    """Checks a fold made by hand, whatever made the nest."""
    found = made.nest()
    buffer = replace(found.buffers["t"], fold=((0, n),))
    check_folds(replace(found, buffers={**found.buffers, "t": buffer}), "by hand")


def test_a_fold_one_row_too_short_is_refused() -> None:
    made = schedule(BLUR).compute_at("t", "b.y").store_at("t")
    with pytest.raises(ScheduleError) as caught:
        _folded(made, 2)
    assert str(caught.value) == (
        "by hand: b[0,0] reads t[0,0] after t[2,0] is written in its place (<text>:2); "
        "fold d0 by 3 at least"
    )


def test_text_replays() -> None:
    made = schedule(BLUR).split("b.y", 8).compute_at("t", "b.yi")
    for more in (made.store_at("t", "b.yo"), made.store_at("t"), made.store_at("t", fold={"y": 5})):
        assert Schedule.parse(more.op, more.text) == more
    assert made.store_at("t", fold={"y": 5}).text.endswith('.store_at("t", fold={"y": 5})')
    assert made.store_at("t", fold={}).nest().buffers["t"].fold == ()


def test_two_tiles_alternate() -> None:
    made = schedule("C[i,j] = sum(A[i,k] * B[k,j])").split("k", 16).split("j", 24)
    made = made.reorder("jo", "ko", "i", "ki", "ji").stage("B", at="ko", double=True)
    assert str(made) == nest(
        "for C.jo = j // 24:",
        "  B.stack: f32 stack buffer of B folded [d0 % 32]",
        "  for C.init.i:",
        "    for C.init.ji in 0:24 = j % 24:",
        "      C[i,j] = f32(0.0)",
        "  for C.ko = k // 16 and ko - 1:",
        "    for B.pack.k:",
        "      for B.pack.j:",
        "        B.stack[k,j] = B[k,j]",
        "    for C.i:",
        "      for C.ki in 0:16 = k % 16:",
        "        for C.ji in 0:24 = j % 24:",
        "          C[i,j] += A[i,k] * B.stack[k,j]",
    )
    found = made.nest()
    short = replace(found.buffers["B.stack"], fold=((0, 31),))
    with pytest.raises(ScheduleError) as caught:
        check_folds(replace(found, buffers={**found.buffers, "B.stack": short}), "by hand")
    assert str(caught.value) == (
        "by hand: C.update[0,0,0] reads B[0,0] after B[31,0] is written in its place (<text>:1); "
        "fold d0 by 32 at least"
    )


RECURRENCE = "c[0] = x[0]\nc[i] = c[i-1] + x[i] where i in 1:I\ny[i] = c[i] + c[i+2]"


def test_a_recurrence_is_computed_as_it_is_needed() -> None:
    assert str(schedule(RECURRENCE).compute_at("c", "y.i").store_at("c")) == nest(
        "c: f32 heap buffer folded [d0 % 4]",
        "for y.i = i and i - 2 and -1:",
        "  c[0] = x[0]",
        "  c[i] = c[i-1] + x[i]",
        "  y[i] = c[i] + c[i+2]",
    )


def test_a_recurrence_is_not_begun_in_every_block() -> None:
    made = schedule(RECURRENCE).split("y.i", 4).compute_at("c", "y.ii")
    with pytest.raises(ScheduleError) as caught:
        made.store_at("c", "y.io")
    assert str(caught.value) == (
        "store_at(c, y.io): c.1[2] reads c[1], which does not hold the newest value (<text>:2)"
    )


@pytest.mark.parametrize(
    "text",
    [
        BLUR,
        "t[y,x] = a[y,x] * 2\nb[y,x] = t[2*y,x] + t[2*y+1,x] + t[2*y+2,x+1]",
        "t[y,x] = sum(a[y,x+k] * w[k])\nb[y,x] = t[y,x] - t[y+1,x+1]",
        "t[y,x] = a[y,x] + 1\nb[y,x] = t.edge[y-1,x] + t.edge[y+1,x-1] where y in 0:Y, x in 0:X",
        "t[y,x] = a[y,x] + 1\nb[y,x] = t[Y-1-y,x] + t[Y-2-y,x] where y in 0:Y-1",
    ],
)
@pytest.mark.parametrize("at", ["b.y", "b.x"])
def test_windows_give_the_same_values(text: str, at: str, run: Any, value: Any) -> None:
    """The nest is run instance by instance, with and without the window."""
    plain = schedule(text)
    made = plain.compute_at("t", at).store_at("t")
    sizes = dict.fromkeys(plain.nest().kernel.checked.sizes, 7) | {"K": 2, "W_0": 2}
    sizes = {n: sizes[n] for n in plain.nest().kernel.checked.sizes}
    a = {(y, x): 3 * y + 5 * x + y * x % 4 for y in range(20) for x in range(20)}
    inputs = {"a": a, "w": {(n,): n + 1 for n in range(9)}}
    one = run(plain.nest(sizes=sizes), inputs, 20)
    two = run(made.nest(sizes=sizes), inputs, 20)
    assert one.cells["b"] == two.cells["b"] != {}
    assert len(two.order) == len({(n, *p.items()) for n, p in two.order})


def test_loops_that_were_skewed_by_loops_around_follow_the_element() -> None:
    """What an iteration of y.i was for the computed tile is the element's own place now."""
    chain = "s[i,j] = x[i,j] + 1\nt[i,j] = s[i,j] * x[i,j]\ny[j,i] = t[i,j] - s[i,j]"
    made = schedule(chain).compute_at("t", "y.i").skew("t.i", "y.i", -1).store_at("t")
    nested = made.nest(sizes={"I": 4, "J": 5})
    assert nested.stmts["t"].dims == ("i", "j")
    x = np.arange(20.0).reshape(4, 5)
    got = dt.op(chain).with_schedule(made, strict=True)(x)
    np.testing.assert_array_equal(got, (((x + 1) * x) - (x + 1)).T)


def test_what_is_kept_over_a_fused_loop_lives_around_it() -> None:
    made = schedule(BLUR).compute_at("t", "b.x").store_at("t", "b.y").fuse("b.y", "b.x")
    assert made.nest(sizes={"Y": 6, "X": 7}).buffers["t"].at is None
    a = np.arange(48.0).reshape(6, 8)
    want = dt.interpret(dt.op(BLUR, returns="b"), a)
    got = dt.op(BLUR, returns="b").with_schedule(made, strict=True)(a)
    np.testing.assert_array_equal(got, want)


def test_elements_that_differ_in_two_folded_dimensions_may_have_places_of_their_own() -> None:
    """On a diagonal both coordinates change: folded by 1 and by 2, two neighbours are apart."""
    waves = (
        "waves(x: [5, 5]) -> w:\n  w[i,j] = where((i > 0) & (j + 2 < 5) & (j > 0) & (i + 1 < 5), "
        "w[i-1,j+2] - w[i+1,j-1], x[i,j]) where i in 0:5, j in 0:5"
    )
    made = dt.op(waves).schedule().stage("x", at="w.i", scope="stack", double=True)
    assert made.nest().buffers["x.stack"].fold == ((0, 1), (1, 2))
    x = np.arange(25.0).reshape(5, 5)
    got = dt.op(waves).with_schedule(made, strict=True)(x)
    np.testing.assert_array_equal(got, dt.interpret(dt.op(waves), x))
