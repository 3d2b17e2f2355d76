"""Default schedules of a strip of results after the other, and what makes one worthwhile."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.sched.loop.default import default
from diptych.sched.loop.machine import Machine

MACHINE = Machine(vector_bytes=64, registers=32, threads=2)
FILTER = """
    w[y,x,r,s] = exp(-8 * (g[y+r,x+s] - g[y+1,x+1]) ** 2) where r in 0:3, s in 0:3
    b[y,x] = sum(w[y,x,r,s] * g[y+r,x+s]) / sum(w[y,x,p,q])
"""
FORCES = """
forces(x: [N, 3]) -> f:
    r[i,j] = sum((x[i,c] - x[j,c]) ** 2)
    s[i,j] = where(i == j, 0.0, 1 / max(r[i,j], 0.0001)) where i in 0:N, j in 0:N
    f[i,c] = sum((2 * s[i,j] ** 7 - s[i,j] ** 4) * (x[i,c] - x[j,c]), over=j)
"""
ROWS = "e[i,j] = exp(x[i,j])\ny[i] = sum(e[i,j])"


def nest(text: str, sizes: dict[str, int], **given: Any) -> str:
    """The default schedule at sizes, as a loop nest."""
    op = dt.op(text, **given)
    dtypes = {p.name: dt.f32 for p in op.params}
    return str(default(op, dtypes, sizes, MACHINE))


def test_weights_of_a_filter_are_computed_for_a_strip_of_pixels() -> None:
    assert (
        nest(FILTER, {"g_0": 514, "g_1": 514}, returns="b")
        == """\
parallel for b.y:
  for b.xo = x // 64:
    w: f32 heap buffer laid out [d0, d2, d3, d1]
    b_sum: f32 heap buffer
    b_sum_2: f32 heap buffer
    for w.y:
      for w.r:
        for w.s:
          vector for w.x:
            w[y,x,r,s] = exp(f32(-8.0) * (g[y+r,x+s] - g[y+1,x+1])**f32(2.0))
    for b_sum_2.y:
      vector for b_sum_2.x:
        b_sum_2[y,x] = f32(0.0)
        for b_sum_2.p:
          for b_sum_2.q:
            b_sum_2[y,x] += w[y,x,p,q]
    for b_sum.y:
      vector for b_sum.x:
        b_sum[y,x] = f32(0.0)
        for b_sum.r:
          for b_sum.s:
            b_sum[y,x] += w[y,x,r,s] * g[y+r,x+s]
    vector for b.xi in 0:64 = x % 64:
      b[y,x] = b_sum[y,x] / b_sum_2[y,x]"""
    )


def test_pairs_are_computed_in_registers_inside_the_reduction() -> None:
    assert (
        nest(FORCES, {"N": 2048})
        == """\
parallel for f.io = i // 64:
  for f.co = c // 3:
    f.register: f32 register buffer of f laid out [d1, d0]
    unroll for f.init.ci in 0:3 = c % 3:
      vector for f.init.ii in 0:64 = i % 64:
        f.register[i,c] = f32(0.0)
    for f.j:
      r: f32 heap buffer laid out [d1, d0]
      s: f32 heap buffer laid out [d1, d0]
      for r.j:
        vector for r.i:
          r[i,j] = f32(0.0)
          for r.c:
            r[i,j] += (x[i,c] - x[j,c])**f32(2.0)
      for s.j:
        vector for s.i:
          s[i,j] = where(i == j, f32(0.0), f32(1.0) / max(r[i,j], f32(0.0001)))
      unroll for f.ci in 0:3 = c % 3:
        vector for f.ii in 0:64 = i % 64:
          f.register[i,c] += (f32(2.0) * s[i,j]**f32(7.0) - s[i,j]**f32(4.0)) * (x[i,c] - x[j,c])
    unroll for f.store.ii in 0:64 = i % 64:
      vector for f.store.ci in 0:3 = c % 3:
        f[i,c] = f.register[i,c]"""
    )


def test_strips_do_not_jump_through_rows() -> None:
    """Sums of rows read neighbours in memory along the row: no strip of rows in lanes."""
    assert "for e.i" in nest(ROWS, {"I": 512, "J": 512}, returns="y")
    assert "% 64" not in nest(ROWS, {"I": 512, "J": 512}, returns="y")


@pytest.mark.parametrize("size", [16, 67, 130])
def test_strips_are_right_at_every_size(size: int) -> None:
    rng = np.random.default_rng(size)
    g = rng.random((size + 2, size + 2), np.float32)
    x = 5 * rng.random((size, 3), np.float32)
    for op, array in ((dt.op(FILTER, returns="b"), g), (dt.op(FORCES), x)):
        want = dt.interpret(op, array)
        np.testing.assert_allclose(op(array), want, 1e-4, 1e-5 * np.abs(want).max())
