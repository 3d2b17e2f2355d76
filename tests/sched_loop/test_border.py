"""A staged tile holds the border that is read with it: readers ask no more where the ends are."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from diptych.algo.dtypes import from_numpy

SMOOTH = """
    f(x: f32[N]) -> y:
        y[i] = x.fill(2.5)[i-1] + x[i] + x.fill(2.5)[i+1] where i in 0:N
"""
CONV = """
    conv(X: f32[C, H, L], W: f32[F, C, 3, 3]) -> Y:
        Y[f,h,w] = sum(X.zero[c,{s}*h+{d}*r-{p},{s}*w+{d}*q-{p}] * W[f,c,r,q])
            where h in 0:(H+{s}-1)//{s}, w in 0:(L+{s}-1)//{s}
"""


def test_the_copy_asks_and_the_reader_does_not() -> None:
    schedule = dt.op(SMOOTH).schedule().split("i", 8).stage("x", at="io")
    assert str(schedule) == (
        "for y.io = i // 8:\n"
        "  x.stack: f32 stack buffer of x\n"
        "  for x.pack.d0:\n"
        "    x.stack[d0] = where(0 <= d0 < N, x[d0], f32(2.5))\n"
        "  for y.ii in 0:8 = i % 8:\n"
        "    y[i] = x.stack[i-1] + x.stack[i] + x.stack[i+1]"
    )


@pytest.mark.parametrize("n", [1, 2, 8, 13])
def test_one_dimension(n: int) -> None:
    op = dt.op(SMOOTH)
    x = np.arange(n, dtype=np.float32)
    schedule = op.schedule().split("i", 8).stage("x", at="io").vectorize("x.pack.d0")
    np.testing.assert_array_equal(op.with_schedule(schedule, strict=True)(x), dt.interpret(op, x))


def conv(stride: int, dilation: int, pad: int) -> dt.Op:
    lines = CONV.format(s=stride, d=dilation, p=pad).replace("\n            where", " where")
    return dt.op(lines)


@pytest.mark.parametrize(
    ("stride", "dilation", "pad"), [(1, 1, 1), (2, 1, 1), (1, 2, 3), (3, 1, 2)]
)
def test_convolutions_with_strides_and_dilations(stride: int, dilation: int, pad: int) -> None:
    op = conv(stride, dilation, pad)
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (3, 9, 11)).astype(np.float32)
    w = rng.integers(-4, 5, (5, 3, 3, 3)).astype(np.float32)
    want = dt.interpret(op, x, w)
    whole = (
        op.schedule()
        .split("f", 4, into=("fo", "fi"))
        .split("w", 3, into=("wo", "wi"))
        .reorder("h", "fo", "wo", "c", "r", "q", "wi", "fi")
        .stage("Y", at="wo", scope="register", layout=("h", "w", "f"))
        .unroll("wi")
        .vectorize("fi")
    )
    for schedule in (
        whole.stage("X", at="h"),
        whole.stage("X", at="fo").stage("X", at="c", layout=("d2", "d1", "c")),
        whole.stage("X", at="wo", double=True),
    ):
        np.testing.assert_array_equal(op.with_schedule(schedule, strict=True)(x, w), want)


def test_the_inner_loop_of_a_convolution_has_no_condition() -> None:
    schedule = conv(1, 1, 1).schedule().reorder("h", "w", "f", "c", "r", "q").stage("X", at="h")
    text = schedule.source("ir", C=4, H=8, L=8, F=4)
    update = next(line for line in text.splitlines() if "Y[" in line and "sum=" in line)
    assert "where" not in update and "X.stack" in update


def test_a_temporary_may_have_a_border_too() -> None:
    op = dt.op("""
        f(x: f32[N]) -> y:
            t[i] = x[i] * 2
            y[i] = t.zero[i-1] + t.zero[i+1] where i in 0:N
    """)
    schedule = op.schedule().split("y.i", 4).stage("t", at="y.io").compute_at("t", "y.io")
    x = np.arange(1, 11, dtype=np.float32)
    np.testing.assert_array_equal(op.with_schedule(schedule, strict=True)(x), dt.interpret(op, x))


@pytest.mark.parametrize(
    "line",
    [
        "y[i] = where(i > 2, x[i], 0.0) where i in 0:N",  # says nothing of the ends
        "y[i] = x.zero[i-1] + x.fill(1.0)[i+1] where i in 0:N",  # two numbers
        "y[i] = x.edge[i-1] where i in 0:N",
    ],
)
def test_other_conditions_stay_with_the_reader(line: str) -> None:
    op = dt.op(f"f(x: f32[N]) -> y:\n    {line}")
    schedule = op.schedule().split("i", 4).stage("x", at="io")
    assert "    x.stack[d0] = x[d0]\n" in str(schedule).replace("[i]", "[d0]")
    x = np.arange(1, 12, dtype=np.float32)
    np.testing.assert_array_equal(op.with_schedule(schedule, strict=True)(x), dt.interpret(op, x))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.float16])
@pytest.mark.parametrize("fill", ["0", "7", "127", "128", "-1"])
def test_a_border_of_narrow_numbers_is_in_their_type(kind: type, fill: str) -> None:
    """Where what is read is cast and all types hold the number, the copy holds it too."""
    text = f"f(x: [N], w: [K]) -> y:\n  y[i] = sum(x.fill({fill})[i+k-2] * w[k]) where i in 0:N"
    op = dt.op(text)
    rng = np.random.default_rng(3)
    x, w = rng.integers(0, 99, 21).astype(kind), rng.integers(0, 9, 5).astype(kind)
    try:
        want = dt.interpret(op, x, w)
    except dt.Error as err:  # a number that the type has not
        assert fill in ("-1", "128"), err
        return
    made = op.schedule().split("i", 8).stage("x", at="y.io")
    np.testing.assert_array_equal(made(x, w), want)
    types = {"x": from_numpy(x.dtype), "w": from_numpy(w.dtype)}
    guards = [
        s for s in made.nest(types, {"N": 21, "K": 5}).stmts.values() if "where" in str(s.value)
    ]
    assert [s.name for s in guards] == (["x.pack"] if fill in ("0", "7", "127") else ["y.update"])
