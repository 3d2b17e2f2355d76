"""Loops with a step inside vector loops: lanes may start them at different places."""

from __future__ import annotations

import numpy as np
from diptych.algo.dtypes import f32
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.parse import parse
from diptych.codegen.kernels import compile_op
from diptych.sched.loop.schedule import Schedule


def test_lanes_count_the_iterations_of_a_strided_loop() -> None:
    op = parse(
        "y[n,c,h,w] = max(x[n,c,2*h+r,2*w+s]) where r in 0:2, s in 0:2\n"
        "dx[n,c,z,u] = sum(where(x[n,c,z,u] == y[n,c,h,w], 1, 0), "
        "where=(2 * h + r == z) & (2 * w + s == u)) where r in 0:2, s in 0:2",
        returns="dx",
    )
    schedule = Schedule(op).vectorize("dx.u", 3).reorder("dx.s", "dx.uo", "dx.w")
    x = np.random.default_rng(0).integers(0, 3, (1, 2, 8, 8)).astype(np.float32)
    got = compile_op(op, [(f32, x.shape)], schedule)(x)
    np.testing.assert_array_equal(got, interpret(op, x))


def test_reversed_lanes_do_not_touch_what_lies_before_a_buffer() -> None:
    """Buffers of our own are padded at their end only: a tail that runs backwards is masked."""
    op = parse("t[i,j] = x[i,j] + x[i+1,j]\ny[i,j] = t[i,j] * t[i+1,j]\nz[j] = max(y[i,j])")
    schedule = Schedule(op).reverse("y.j").stage("y", at="y.i").vectorize("y.store.j")
    for width in (1, 3, 5, 16, 19):
        x = np.random.default_rng(width).integers(0, 5, (9, width)).astype(np.float32)
        got = compile_op(op, [(f32, x.shape)], schedule)(x)
        np.testing.assert_array_equal(got, interpret(op, x))
