"""Users' reducers compiled: default and hand-written schedules against the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import diptych as dt
import numpy as np
import pytest

rng = np.random.default_rng(5)


def softmax_of(a: Any, b: Any) -> Any:
    m = dt.max(a[0], b[0])
    x, y = dt.exp(a[0] - m), dt.exp(b[0] - m)
    return m, a[1] * x + b[1] * y, a[2] * x + b[2] * y


def welford(a: Any, b: Any) -> Any:
    n = a[0] + b[0]
    step = b[1] - a[1]
    part = dt.where(n > 0, b[0] / dt.where(n > 0, n, 1), 0.0)
    return n, a[1] + step * part, a[2] + b[2] + step * step * a[0] * part


def first_of_ties(a: Any, b: Any) -> Any:
    """The greatest value and the first index where it stands; NaN wins."""
    nan_a, nan_b = a[0] != a[0], b[0] != b[0]
    better = (b[0] > a[0]) | (nan_b & ~nan_a)
    tie = (b[0] == a[0]) | (nan_a & nan_b)
    left = dt.where(tie, dt.min(a[1], b[1]), a[1])
    return dt.where(better, b[0], a[0]), dt.where(better, b[1], left)


REDUCERS = {
    "online": dt.reducer(softmax_of, (-inf, 0.0, 0.0)),
    "moments": dt.reducer(welford, (0.0, 0.0, 0.0)),
    "best": dt.reducer(first_of_ties, (-inf, 2**62)),
    "lse": dt.reducer(
        lambda a, b: (
            dt.max(a, b)
            + dt.log(
                dt.exp(dt.max(a, -1e30) - dt.max(dt.max(a, b), -1e30))
                + dt.exp(dt.max(b, -1e30) - dt.max(dt.max(a, b), -1e30))
            )
        ),
        -1e30,
    ),
    "absmax": dt.reducer(lambda a, b: dt.max(dt.abs(a), dt.abs(b)), 0.0),
    "times": dt.reducer(
        lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]), (1.0, 0.0)
    ),
    "chain": dt.reducer(
        lambda a, b: tuple(
            a[2 * (n // 2)] * b[n % 2] + a[2 * (n // 2) + 1] * b[2 + n % 2] for n in range(4)
        ),
        (1.0, 0.0, 0.0, 1.0),
        commutative=False,
    ),
    "lifted": dt.reducer(
        softmax_of,
        (-inf, 0.0, 0.0),
        dt.op("""block(x, w, v) -> m, s, o:
            m = max(x[k])
            p[k] = exp(x[k] - m)
            s = sum(p[k] * w[k])
            o[d] = sum(p[k] * v[k,d])"""),
    ),
    "digits": dt.reducer(
        lambda a, b: ((a[0] * b[1] + b[0]) % 9973, a[1] * b[1] % 9973), (0, 1), commutative=False
    ),
}


def normal(*shape: int, dtype: str = "f8") -> Any:
    return rng.normal(size=shape).astype(dtype)


CASES: dict[str, tuple[str, list[Any], str | None]] = {
    "attention": (
        "m[i], s[i], o[i,d] = online(S[i,j], 1.0, V[j,d])\ny[i,d] = o[i,d] / s[i]",
        [normal(5, 7, dtype="f4"), normal(7, 9, dtype="f4")],
        "y",
    ),
    "causal": (
        "m[i], s[i], o[i,d] = online(S[i,j], 1.0, V[j,d], where=j <= i)",
        [normal(6, 7, dtype="f4"), normal(7, 3, dtype="f4")],
        None,
    ),
    "computed": (
        "m[b,i], s[b,i], o[b,i,d] = online(sum(Q[b,i,c] * K[b,j,c]) / 2, 1.0, V[b,j,d])",
        [normal(2, 5, 3), normal(2, 6, 3), normal(2, 6, 4)],
        None,
    ),
    "lifted": (
        "m[i], s[i], o[i,d] = lifted(S[i,j], 1.0, V[j,d], where=j <= i + 4)",
        [normal(6, 10, dtype="f4"), normal(10, 5, dtype="f4")],
        None,
    ),
    "flat": (
        "m[i], s[i], o[i] = lifted(S[i,j], 1.0, V[j])",
        [normal(6, 10, dtype="f4"), normal(10, dtype="f4")],
        None,
    ),
    "half": (
        "m[i], s[i], o[i,d] = online(S[i,j], 1.0, V[j,d])",
        [normal(3, 40, dtype="f2"), normal(40, 5, dtype="f2")],
        None,
    ),
    "moments": ("n[i], m[i], q[i] = moments(1.0, x[i,j], 0.0)", [normal(5, 11)], None),
    "whole": ("n[], m[], q[] = moments(1.0, x[i,j], 0.0)", [normal(5, 11)], None),
    "chosen": (
        "n[i], m[i], q[i] = moments(1.0, x[i,j], 0.0, where=(x[i,j] > 0) & (j != i))",
        [normal(4, 6)],
        None,
    ),
    "best": ("v[i], at[i] = best(x[i,j], j)", [rng.integers(0, 4, (6, 9)).astype("f4")], None),
    "ints": ("v[i], at[i] = best(x[i,j], j)", [rng.integers(0, 4, (6, 9)).astype("i4")], None),
    "inside": ("y[i] = lse(x[i,j]) - absmax(x[k,i]) * 2", [normal(5, 5)], None),
    "absmax": ("y[i] = absmax(x[i,j])", [normal(4, 9, dtype="f4")], None),
    "times": ("re[i], im[i] = times(x[i,k], y[i,k])", [normal(4, 7), normal(4, 7)], None),
    "chain": (
        "a[i], b[i], c[i], d[i] = chain(p[i,k], q[i,k], r[i,k], s[i,k])",
        [normal(3, 6) for _ in range(4)],
        None,
    ),
    "digits": ("v[], p[] = digits(x[i,j], 10)", [rng.integers(0, 10, (5, 7))], None),
    "two": ("v[i], p[i] = digits(x[i,j,k], 10)", [rng.integers(0, 10, (3, 4, 5))], None),
    "transposed": (
        "m[i], s[i], o[d,i] = online(S[j,i], 1.0, V[j,d])", [normal(7, 5), normal(7, 4)], None
    ),
    "narrow": (
        "m[i], s[i,h], o[i,h,d] = online(S[i,j], W[i,j,h], V[j,d] + W[i,j,h])",
        [normal(3, 4), normal(3, 4, 2), normal(4, 5)],
        None,
    ),
}  # fmt: skip


def operator(name: str) -> Any:
    text, _, returns = CASES[name]
    return dt.op(text, reducers=REDUCERS, returns=returns)


def close(got: Any, want: Any) -> None:
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
    for one, other in pairs:
        assert one.dtype == other.dtype
        exact = other.dtype.kind not in "f"
        rtol = 0 if exact else {2: 2e-3, 4: 1e-5, 8: 1e-12}[other.dtype.itemsize]
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


def run(name: str, *calls: tuple[Any, ...]) -> Any:
    """The operator under a schedule, checked as a whole and compared with the interpreter."""
    op, arrays = operator(name), CASES[name][1]
    schedule = op.schedule()
    for primitive, *args in calls:
        schedule = schedule.call(primitive, *args)
    again = type(schedule).parse(op, schedule.text)
    assert again == schedule
    close(op.with_schedule(again, strict=True)(*arrays), dt.interpret(op, *arrays))
    return schedule


@pytest.mark.parametrize("name", CASES)
def test_compiled_agrees_with_the_interpreter(name: str) -> None:
    op, arrays = operator(name), CASES[name][1]
    want = dt.interpret(op, *arrays)
    close(op(*arrays), want)  # the default schedule
    run(name)  # the loops as written


def test_mean_variance_argmax_and_products_are_what_numpy_gives() -> None:
    x = CASES["moments"][1][0]
    n, m, q = operator("moments")(x)
    np.testing.assert_allclose([n, m, q / n], [[11] * 5, x.mean(1), x.var(1)])
    x = CASES["best"][1][0].copy()
    x[2, 3] = x[2, 5] = np.nan
    assert list(operator("best")(x)[1]) == list(np.argmax(x, 1))
    x, y = CASES["times"][1]
    re, im = operator("times")(x, y)
    np.testing.assert_allclose(re + 1j * im, np.prod(x + 1j * y, 1))
    found = np.stack(operator("chain")(*CASES["chain"][1]), 1)
    factors = np.stack(CASES["chain"][1], 2).reshape(3, 6, 2, 2)
    want = [np.linalg.multi_dot(list(row)).ravel() for row in factors]
    np.testing.assert_allclose(found, want)


def test_nothing_gives_the_identity() -> None:
    m, s, o = operator("causal")(np.zeros((2, 0), "f"), np.zeros((0, 3), "f"))
    assert (m == -inf).all() and (s == 0).all() and (o == 0).all() and o.shape == (2, 3)


SCHEDULES: list[tuple[str, Sequence[tuple[Any, ...]]]] = [
    ("attention", [("split", "j", 3), ("vectorize", "o.d", 4)]),
    ("attention", [("tile", {"o.i": 2, "j": 3}), ("reorder", "io", "jo", "ii", "ji")]),
    ("attention", [("reorder", "j", "o.i"), ("parallel", "m.init.i")]),
    ("attention", [("parallel", "o.i"), ("stage", "o", "o.i", "register"), ("vectorize", "o.d")]),
    ("attention", [("split", "j", 3), ("stage", "o", "jo"), ("vectorize", "o.d", 8)]),
    ("attention", [("stage", "V", "o.i"), ("unroll", "o.d")]),
    ("causal", [("tile", {"i": 4, "j": 4}), ("reorder", "io", "jo", "ii", "ji")]),
    ("causal", [("reorder", "j", "i"), ("vectorize", "o.i")]),
    ("computed", [("compute_at", "m_sum", "o.j"), ("parallel", "o.b")]),
    ("half", [("split", "j", 7), ("vectorize", "d")]),
    ("moments", [("reorder", "j", "i"), ("vectorize", "n.i")]),
    ("moments", [("split", "i", 3, ("io", "ii"), "separate"), ("parallel", "io")]),
    ("times", [("split", "k", 3), ("reorder", "ko", "i", "ki")]),
    ("chain", [("split", "k", 4), ("unroll", "ki"), ("parallel", "i")]),
    ("digits", [("fuse", "i", "j")]),
    ("two", [("tile", {"j": 3, "i": 2}), ("reorder", "io", "jo", "ii", "ji")]),
    ("inside", [("split", "y_lse.j", 2)]),
    ("narrow", [("split", "j", 3), ("vectorize", "d")]),
]


@pytest.mark.parametrize("name, calls", SCHEDULES)
def test_schedules(name: str, calls: Sequence[tuple[Any, ...]]) -> None:
    run(name, *calls)


FACTORED: list[tuple[str, Sequence[tuple[Any, ...]]]] = [
    ("attention", [("rfactor", "j"), ("parallel", "o.j")]),
    ("attention", [("split", "j", 3), ("rfactor", "jo"), ("vectorize", "o.d")]),
    ("attention", [("tile", {"o.i": 2, "j": 3}), ("rfactor", "jo"), ("parallel", "o.jo")]),
    ("attention", [("split", "j", 3), ("rfactor", "jo"), ("rfactor", "o.ji")]),
    ("attention", [("split", "j", 3), ("rfactor", "jo"), ("rfactor", "o.jo_rf")]),
    ("times", [("split", "k", 3), ("rfactor", "ko"), ("parallel", "ko")]),
    ("times", [("split", "k", 3), ("rfactor", "ki")]),
    ("chain", [("split", "k", 4), ("rfactor", "ko"), ("parallel", "ko")]),
    ("chain", [("split", "k", 4), ("rfactor", "ko"), ("rfactor", "ki")]),
    ("digits", [("rfactor", "i"), ("parallel", "v.i")]),
    ("two", [("split", "k", 2), ("rfactor", "j"), ("reorder", "v.j", "v.i"), ("parallel", "v.j")]),
    ("best", [("split", "j", 4), ("reorder", "jo", "i", "ji"), ("rfactor", "jo")]),
    ("best", [("split", "j", 4), ("rfactor", "ji"), ("reorder", "ji", "jo")]),
    ("causal", [("split", "j", 2), ("rfactor", "jo"), ("parallel", "jo")]),
    ("half", [("split", "j", 7), ("rfactor", "jo"), ("parallel", "jo")]),
    (
        "absmax",
        [("split", "j", 4), ("rfactor", "ji"), ("reorder", "jo", "ji"), ("vectorize", "y.ji")],
    ),
    ("inside", [("rfactor", "y_lse.j")]),
    ("chosen", [("split", "j", 4), ("rfactor", "jo")]),
    ("narrow", [("split", "j", 3), ("rfactor", "jo")]),
    ("moments", [("reorder", "j", "i"), ("split", "j", 4), ("rfactor", "jo"), ("parallel", "jo")]),
    ("whole", [("split", "i", 2), ("rfactor", "io"), ("parallel", "io")]),
    ("computed", [("split", "o.j", 4), ("rfactor", "o.jo"), ("compute_at", "m_sum", "o.jo")]),
    ("lifted", [("split", "j", 3), ("rfactor", "jo")]),
    ("lifted", [("tile", {"o.i": 4, "j": 4}), ("rfactor", "jo"), ("parallel", "o.io")]),
    ("lifted", [("split", "j", 3), ("rfactor", "jo", "jb"), ("parallel", "o.jo")]),
    ("lifted", [("split", "j", 3), ("rfactor", "ji")]),
    ("lifted", [("split", "j", 3), ("rfactor", "jo"), ("vectorize", "o.rf.d")]),
]


@pytest.mark.parametrize("name, calls", FACTORED)
def test_rfactor(name: str, calls: Sequence[tuple[Any, ...]]) -> None:
    run(name, *calls).validate()


REFUSALS: list[tuple[str, Sequence[tuple[Any, ...]], str]] = [
    (
        "attention",
        [("parallel", "j")],
        "parallel(j): m[0] is read by j=0 and updated by j=1; use rfactor(j), or parallel on i or "
        "d",
    ),
    (
        "absmax",
        [("vectorize", "j")],
        "vectorize(j): y[0] is updated by j=0 and by j=1; use rfactor(j), or vectorize on i",
    ),
    (
        "attention",
        [("reverse", "j")],
        "reverse(j): o.update[0,1,0] reads o[0,0] before o.update[0,0,0] updates it",
    ),
    (
        "two",
        [("reorder", "k", "j")],
        "reorder(k, j): v.update[0,1,0] reads v[0] before v.update[0,0,1] updates it",
    ),
    (
        "attention",
        [("reorder", "o.d", "j")],
        "reorder(o.d, j): o.update[0,1,0] reads m[0] before m.update[0,0] updates it",
    ),
    (
        "chain",
        [("split", "k", 4), ("rfactor", "ki")],
        "rfactor(ki): chain is not commutative, and d.update[0,1] comes before d.update[0,4], but "
        "its group would be combined after it; rfactor an outer loop of the reduction",
    ),
    (
        "attention",
        [("stage", "o", "j", "register"), ("rfactor", "j")],
        "rfactor(j): o is held by o.register; rfactor before staging it and before compute_at",
    ),
    (
        "attention",
        [("stage", "m", "o.d", "register"), ("rfactor", "j")],
        "rfactor(j): m is held by m.register; rfactor before staging it and before compute_at",
    ),
    (
        "flat",
        [("split", "j", 4), ("rfactor", "jo")],
        "rfactor(jo): the lift of lifted has v of 2 dimensions, and o needs 1",
    ),
    (
        "attention",
        [("inline", "o")],
        "inline(o): o is a reduction, which has no one expression; use compute_at instead",
    ),
]


@pytest.mark.parametrize("name, calls, wanted", REFUSALS)
def test_refusals(name: str, calls: Sequence[tuple[Any, ...]], wanted: str) -> None:
    schedule = operator(name).schedule()
    with pytest.raises(dt.ScheduleError) as caught:
        for primitive, *args in calls:
            schedule = schedule.call(primitive, *args)
    import re

    assert re.sub(r" \([\w.]+:\d+\)", "", str(caught.value)) == wanted


def test_programs_keep_joint_reductions_together() -> None:
    op = operator("attention")

    @dt.program
    def twice(s: Any, v: Any) -> Any:
        return op(s, op(s, v))

    s, v = normal(7, 7, dtype="f4"), normal(7, 9, dtype="f4")
    want = dt.interpret(op, s, dt.interpret(op, s, v))
    np.testing.assert_allclose(twice(s, v), want, rtol=1e-4, atol=1e-5)


def test_the_flash_attention_example() -> None:
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    path = Path(__file__).parents[2] / "examples" / "flash_attention.py"
    spec = spec_from_file_location("flash_attention", path)
    assert spec is not None and spec.loader is not None
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    saved = type(example.schedule()).load(example.attention, path.with_suffix(".sched"))
    assert saved == example.schedule()
    fast = example.attention.with_schedule(saved, strict=True)
    for queries, keys in ((64, 128), (50, 70), (1, 1)):
        q, k, v = (normal(n, 64, dtype="f4") for n in (queries, keys, keys))
        np.testing.assert_allclose(fast(q, k, v), example.plain(q, k, v), atol=2e-6)
        np.testing.assert_allclose(example.attention(q, k, v), example.plain(q, k, v), atol=2e-6)


def test_a_buffer_in_a_loop_that_isl_cuts_in_pieces_is_held_together() -> None:
    op = dt.op(
        "reducer map(a, c; b, e) = max(a + e, b), c + e from -inf, 0 ordered\n"
        "u[i], v[i] = map(x[i,j,k], x[i,k,j])"
    )
    schedule = (
        op.schedule()
        .split("j", 7)
        .tile({"u.jo": 3, "u.ji": 7})
        .shift("v", "u.joo", -1)
        .stage("x", at="u.joi", scope="heap")
    )
    x = normal(8, 5, 5)
    for got, want in zip(
        op.with_schedule(schedule, strict=True)(x), dt.interpret(op, x), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
