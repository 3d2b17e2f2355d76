"""Accesses beyond the ends of a tensor, against NumPy's `pad`."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from guard import Fenced

Array = np.ndarray[Any, Any]
MODES: dict[str, dict[str, Any]] = {
    "edge": {"mode": "edge"},
    "zero": {"mode": "constant"},
    "fill(1.5)": {"mode": "constant", "constant_values": 1.5},
    "reflect": {"mode": "reflect"},
    "wrap": {"mode": "wrap"},
}


def operator(kind: str, shape: tuple[int, int]) -> dt.Op:
    """A stencil with five points, three of them beyond the ends at some cells."""
    dims = "H, W" if kind in ("edge", "zero") else f"{shape[0]}, {shape[1]}"
    return dt.op(
        f"f(x: [{dims}], w) -> y:\n"
        f"    y[i,j] = x.{kind}[i-2,j] + 2*x.{kind}[i,j+3] + x.{kind}[i+1,j-1] * w[i,j]"
    )


def expected(kind: str, x: Array, w: Array) -> Array:
    p = np.pad(x, 3, **MODES[kind])
    m, n = x.shape
    return p[1 : 1 + m, 3 : 3 + n] + 2 * p[3 : 3 + m, 6 : 6 + n] + p[4 : 4 + m, 2 : 2 + n] * w


def inputs(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return np.random.default_rng(1).integers(-9, 9, shape).astype(dtype)


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("shape", [(4, 4), (9, 23)])
def test_as_numpy_pads(kind: str, shape: tuple[int, int]) -> None:
    op, x, w = operator(kind, shape), inputs(shape), inputs(shape)
    want = expected(kind, x, w)
    np.testing.assert_array_equal(dt.interpret(op, x, w), want)
    np.testing.assert_array_equal(op(x, w), want)
    assert dt.op(op.text) == op


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize(
    "calls",
    [
        '.vectorize("j", 8)',
        '.split("i", 4, tail="separate").vectorize("j", 4).parallel("io")',
        '.tile(i=3, j=5).stage("x", at="jo", scope="stack")',
        '.fuse("i", "j").split("i_j", 8).unroll("i_ji")',
    ],
)
def test_under_schedules(kind: str, calls: str) -> None:
    op, x, w = operator(kind, (9, 23)), inputs((9, 23)), inputs((9, 23))
    schedule = dt.Schedule.parse(op, calls)
    found = op.with_schedule(schedule, strict=True)(x, w)
    np.testing.assert_array_equal(found, expected(kind, x, w))


@pytest.mark.parametrize("kind", MODES)
def test_derivatives(kind: str) -> None:
    op = operator(kind, (5, 7))
    x, w = (np.random.default_rng(n).standard_normal((5, 7)) for n in (2, 3))
    dt.check_grads(op, (x, w))
    dy = inputs((5, 7), "float64")
    back = op.gradient("x")
    given = {"x": x, "w": w, "dy": dy}
    arrays = [given[p.name] for p in back.params]
    np.testing.assert_allclose(back(*arrays), dt.interpret(back, *arrays), rtol=1e-12)


def test_the_gradient_of_a_clamped_read_scans_no_other_instance() -> None:
    back = dt.op("y[i] = x.edge[i-2] + x.edge[i]").gradient("x")
    dy = np.ones(100_000, np.float32)
    assert back(dy)[:3].tolist() == [4, 2, 2]


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("calls", ["", '.vectorize("j", 8)', '.split("j", 8).unroll("ji")'])
def test_nothing_outside_is_touched(kind: str, at_end: bool, calls: str) -> None:
    op, w = operator(kind, (9, 23)), inputs((9, 23))
    x = Fenced(inputs((9, 23)), at_end=at_end)
    compiled = op.with_schedule(dt.Schedule.parse(op, calls), strict=True) if calls else op
    np.testing.assert_array_equal(compiled(x.array, w), expected(kind, x.array, w))


def test_a_convolution_with_padding() -> None:
    op = dt.op(
        "conv(x: [N, H, W], w: [3, 3]) -> y:\n"
        "    y[n,i,j] = sum(x.zero[n,2*i+p-1,2*j+q-1] * w[p,q]) where i in 0:H//2, j in 0:W//2"
    )
    x, w = inputs((2, 9, 12)), inputs((3, 3))
    p = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    want = sum(p[:, a : a + 8 : 2, b : b + 12 : 2] * w[a, b] for a in range(3) for b in range(3))
    np.testing.assert_array_equal(op(x, w), want)
    np.testing.assert_array_equal(dt.interpret(op, x, w), want)


def test_small_and_empty_tensors() -> None:
    for kind, one in [("edge", 7), ("reflect", 7), ("zero", 0), ("fill(2)", 2)]:
        op = dt.op(f"y[i] = x.{kind}[i-1] + 0 * x.{kind}[i]")
        assert op(np.array([7.0])).tolist() == [one]
        assert op(np.zeros(0)).tolist() == dt.interpret(op, np.zeros(0)).tolist() == []
    # Reflection happens once; what is still outside gives the nearest element.
    far = dt.op("f(x: [N]) -> y:\n    y[i] = x.reflect[i-6] where i in 0:N+10")
    assert far(np.array([0.0, 1, 2])).tolist() == [2, 2, 2, 2, 2, 1, 0, 1, 2, 1, 0, 0, 0]
    np.testing.assert_array_equal(far(np.array([0.0, 1, 2])), dt.interpret(far, np.arange(3.0)))


def test_types() -> None:
    op = dt.op("f(x: [N]) -> y:\n    y[i] = x.zero[i-1] where i in 0:N+2")
    for dtype in (np.bool_, np.int8, np.float16, np.uint64):
        x = np.ones(2, dtype)
        found = op(x)
        assert found.dtype == dt.interpret(op, x).dtype == dtype
        assert found.tolist() == [0, 1, 1, 0]
    filled = dt.op("y[i] = x.fill(2.5)[i-1] + 0 * x.fill(2.5)[i]")
    assert filled(np.ones(2, np.float32)).dtype == np.float32


def test_reads_that_depend_on_data_stay_inside() -> None:
    op = dt.op("f(x, k) -> y:\n    y[i] = x.edge[k[i]] + 10 * x.zero[k.edge[i-1]]")
    x, k = np.array([1.0, 2, 3]), np.array([-5, 1, 9])
    assert op(x, k).tolist() == dt.interpret(op, x, k).tolist() == [1, 2, 23]


def test_what_an_index_runs_over() -> None:
    # Where nothing else says how far i goes, x.edge[i] means all of x; else it says nothing.
    assert dt.op("y[i] = x.edge[i-1] + x.edge[i]")(np.ones(4)).shape == (4,)
    assert dt.op("y[i] = x.edge[i] + w[i]")(np.ones(4), np.ones(6)).shape == (6,)


def test_traced() -> None:
    i = dt.indices("i")

    @dt.op
    def f(x):  # type: ignore[no-untyped-def]
        y = dt.tensor("y")
        y[i] = x.edge[i - 1] + x.zero[i] * x.reflect[i + 1] - x.fill(-2)[i]
        return y

    assert f.text == "y[i] = x.edge[i-1] + x.zero[i] * x.reflect[i+1] - x.fill(-2)[i]"
    assert f(np.array([1.0, 2, 4])).tolist() == [2, 7, 6]
    with pytest.raises(dt.OpError, match=r"fill takes a number, got i; choose by dt\.where"):

        @dt.op
        def g(x):  # type: ignore[no-untyped-def]
            y = dt.tensor("y")
            y[i] = x.fill(i)[i]
            return y


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "y[i] = W[k.zero[i]]",
            "k.zero[i] stands in an index position, where 0 or another number is no element; "
            "choose an element with .edge, .reflect or .wrap",
        ),
        (
            "y[i] = x.edge[i-1]",
            "nothing says how far index i goes; give it a range, as in `where i in 0:8`, or in 0:I "
            "where a header says that I is a size, as in `f(x: [I])`",
        ),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(dt.OpError) as caught:
        dt.op(text)
    assert str(caught.value).startswith(f"{message}\n    in {text}")


def test_a_recurrence_reads_beyond_its_own_ends() -> None:
    scan = dt.op("c[i] = c.zero[i-1] + x[i]")
    x = np.arange(7.0)
    np.testing.assert_array_equal(scan(x), np.cumsum(x))
    np.testing.assert_array_equal(dt.interpret(scan, x), np.cumsum(x))
