"""specialize: versions of a nest for sizes with a property."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.lower.ir import If, Let, walk
from diptych.lower.ir_print import print_function, print_stmt
from diptych.lower.kernel import lower

Array = np.ndarray[Any, Any]
TWICE = dt.op("f(x: f32[N]) -> y:\n    dynamic N <= 300\n    y[i] = x[i] * 2")
MATMUL = dt.op("C[i,j] = sum(A[i,k] * B[k,j])").dynamic(I=64, J=64, K=64)


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def version(schedule: dt.Schedule) -> If:
    """The branch on the sizes at the top of the code."""
    body = lower(schedule.nest({}, {}), "f").body
    while isinstance(body, Let):
        body = body.body
    assert isinstance(body, If)
    return body


def test_the_version_has_no_tail() -> None:
    schedule = TWICE.schedule().split("i", 8).vectorize("ii").specialize("N % 8 == 0")
    branch = version(schedule)
    assert print_stmt(branch.then) == (
        "for y.io in 0 .. N // 8:\n"
        "    for y.ii in 0 .. 8 vector(8):\n"
        "        y[8 * y.io + y.ii] = x[8 * y.io + y.ii] * 2.0:f32"
    )
    assert branch.orelse is not None
    assert "min(N - 8 * y.io, 8)" in print_stmt(branch.orelse)
    assert not any(isinstance(stmt, If) for stmt in walk(branch.then))


def test_both_versions_are_right() -> None:
    schedule = TWICE.schedule().split("i", 8).vectorize("ii").specialize("N % 8 == 0")
    for n in (1, 7, 8, 16, 17, 299, 300):
        np.testing.assert_array_equal(schedule(floats(n)), 2 * floats(n))


def test_tiles_in_registers() -> None:
    schedule = (
        MATMUL.schedule()
        .tile(i=4, j=16)
        .reorder("io", "jo", "k", "ii", "ji")
        .stage("C", at="jo", scope="register")
        .unroll("ii")
        .vectorize("ji")
        .parallel("io")
        .specialize("(I % 4 == 0) & (J % 16 == 0)")
    )
    assert "min" not in print_stmt(version(schedule).then)
    for m, n in ((4, 16), (64, 64), (5, 16), (4, 17), (1, 1)):
        a, b = floats(m, 9), floats(9, n)
        want = dt.interpret(MATMUL, a, b)
        np.testing.assert_allclose(schedule(a, b), want, rtol=1e-4, atol=1e-4)


def test_versions_are_tried_in_order() -> None:
    schedule = TWICE.schedule().split("i", 8).specialize("N % 8 == 0").specialize("N >= 16")
    inner = version(schedule).orelse
    assert isinstance(inner, If)
    assert print_stmt(inner).startswith("if N >= 16:")
    assert str(schedule).splitlines()[:2] == ["a version for N % 8 == 0", "a version for N >= 16"]


def test_it_is_decided_where_sizes_are_numbers() -> None:
    op = dt.op("f(x: f32[N]) -> y:\n    y[i] = x[i] * 2")
    plain = op.schedule().split("i", 8)
    for n in (24, 25):
        text = print_function(lower(plain.specialize("N % 8 == 0").nest({}, {"N": n}), "f"))
        assert text == print_function(lower(plain.nest({}, {"N": n}), "f"))


def test_it_is_decided_by_the_declared_maximum() -> None:
    plain = TWICE.schedule().split("i", 8)
    for condition in ("N <= 300", "N > 300"):
        text = print_function(lower(plain.specialize(condition).nest({}, {}), "f"))
        assert text == print_function(lower(plain.nest({}, {}), "f"))


def test_primitives_afterwards_act_on_every_version() -> None:
    schedule = MATMUL.schedule().specialize("K % 8 == 0").split("k", 8).rfactor("ko")
    for k in (8, 9):
        a, b = floats(3, k), floats(k, 5)
        want = dt.interpret(MATMUL, a, b)
        np.testing.assert_allclose(schedule(a, b), want, rtol=1e-4, atol=1e-4)
    assert "if K % 8 == 0" in print_stmt(version(schedule))


def test_on_a_gpu() -> None:
    schedule = (
        MATMUL.schedule()
        .tile(i=8, j=8)
        .split("k", 4)
        .reorder("io", "jo", "ko", "ii", "ji", "ki")
        .stage("A", at="ko", scope="shared")
        .bind("io", "block.y")
        .bind("jo", "block.x")
        .bind("ii", "thread.y")
        .bind("ji", "thread.x")
        .specialize("(I % 8 == 0) & (J % 8 == 0) & (K % 4 == 0)")
    )
    for n in (8, 9):
        a, b = floats(n, n), floats(n, n)
        want = dt.interpret(MATMUL, a, b)
        np.testing.assert_allclose(schedule.on("simt")(a, b), want, rtol=1e-4, atol=1e-4)


def test_it_replays_from_its_text() -> None:
    schedule = MATMUL.schedule().split("i", 8).specialize("(I % 8 == 0) & (J >= 16)")
    assert schedule.text.endswith('.specialize("(I % 8 == 0) & (J >= 16)")')
    assert dt.Schedule.parse(MATMUL, schedule.text) == schedule


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("M % 8 == 0", "specialize(M % 8 == 0): there is no size M (there is N)"),
        ("n > 3", "specialize(n > 3): there is no size n (there is N)"),
        (
            "N * N > 3",
            "specialize(N * N > 3): expected an affine condition on sizes, such as N % 8 == 0",
        ),
        (
            "N % 8",
            "specialize(N % 8): expected an affine condition on sizes, such as N % 8 == 0",
        ),
        (
            "N > 1.5",
            "specialize(N > 1.5): expected an affine condition on sizes, such as N % 8 == 0",
        ),
        (
            "N >",
            "specialize(N >): condition:1: expected an expression, got the end of the text\n"
            "    N >\n       ^",
        ),
    ],
)
def test_errors(condition: str, text: str) -> None:
    with pytest.raises(dt.ScheduleError) as caught:
        TWICE.schedule().specialize(condition)
    assert str(caught.value) == text
