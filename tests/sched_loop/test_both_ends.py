"""Tiles of tensors of dynamic sizes whose parts are bounded by different sizes."""

from __future__ import annotations

from collections.abc import Callable

import diptych as dt
import numpy as np
import pytest

Scheduled = Callable[[dt.Schedule], dt.Schedule]

LINE = "f(x: [N]) -> y:\n  dynamic N <= 64\n"
PLANE = "f(x: [N,M]) -> y:\n  dynamic N <= 40, M <= 40\n"
QUOTIENTS = PLANE + "  y[i,j] = x[i//2,M-1-j] + x[i,j//3] where i in 0:N, j in 0:M"
CASES: dict[str, tuple[str, Scheduled]] = {
    "stage": (
        LINE + "  y[j] = x[N-1-j] + x[j] where j in 0:N",
        lambda s: s.split("j", 8).stage("x", at="jo"),
    ),
    "separate tail": (
        LINE + "  y[j] = x[N-1-j] + x[j] where j in 0:N",
        lambda s: s.split("j", 8, tail="separate").stage("x", at="jo"),
    ),
    "compute_at": (
        LINE + "  t[j] = x[j]*2\n  y[j] = t[N-1-j] + t[j] where j in 0:N",
        lambda s: s.split("y.j", 8).compute_at("t", "y.jo"),
    ),
    "border": (
        LINE + "  y[j] = x.zero[N-1-j] + x.zero[j+1] where j in 0:N",
        lambda s: s.split("j", 8).stage("x", at="jo"),
    ),
    "triangle": (
        LINE + "  y[j] = sum(x[N-1-k]*x[k], over=(k in j:N)) where j in 0:N",
        lambda s: s.stage("x", at="y.j"),
    ),
    "tile": (
        PLANE + "  y[i,j] = x[i,M-1-j] + x[i,j] where i in 0:N, j in 0:M",
        lambda s: s.tile({"y.i": 4, "y.j": 8}).stage("x", at="y.jo"),
    ),
    "both dims": (
        PLANE + "  y[i,j] = x[N-1-i,M-1-j] + x[i,j] where i in 0:N, j in 0:M",
        lambda s: s.tile({"y.i": 4, "y.j": 8}).stage("x", at="y.jo"),
    ),
    "quotients, fused": (QUOTIENTS, lambda s: s.fuse("y.i", "y.j").stage("x", at="y.i_j")),
    "quotients, fused and split": (
        QUOTIENTS,
        lambda s: s.fuse("y.i", "y.j").split("y.i_j", 8).stage("x", at="y.i_jo"),
    ),
}


def check(op: dt.Op, schedule: dt.Schedule, *arrays: np.ndarray) -> None:
    got, want = op.with_schedule(schedule, strict=True)(*arrays), dt.interpret(op, *arrays)
    if not isinstance(got, tuple):
        got, want = (got,), (want,)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.int32).reshape(shape)


@pytest.mark.parametrize("case", CASES)
def test_tiles_of_what_is_read_from_both_ends(case: str) -> None:
    text, scheduled = CASES[case]
    op = dt.op(text)
    schedule = scheduled(op.schedule())
    shapes = [(0,), (1,), (8,), (20,), (64,)]
    if "[N,M]" in text:
        shapes = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 9), (14, 13)]
    for shape in shapes:
        check(op, schedule, numbers(*shape))


def test_the_sizes_may_be_made_dynamic_later() -> None:
    plain = dt.op("f(x: [N]) -> y:\n  y[j] = x[N-1-j] + x[j] where j in 0:N")
    for op in (plain, plain.dynamic(N=30)):
        schedule = op.schedule().split("j", 8).stage("x", at="jo")
        for n in (0, 1, 7, 30):
            check(op, schedule, numbers(n))


def test_a_tile_with_a_border_that_one_of_two_sizes_ends() -> None:
    op = dt.op(
        "f(x: [K], z: [N], w: [M]) -> y:\n  dynamic N <= 30, M <= 40, K <= 50\n"
        "  y[j] = x.zero[j+N] + x.zero[j+M] + z[0] + w[0] where j in 0:K"
    )
    schedule = op.schedule().split("j", 8).stage("x", at="jo")
    for k, n, m in ((20, 3, 5), (50, 30, 40), (1, 1, 1), (50, 30, 2), (0, 1, 1)):
        check(op, schedule, numbers(k), numbers(n), numbers(m))


def test_iterations_that_one_of_two_sizes_ends() -> None:
    op = dt.op(
        "f(x: [K], z: [N], w: [M]) -> y, v:\n  dynamic N <= 30, M <= 40, K <= 50\n"
        "  y[j] = z[j] + x.zero[j-1]\n  v[j] = w[j] + x.zero[K-1-j]"
    )
    schedule = op.schedule().compute_with("y", "v", "j").stage("x", at="v.j")
    for k, n, m in ((20, 3, 5), (50, 30, 40), (1, 1, 1), (50, 30, 2), (0, 0, 0), (3, 0, 7)):
        check(op, schedule, numbers(k), numbers(n), numbers(m))
