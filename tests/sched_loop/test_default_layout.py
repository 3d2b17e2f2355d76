"""Default layouts of temporaries: along a dimension that fills vectors."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.sched.loop.default import choose, default
from diptych.sched.loop.explain import explain
from diptych.sched.loop.machine import Machine
from diptych.sched.loop.peaks import Peaks

MACHINE = Machine(vector_bytes=32, registers=16, threads=2)
TAPS = """
taps(g: [H, W]) -> b, c:
    w[y,x,r] = g[y,x+r] ** 2 where y in 0:H, x in 0:W-4, r in 0:5
    b[y,x] = sum(w[y,x,r] * g[y,x+r])
    c[y] = sum(w[y,x,r])
"""


def chosen(text: str, *shape: int) -> dict[str, tuple[int, ...]]:
    op = dt.op(text)
    sizes = dict(zip("HW", shape, strict=True))
    found = choose(op, {"g": dt.f32}, sizes, MACHINE).choices
    return {name: choice.layout for name, choice in found.items() if choice.layout}


def test_along_what_fills_vectors() -> None:
    assert chosen(TAPS, 60, 104) == {"w": (0, 2, 1)}
    op = dt.op(TAPS)
    text = default(op, {"g": dt.f32}, {"H": 60, "W": 104}, MACHINE).text
    assert '.vectorize("w.x").layout("w", "d0", "d2", "d1")' in text
    peaks = Peaks(2, {"f32": (1e11, 2e11)}, dict.fromkeys(("l1", "l2", "memory"), (1e10, 2e10)), 0)
    said = explain(op, {"g": dt.f32}, {"H": 60, "W": 104}, MACHINE, peaks)
    assert "  lanes along x: g[y,r+x] goes on, w[y,x,r] goes on" in said
    assert "  laid out along dimension 1, whose rows fill vectors" in said


@pytest.mark.parametrize(
    ("why", "text", "shape"),
    [
        ("no dimension is long", TAPS, (60, 20)),
        ("rows are long", TAPS.replace("0:5", "0:9").replace("W-4", "W-8"), (60, 104)),
        ("it is a result", TAPS.replace("-> b, c", "-> b, c, w"), (60, 104)),
        ("what it reads goes along no long dimension",
         TAPS.replace("g[y,x+r] ** 2", "g[x,y] ** 2").replace("y in 0:H, x in 0:W-4",
         "y in 0:W-4, x in 0:H").replace("* g[y,x+r]", "* g[x,y+r]"), (104, 20)),
    ],
)  # fmt: skip
def test_others_lie_as_written(why: str, text: str, shape: tuple[int, int]) -> None:
    assert not chosen(text, *shape), why


@pytest.mark.parametrize("shape", [(7, 53), (33, 104), (2, 40)])
def test_values(shape: tuple[int, int]) -> None:
    op: Any = dt.op(TAPS)
    g = np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)
    schedule = default(op, {"g": dt.f32}, dict(zip("HW", shape, strict=True)), MACHINE)
    assert ".layout(" in schedule.text
    found = op.with_schedule(schedule, strict=True)(g)
    for mine, theirs in zip(found, dt.interpret(op, g), strict=True):
        np.testing.assert_array_equal(mine, theirs)
