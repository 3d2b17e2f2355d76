"""Loops at other values: reversed, shifted, skewed; and temporaries without storage."""

from __future__ import annotations

import pickle
from functools import reduce
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.sched.loop.schedule import Schedule

HEAT = """heat(f: f32[X], steps: f32[T]) -> u:
    u[t,x] = where(t > 0, where((x > 0) & (x < X - 1), u[t-1,x-1] + u[t-1,x+1] - u[t-1,x], u[t-1,x]), f[x]) where t in 0:T, x in 0:X
"""  # noqa: E501
BLUR = "t[i] = x[i] * 2\ny[i] = t[i] + t[i+1] + t[i+2]"


def same(op: dt.Op, schedule: Schedule, *arrays: Any) -> None:
    """The schedule validates, replays, and runs to what the interpreter says."""
    schedule.validate()
    assert Schedule.parse(op, schedule.text) == schedule == pickle.loads(pickle.dumps(schedule))
    want = dt.interpret(op, *arrays)
    out = np.full_like(want, 77)
    np.testing.assert_array_equal(op.with_schedule(schedule, strict=True)(*arrays, out=out), want)


def integers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).integers(-4, 5, shape).astype("float32")


def test_a_stencil_is_skewed_in_time() -> None:
    op = dt.op(HEAT)
    with pytest.raises(dt.ScheduleError, match=r"u\[1,7\] reads u\[0,8\] before it is written"):
        op.schedule().tile(t=4, x=8)
    tiles = op.schedule().skew("x", "t", 1).tile(t=4, x=8)
    waves = tiles.skew("xo", "to", 1).reorder("xo", "to", "ti", "xi").parallel("to")
    for x, t in ((37, 11), (8, 4), (1, 3), (5, 1)):
        for made in (tiles, waves):
            same(op, made, integers(x), integers(t))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_shifted_stages_share_a_loop(n: int) -> None:
    op = dt.op(BLUR)
    shifted = op.schedule().shift("y", "y.i", n)
    if n == 1:
        with pytest.raises(dt.ScheduleError, match=r"y\[0\] reads t\[2\] before it is written"):
            shifted.compute_with("t", "y", "i")
        return
    made = shifted.compute_with("t", "y", "i")
    assert f"for y.i = i and i + {n}:" in str(made)
    same(op, made, integers(13))


def test_a_loop_of_several_is_that_around_the_stage() -> None:
    made = dt.op(BLUR).schedule()
    assert str(made.shift("y", "i", 2)) == str(made.shift("y", "y.i", 2))
    assert str(made.shift("t", "i", 2)) == str(made.shift("t", "t.i", 2))
    with pytest.raises(dt.ScheduleError, match=r"shift\(q, i, 2\): i may mean t.i, y.i; write"):
        made.shift("q", "i", 2)


def test_a_reduction_moves_as_one() -> None:
    op = dt.op("y(x: f16[I, J]) -> y:\n    y[i] = sum(x[i,j])")
    same(op, op.schedule().shift("y", "i", 2), integers(4, 5).astype("float16"))


def test_reversed_loops() -> None:
    op = dt.op("F[y,x] = a[y,x] + 1\nG[y,x] = F[y,X-1-x] where x in 0:X")
    made = op.schedule().reverse("F.x").split("F.x", 4).vectorize("F.xi").reverse("G.x")
    same(op, made.split("G.x", 4).reverse("G.xi").unroll("G.xi"), integers(3, 11))


def test_a_reversed_tile_keeps_its_range() -> None:
    made = dt.op(BLUR).schedule().split("t.i", 8).reverse("t.ii")
    assert "for t.ii in 0:8 = 7 - i % 8:" in str(made)


def test_inlined_stages() -> None:
    op = dt.op("t[i] = x[i] * x[i]\nu[i] = where(t[i] > 3, t[i], 1)\ny[i] = u[i] + u[i+1]")
    made = op.schedule().inline("t").inline("u")
    assert str(made).count("for ") == 1
    same(op, made.vectorize("i", 8), integers(13))


def test_a_chain_of_inlined_stages_is_compiled() -> None:  # R18
    op = dt.op("\n".join(f"F{n + 1}[i] = F{n}[i] + F{n}[i+1]" for n in range(8)))
    made = reduce(Schedule.inline, (f"F{n}" for n in range(1, 8)), op.schedule())
    x = np.ones(64)
    np.testing.assert_array_equal(op.with_schedule(made, strict=True)(x), np.full(56, 256.0))


def test_an_inlined_stage_rounds_as_it_did() -> None:
    op = dt.op("q(x: f16[N]) -> y:\n    t[i] = x[i] / 3\n    y[i] = t[i] * 3 - x[i]")
    same(op, op.schedule().inline("t"), np.arange(20).astype("float16"))
