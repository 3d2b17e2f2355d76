"""Merging axes: divisions go where quotient and rest of one number meet, and only there."""

from __future__ import annotations

import numpy as np
from diptych.algo.tensor_expr.parse import parse
from diptych.lower.ir_parse import parse_function
from diptych.lower.ir_print import print_function
from diptych.lower.kernel import lower
from diptych.lower.passes.flatten import flatten
from diptych.lower.run import run
from diptych.sched.loop.schedule import Schedule

FUSED = """
function f(x: param f32[5, 3] align 4, y: param f32[4, 3] align 4):
    for i_c in 0 .. 12:
        y[i_c // 3, i_c % 3] = x[i_c // 3 + 1, i_c % 3]
"""

STRIDED = """
function f(x: param f32[5, 3] strides [4, 1] align 4, y: param f32[5, 3] align 4):
    for i_c in 0 .. 15:
        y[i_c // 3, i_c % 3] = x[i_c // 3, i_c % 3]
"""


FLAT = """
function f(x: param f32[15] align 4, y: param f32[12] align 4):
    for i_c in 0 .. 12:
        y[i_c] = x[i_c + 3]
"""


def test_before_and_after() -> None:
    assert print_function(flatten(parse_function(FUSED))).strip() == FLAT.strip()


def test_axes_that_are_not_neighbours_in_memory_stay() -> None:
    text = print_function(flatten(parse_function(STRIDED)))
    assert "x: param f32[5, 3]" in text and "x[i_c // 3, i_c % 3]" in text
    assert "y[i_c]" in text


def test_a_fused_image_filter_has_contiguous_vectors() -> None:
    op = parse("y[r,x,c] = a[r,x,c] + a[r,x+1,c] * 2")
    schedule = Schedule(op).fuse("x", "c").vectorize("x_c")
    sizes = {"R": 4, "X": 7, "C": 3}
    function = lower(schedule.nest(None, sizes), "f")
    text = print_function(function)
    assert "//" not in text and "y[y.r, y.x_c]" in text
    a = np.arange(84, dtype=np.float32).reshape(4, 7, 3)
    out = np.full((4, 6, 3), np.nan, np.float32)
    run(function, a, out)
    np.testing.assert_array_equal(out, a[:, :-1] + a[:, 1:] * 2)
