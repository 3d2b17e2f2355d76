"""Recurrences compiled: named ones against plain NumPy loops, by several schedules each."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop.schedule import Schedule
from properties.pairs import added
from properties.proposals import View, propose

Array = np.ndarray[Any, Any]


@dataclass
class Named:
    """An operator, shapes of its inputs, what it means, and schedules by hand."""

    text: str
    shapes: list[tuple[int, ...]]
    plain: Callable[..., Array]
    schedules: list[str]


def cumsum(x):
    return np.cumsum(x, axis=1, dtype=x.dtype)


def iir(x, b, a):
    y = np.zeros_like(x)
    for t in range(len(x)):
        y[t] = sum(b[k] * x[t - k] for k in range(len(b)) if t >= k)
        y[t] -= sum(a[k] * y[t - 1 - k] for k in range(len(a)) if t >= 1 + k)
    return y


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def lstm(x, W, U, b, h0, c0):
    h, c = [h0], [c0]
    for t in range(len(x)):
        i, f, o, g = (W[q] @ x[t] + U[q] @ h[-1] + b[q] for q in range(4))
        c.append(sigmoid(f) * c[-1] + sigmoid(i) * np.tanh(g))
        h.append(sigmoid(o) * np.tanh(c[-1]))
    return np.array(h)


def heat(u0):
    u = np.zeros((12, *u0.shape), u0.dtype)
    u[0] = u0
    for t in range(1, 12):
        p = np.pad(u[t - 1], 1, mode="edge")
        u[t] = (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) / 4
    return u


def distance(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), a.dtype)
    d[0], d[:, 0] = np.arange(len(b) + 1), np.arange(len(a) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            other = d[i - 1, j - 1] + (a[i - 1] != b[j - 1])
            d[i, j] = min(other, d[i - 1, j] + 1, d[i, j - 1] + 1)
    return d


def paths(w):
    d = [w]
    for k in range(len(w)):
        d.append(np.minimum(d[-1], d[-1][:, k, None] + d[-1][None, k]))
    return np.array(d)


def species(a):
    x, y = [a], [2 * a]
    for _ in range(1, 9):
        x.append(np.append(y[-1][1:], 0).astype(a.dtype) / 2 + x[-1] / 4)
        y.append(x[-1] - y[-1] / 4)
    return np.array(y)


def viterbi(e, A):
    v = [e[0]]
    for t in range(1, len(e)):
        v.append(e[t] + (v[-1][:, None] + A).max(0))
    return np.array(v)


NAMED = {
    "cumsum": Named(
        "cumsum(x: [B, N]) -> c:\n c[b,0] = x[b,0]\n c[b,i] = c[b,i-1] + x[b,i] where i in 1:N",
        [(5, 19)],
        cumsum,
        ['parallel("c.1.b").parallel("c.0.b")', 'reorder("c.1.i", "c.1.b").vectorize("c.1.b")'],
    ),
    "IIR filter": Named(
        "iir(x: [N], b: [K], a: [L]) -> y:\n"
        " y[t] = sum(b[k] * x.zero[t-k]) - sum(a[l] * y.zero[t-1-l]) where t in 0:N",
        [(23,), (3,), (2,)],
        iir,
        ['compute_at("y_sum", "y.t")', 'vectorize("y_sum.t")'],
    ),
    "LSTM": Named(
        "lstm(x: [T, I], W: [4, D, I], U: [4, D, D], b: [4, D], h0: [D], c0: [D]) -> h:\n"
        " h[0,d] = h0[d]\n c[0,d] = c0[d]\n"
        " g[t,q,d] = sum(W[q,d,i] * x[t,i]) + sum(U[q,d,e] * h[t,e]) + b[q,d]\n"
        " c[t,d] = sigmoid(g[t-1,1,d]) * c[t-1,d] + sigmoid(g[t-1,0,d]) * tanh(g[t-1,3,d])"
        " where t in 1:T+1\n"
        " h[t,d] = sigmoid(g[t-1,2,d]) * tanh(c[t,d]) where t in 1:T+1",
        [(6, 5), (4, 7, 5), (4, 7, 7), (4, 7), (7,), (7,)],
        lstm,
        [
            'parallel("g.d").vectorize("c.1.d").vectorize("h.1.d")',
            'reorder("g_sum_2.e", "g_sum_2.q", "g_sum_2.d").vectorize("g_sum_2.d")',
            'compute_at("g_sum", "c.1.t").split("c.1.t", 4).tile(**{"g.q": 2, "g.d": 4})',
            'stage("U", at="c.1.t", scope="stack").unroll("g.q")',
            'compute_with("c.1", "h.1", "c.1.d")',
        ],
    ),
    "stencil in time": Named(
        "heat(u: [N, M]) -> v:\n v[0,i,j] = u[i,j]\n"
        " v[t,i,j] = (v.edge[t-1,i-1,j] + v.edge[t-1,i+1,j] + v.edge[t-1,i,j-1]"
        " + v.edge[t-1,i,j+1]) / 4 where t in 1:12",
        [(11, 19)],
        heat,
        [
            'parallel("v.1.i").vectorize("v.1.j")',
            'skew("v.1.i", "v.1.t").skew("v.1.j", "v.1.t").split("v.1.t", 4).split("v.1.i", 8)'
            '.split("v.1.j", 8).reorder("v.1.to", "v.1.io", "v.1.jo", "v.1.ti", "v.1.ii",'
            ' "v.1.ji").vectorize("v.1.ji")',
            'skew("v.1.i", "v.1.t").reorder("v.1.i", "v.1.t", "v.1.j").parallel("v.1.j")',
        ],
    ),
    "edit distance": Named(
        "distance(a: [M], b: [N]) -> d:\n d[0,j] = j where j in 0:N+1\n"
        " d[i,0] = i where i in 1:M+1\n"
        " d[i,j] = min(d[i-1,j-1] + where(a[i-1] == b[j-1], 0, 1), d[i-1,j] + 1, d[i,j-1] + 1)"
        " where i in 1:M+1, j in 1:N+1",
        [(13,), (18,)],
        distance,
        [
            'skew("d.2.j", "d.2.i").reorder("d.2.j", "d.2.i").vectorize("d.2.i")',
            'skew("d.2.j", "d.2.i").reorder("d.2.j", "d.2.i").parallel("d.2.i")',
            'split("d.2.i", 4).split("d.2.j", 8).reorder("d.2.io", "d.2.jo", "d.2.ii", "d.2.ji")'
            '.skew("d.2.jo", "d.2.io").reorder("d.2.jo", "d.2.io").parallel("d.2.io")',
            'reorder("d.2.j", "d.2.i")',
        ],
    ),
    "Floyd-Warshall": Named(
        "paths(w: [N, N]) -> d:\n d[0,i,j] = w[i,j]\n"
        " d[k,i,j] = min(d[k-1,i,j], d[k-1,i,k-1] + d[k-1,k-1,j]) where k in 1:N+1",
        [(9, 9)],
        paths,
        ['parallel("d.1.i").vectorize("d.1.j")', 'tile(**{"d.1.i": 4, "d.1.j": 8})'],
    ),
    "two species": Named(
        "species(a: [N]) -> y:\n x[0,i] = a[i]\n y[0,i] = 2 * a[i]\n"
        " x[t,i] = y.zero[t-1,i+1] / 2 + x[t-1,i] / 4 where t in 1:9\n"
        " y[t,i] = x[t,i] - y[t-1,i] / 4 where t in 1:9",
        [(21,)],
        species,
        [
            'vectorize("x.1.i").vectorize("y.1.i")',
            'compute_with("x.1", "y.1", "x.1.i").parallel("y.1.i")',
            'compute_with("x.1", "y.1", "x.1.i").skew("y.1.i", "x.1.t").split("x.1.t", 2)'
            '.split("y.1.i", 4).reorder("x.1.to", "y.1.io", "x.1.ti", "y.1.ii")',
        ],
    ),
    "Viterbi": Named(
        "viterbi(e: [T, S], A: [S, S]) -> v:\n v[0,s] = e[0,s]\n"
        " v[t,s] = e[t,s] + max(v[t-1,r] + A[r,s]) where t in 1:T",
        [(7, 11), (11, 11)],
        viterbi,
        ['reorder("v.1.r", "v.1.s").vectorize("v.1.s")', 'parallel("v.1.s")'],
    ),
}  # fmt: skip


def inputs(case: Named, dtype: str, shapes: list[tuple[int, ...]] | None = None) -> list[Array]:
    rng = np.random.default_rng(0)
    drawn = [rng.uniform(-0.5, 0.5, shape) for shape in shapes or case.shapes]
    return [np.asarray(a if "float" in dtype else np.round(8 * a), dtype) for a in drawn]


def close(got: Array, want: Array, dtype: str) -> None:
    tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-2}.get(dtype, 0)
    assert got.shape == want.shape
    np.testing.assert_allclose(got.astype(float), want.astype(float), tolerance, tolerance)


@pytest.mark.parametrize("name", NAMED)
def test_named_recurrences(name: str) -> None:
    case = NAMED[name]
    op = dt.op(case.text)
    for dtype in ("float32", "float64", "float16"):
        arrays = inputs(case, dtype)
        want = case.plain(*(a.astype(float) for a in arrays))
        close(dt.interpret(op, *arrays), want, dtype)
        close(op(*arrays), want, dtype)


@pytest.mark.parametrize(
    ("name", "schedule"), [(name, s) for name, case in NAMED.items() for s in case.schedules]
)
def test_schedules_by_hand(name: str, schedule: str) -> None:
    case = NAMED[name]
    op = dt.op(case.text)
    arrays = inputs(case, "float32")
    made = eval(f"op.schedule().{schedule}", {"op": op})
    assert Schedule.parse(op, made.text).text == made.text
    made.validate()
    want = case.plain(*(a.astype(float) for a in arrays))
    close(op.with_schedule(made, strict=True)(*arrays), want, "float32")


@pytest.mark.parametrize("name", ["cumsum", "edit distance", "Floyd-Warshall", "Viterbi"])
def test_integers(name: str) -> None:
    case = NAMED[name]
    op = dt.op(case.text)
    for dtype in ("int32", "int64", "int16"):
        arrays = inputs(case, dtype)
        np.testing.assert_array_equal(op(*arrays), case.plain(*arrays))


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("cumsum", [(3, 1)]),
        ("cumsum", [(0, 4)]),
        ("IIR filter", [(1,), (3,), (2,)]),
        ("IIR filter", [(0,), (3,), (2,)]),
        ("LSTM", [(1, 5), (4, 7, 5), (4, 7, 7), (4, 7), (7,), (7,)]),
        ("LSTM", [(0, 5), (4, 7, 5), (4, 7, 7), (4, 7), (7,), (7,)]),
        ("LSTM", [(3, 0), (4, 1, 0), (4, 1, 1), (4, 1), (1,), (1,)]),
        ("stencil in time", [(1, 1)]),
        ("edit distance", [(0,), (4,)]),
        ("edit distance", [(3,), (0,)]),
        ("edit distance", [(1,), (1,)]),
        ("Floyd-Warshall", [(1, 1)]),
        ("two species", [(1,)]),
        ("Viterbi", [(1, 3), (3, 3)]),
    ],
)
def test_edges(name: str, shapes: list[tuple[int, ...]]) -> None:
    case = NAMED[name]
    op = dt.op(case.text)
    arrays = inputs(case, "float32", shapes)
    want = case.plain(*(a.astype(float) for a in arrays))
    close(dt.interpret(op, *arrays), want, "float32")
    close(op(*arrays), want, "float32")


def test_a_skewed_order_compiles() -> None:
    text = (
        "f(x: [N, M]) -> w:\n"
        " w[i,j] = where((i > 0) & (j + 2 < M) & (j > 0) & (i + 1 < N), w[i-1,j+2] + w[i+1,j-1],"
        " x[i,j]) where i in 0:N, j in 0:M"
    )
    op = dt.op(text)
    for shape in [(1, 1), (4, 9), (12, 5)]:
        x = np.random.default_rng(1).integers(-9, 9, shape)
        np.testing.assert_array_equal(op(x), dt.interpret(op, x))


def test_temporaries_of_skewed_loops_have_loops_of_their_own() -> None:
    text = (
        "f(x: [N]) -> m:\n"
        " m[j,t] = x[j] + sum(x[k], where=k <= t, over=k) + argmax(x[k] * t, where=k <= t, over=k)"
        " + m.zero[t-1,j-1] where j in 0:N, t in 0:N"
    )
    op = dt.op(text)
    for n in (1, 2, 9):
        x = np.random.default_rng(1).integers(-9, 9, n)
        np.testing.assert_array_equal(op(x), dt.interpret(op, x))


@pytest.mark.parametrize("seed", range(12))
def test_random_schedules_of_an_lstm(seed: int) -> None:
    rng = random.Random(seed)
    case = NAMED["LSTM"]
    op = dt.op(case.text)
    arrays = inputs(case, "float64")
    for _ in range(20):  # until one is not refused at these sizes
        with suppress(dt.ScheduleError):
            drawn = op.with_schedule(random_schedule(op, rng), strict=True)
            close(drawn(*arrays), case.plain(*arrays), "float64")
            return
    pytest.fail("every schedule was refused")


def random_schedule(op: dt.Op, rng: random.Random) -> Schedule:
    schedule = op.schedule()
    for _ in range(6):
        _, step = propose(View(rng, schedule.nest()))
        with suppress(dt.ScheduleError):
            schedule = added(schedule, step)
    return schedule


def test_the_example_that_tiles_time() -> None:
    path = Path(dt.__file__).parent / "examples" / "time_skewed_stencil.py"
    spec = importlib.util.spec_from_file_location("time_skewed_stencil", path)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert Schedule.load(example.heat, example.FILE).text == example.schedule.text
    plate = np.random.default_rng(0).random((41, 150), np.float32)
    tiled = example.heat.with_schedule(str(example.FILE), strict=True)
    np.testing.assert_allclose(tiled(plate), example.plain(plate), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            'parallel("x.1.t")',
            "parallel(x.1.t): x[1,0] is written by t=1 and read by t=2 (<text>:4); use parallel "
            "on i",
        ),
        (
            'reverse("x.1.t")',
            "reverse(x.1.t): x.1[2,0] reads x[1,0] before x.1[1,0] writes it (<text>:4)",
        ),
        (
            'compute_with("x.1", "y.1", "x.1.i").reorder("y.1.i", "x.1.t")',
            "reorder(y.1.i, x.1.t): x.1[2,0] reads y[1,1] before y.1[1,1] writes it (<text>:4)",
        ),
        (
            'shift("y", "x.1.t", 1)',
            "shift(y, x.1.t, 1): x.1[2,0] reads y[1,1] before y.1[1,1] writes it (<text>:4)",
        ),
    ],
)
def test_schedules_refused_with_a_witness(steps: str, message: str) -> None:
    op = parse(NAMED["two species"].text)
    with pytest.raises(dt.ScheduleError) as caught:
        eval(f"op.schedule().{steps}", {"op": op})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "wrt"),
    [
        ("LSTM", ("x", "U", "c0")),
        ("two species", ("a",)),
        ("IIR filter", ("x", "a")),
        ("Viterbi", ("e", "A")),
    ],
)
def test_gradients(name: str, wrt: tuple[str, ...]) -> None:
    case = NAMED[name]
    dt.check_grads(dt.op(case.text), inputs(case, "float64"), wrt)


def test_forward_mode_of_tensors_that_need_each_other() -> None:
    op = dt.op(NAMED["two species"].text)
    a, da = (np.random.default_rng(n).standard_normal(9) for n in (0, 1))
    _, change = dt.jvp(op, (a,), (da,))
    np.testing.assert_allclose(change, op(da), 1e-12, 1e-12)  # it is linear
