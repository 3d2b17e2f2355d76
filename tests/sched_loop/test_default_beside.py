"""Default schedules of results that walk through one large tensor: they share its loops."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.sizes import bind_sizes
from diptych.autodiff.reverse import adjoint
from diptych.sched.loop.default import default
from diptych.sched.loop.machine import Machine
from diptych.sched.loop.schedule import Schedule

MACHINE = Machine(vector_bytes=32, registers=16, l2=4 << 10, l3=64 << 10, threads=2)

NORM = """
norm(x: [M, N], g: [N], b: [N]) -> y:
    mu[i] = sum(x[i,j]) / N
    v[i] = sum((x[i,j] - mu[i])**2) / N
    y[i,j] = (x[i,j] - mu[i]) * rsqrt(v[i] + 0.00001) * g[j] + b[j]
"""
BOTH = """
both(A: [N, M], p: [M], r: [N]) -> q, s:
    q[i] = sum(A[i,j] * p[j])
    s[j] = sum(A[i,j] * r[i])
"""
ENDS = "ends(x: [N, M]) -> lo, hi:\n lo[i] = min(x[i,j])\n hi[i] = max(x[i,j])"
WHOLE = "whole(x: [N, M]) -> y, t:\n y[i,j] = x[i,j] * 2\n t[] = sum(x[i,j])"
BATCH = """
batch(x: [N, C, W], dy: [N, C, W]) -> dx, g, b:
    mu[c] = sum(x[n,c,w]) / (N * W)
    dx[n,c,w] = dy[n,c,w] * (x[n,c,w] - mu[c])
    g[c] = sum(dy[n,c,w] * x[n,c,w])
    b[c] = sum(dy[n,c,w])
"""
GRADIENT = adjoint(dt.op(NORM), ("x", "g", "b"))
CASES: dict[Any, list[tuple[int, ...]]] = {
    dt.op(BOTH): [(67, 129), (129,), (67,)],
    dt.op(ENDS): [(67, 129)],
    dt.op(WHOLE): [(67, 129)],
    dt.op(BATCH): [(7, 5, 71), (7, 5, 71)],
    GRADIENT: [(37, 129), (129,), (37, 129)],
}


def chosen(op: Any, **sizes: int) -> Schedule:
    return default(op, {p.name: dt.f32 for p in op.params}, sizes, MACHINE)


def test_sums_of_columns_are_factored_for_threads() -> None:
    assert chosen(dt.op(BOTH), N=64, M=128).text == (
        '.split("q.i", 8).split("s.i", 8).rfactor("s.io").reorder("s.io", "s.ii", "s.j")'
        '.compute_with("q.update", "s.rf.update", "io")'
        '.compute_with("q.update", "s.rf.update", "ii")'
        '.compute_with("q.update", "s.rf.update", "j")'
        '.vectorize("s.rf.init.j").vectorize("s.j").vectorize("s.init.j").vectorize("s.update.j")'
        '.parallel("s.io")'
    )


def test_rows_are_shared_as_they_are() -> None:
    assert chosen(dt.op(ENDS), N=64, M=128).text == (
        '.compute_with("lo.update", "hi.update", "i").compute_with("lo.update", "hi.update", "j")'
        '.vectorize("hi.j").parallel("hi.i")'
    )


def test_a_gradient_of_a_norm_goes_through_its_rows_once() -> None:
    """All that belongs to a row is computed there: its means, its sums, and what it adds to those
    of the columns."""
    assert '.compute_at("mu", "db.ii")' in (text := chosen(GRADIENT, M=64, N=128).text)
    assert '.compute_with("dx", "db.rf.update", "j")' in text
    loops = str(chosen(GRADIENT, M=64, N=128)).split("\n")
    around = [line for line in loops if line.startswith("for") or line.startswith("parallel")]
    assert around[0].startswith("parallel for db.io")
    assert all(".update.j" in line or ".init.j" in line for line in around[1:])


@pytest.mark.parametrize(
    ("why", "text", "sizes"),
    [
        ("a cache holds it", BOTH, {"N": 16, "M": 32}),
        ("rows of few vectors", BOTH, {"N": 512, "M": 17}),
        ("one reads another", "r(x: [N, M]) -> s, y:\n s[i] = sum(x[i,j])\n y[i,j] = x[i,j] - s[i]",
         {"N": 64, "M": 128}),
        ("nothing is read by both", "u(x: [N, M], z: [N, M]) -> y, s:\n y[i,j] = x[i,j] * 2\n"
         " s[j] = sum(z[i,j])", {"N": 64, "M": 128}),
        ("one in two parts", "h(x: [N, M]) -> y:\n y[i,j] = x[i,j] where i in 0:N-1\n"
         " y[N-1,j] = x[N-1,j] * 2", {"N": 64, "M": 128}),
    ],
)  # fmt: skip
def test_others_keep_loops_of_their_own(why: str, text: str, sizes: dict[str, int]) -> None:
    assert "compute_with" not in chosen(dt.op(text), **sizes).text, why


@pytest.mark.parametrize("op", CASES, ids=lambda op: op.name)
def test_values(op: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for shape in CASES[op]]
    names = [p.name for p in op.params]
    schedule = chosen(op, **bind_sizes(check(op), dict(zip(names, CASES[op], strict=True))))
    assert "compute_with" in schedule.text
    found = op.with_schedule(schedule, strict=True)(*arrays)
    for mine, theirs in zip(found, dt.interpret(op, *arrays), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
