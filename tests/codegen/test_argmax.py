"""Indices of extreme values: the first of ties, NaN wins, under every schedule alike (R03)."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen.gpu import emulate_op
from diptych.codegen.host import machine as host_machine
from diptych.codegen.kernels import compile_op

Array = np.ndarray[Any, Any]


def report() -> Array:
    """The rows of report R03: all equal, two greatest, a NaN."""
    a = np.zeros((3, 40), np.float32)
    a[0] = 7
    a[1, [5, 33]] = 9
    a[2, 9] = np.nan
    return a


# E stands for the temporary of the extreme value, I_max or I_min.
SCHEDULES = [
    "",
    '.split("I.k", 8).split("E.k", 8).parallel("I.r").parallel("E.r")',
    '.vectorize("I.k", 8).vectorize("E.k", 8)',
    '.vectorize("I.r").reorder("E.k", "E.r").vectorize("E.r")',
    '.split("I.r", 2).split("I.k", 16).reorder("I.ro", "I.ko", "I.ri", "I.ki")',
    '.split("I.k", 7).unroll("I.ki").stage("I", at="I.r", scope="register")',
    '.compute_at("E", "I.r").parallel("I.r").vectorize("I.k", 4)',
]


@pytest.mark.parametrize("text", SCHEDULES)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_r03_ties_give_the_first_index_under_every_schedule(name: str, text: str) -> None:
    op = dt.op(f"I[r] = {name}(A[r,k])")
    a = report() if name == "argmax" else -report()
    schedule = dt.Schedule.parse(op, text.replace("E", f"I_{name[3:]}"))
    found = op.with_schedule(schedule, strict=True)(a)
    assert found.dtype == np.int64
    assert found.tolist() == [0, 5, 9]


def test_r03_on_a_grid_of_threads() -> None:
    op = dt.op("I[r] = argmax(A[r,k])")
    schedule = op.schedule().bind("I_max.r", "thread.x").bind("I.r", "thread.x")
    assert emulate_op(op, [report()], schedule).tolist() == [0, 5, 9]


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "i8", "u8", "i32", "i64", "u64"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_every_type_as_numpy(name: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    kind = np.dtype({"f": "float", "i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    a = rng.integers(0, 4, (9, 67)).astype(kind)  # many ties
    if kind.kind == "f":
        a[0], a[1] = np.inf, -np.inf
        a[2, 40], a[2, 50], a[3, :] = np.nan, np.nan, np.nan
        a[4], a[4, 7] = 0.0, -0.0
    else:
        a[0], a[1] = np.iinfo(kind).max, np.iinfo(kind).min
    op = dt.op(f"I[r] = {name}(A[r,k])")
    want = getattr(np, name)(a, axis=1)
    np.testing.assert_array_equal(op(a), want)
    np.testing.assert_array_equal(dt.interpret(op, a), want)


def test_a_computed_value_is_stored_once() -> None:
    """Were it computed twice, contraction could give two values that differ in the last bit."""
    op = dt.op("I[r] = argmax(A[r,k] * B[k] + C[k]) + 1")
    stages = {line.split("[")[0].strip() for line in str(op.schedule()).splitlines() if "=" in line}
    assert {"I_value", "I_max", "I.acc", "I"} <= stages
    rng = np.random.default_rng(4)
    a, b, c = (rng.random(s).astype(np.float32) for s in ((50, 333), 333, 333))
    values = a.astype(np.float64) * b + c
    found = op(a, b, c) - 1
    best = np.take_along_axis(values, found[:, None], 1)[:, 0]
    np.testing.assert_allclose(best, values.max(1), rtol=1e-6)
    assert np.isin(dt.interpret(op, a, b, c) - 1, range(333)).all()


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("I[r] = argmax(A[r,k], where=k <= r)", [(5, 7)]),
        ("I[r] = argmin(A[r,k] - 1, where=A[r,k] > 2)", [(6, 9)]),
        ("I[r] = argmax(sum(A[r,j] * B[j,k], over=j))", [(5, 4), (4, 9)]),
        ("I[r] = argmax(A[r,k], over=(k in 2:K,)) + argmin(A[r,l])", [(4, 6)]),
        ("I[] = argmax(max(A[r,k], over=k))", [(5, 6)]),
        ("W[r] = B[argmax(A[r,k])]", [(8,), (5, 8)]),
        ("I[r] = argmax(where(k > r, A[r,k], 0) - A[r,k])", [(5, 8)]),
        ("I[r] = argmax(k % 3, over=(k in 0:7,)) + 0 * A[r]", [(3,)]),
    ],
)
def test_compiled_as_interpreted(text: str, shapes: list[tuple[int, ...]]) -> None:
    op = dt.op(text)
    rng = np.random.default_rng(5)
    arrays = [rng.integers(0, 6, s).astype(np.float32) for s in shapes]
    np.testing.assert_array_equal(op(*arrays), dt.interpret(op, *arrays))
    assert dt.op(op.text) == op


def test_over_nothing() -> None:
    op = dt.op("I[r] = argmax(A[r,k], where=A[r,k] > 2)")
    nothing = np.iinfo(np.int64).max
    for a in (np.ones((2, 3), np.float32), np.zeros((2, 5), np.float32)):
        assert op(a).tolist() == dt.interpret(op, a).tolist() == [nothing, nothing]


def test_traced() -> None:
    r, k = dt.indices("r k")

    @dt.op
    def best(A):  # type: ignore[no-untyped-def]
        I = dt.tensor("I")  # noqa: E741
        I[r] = dt.argmax(A[r, k], where=k > 0) - dt.argmin(A[r, k], over=k)
        return I

    assert best == dt.op(
        "best(A) -> I:\n I[r] = argmax(A[r,k], where=k > 0) - argmin(A[r,k], over=k)"
    )
    assert best(np.array([[9, 1, 5]], np.float32)).tolist() == [1]


def test_gradients() -> None:
    with pytest.raises(dt.GradientError) as caught:
        dt.op("pick(A) -> I:\n I[r] = argmax(A[r,k])").gradient("A")
    assert str(caught.value) == (
        "gradient of pick by A: I is argmax, an index, which has no derivative; differentiate the "
        "value there, as max or min does"
    )
    # An index is constant almost everywhere, so it may stand in what is differentiated.
    op = dt.op("y[r] = W[argmax(A[r,k])] * 2")
    dw = op.gradient("W")
    a = np.array([[0, 1, 0], [3, 2, 1], [1, 9, 9]], np.float32)
    found = dw(np.zeros(4, np.float32), a, np.array([1, 10, 100], np.float32))
    assert found.tolist() == [20, 202, 0, 0]


def test_an_index_is_an_integer() -> None:
    op = dt.op("y[r] = W[max(A[r,k])]")
    with pytest.raises(dt.DTypeError) as caught:
        op(np.zeros(4, np.float32), np.zeros((2, 2), np.float32))
    assert str(caught.value).startswith(
        "max(A[r,k]) is f32, but it is used as an index; indices are integers\n"
        "    in y[r] = W[max(A[r,k])]"
    )


def test_the_default_schedule_of_a_wide_column_sum_fits_the_registers() -> None:
    op = dt.op("y[i] = sum(A[j,i])")
    a = np.ones((3, 100_000), np.float32)
    assert (op(a) == 3).all()


@pytest.mark.parametrize(
    "value",
    ["argmax(s[t-1,k] * x[t,r], over=(k in 0:S,))", "sum(x[t,k] * max(s[t-1,l] * x[t,l], over=l))"],
)
def test_a_recurrence_computes_temporaries_in_its_loops(value: str) -> None:
    text = f"s[0,r] = 0 * x[0,r]\n s[t,r] = {value} where t in 1:T, r in 0:S"
    op = dt.op(f"f(x: [T, S]) -> s:\n {text}")
    x = np.random.default_rng(0).integers(-4, 5, (5, 3)).astype(np.float32)
    np.testing.assert_array_equal(op(x), dt.interpret(op, x))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("n", [1, 15, 64, 65, 130, 1000])
def test_lanes_of_indices_are_as_many_as_of_data(name: str, n: int) -> None:
    """Rows with ties, NaN and infinities, as the interpreter; a condition may leave nothing."""
    rng = np.random.default_rng(n)
    a = rng.integers(-3, 3, (40, n)).astype(np.float32)
    a[1, n // 2], a[2] = np.nan, -np.inf if name == "argmax" else np.inf
    keep = rng.random((40, n)) < 0.5
    keep[3] = False
    op = dt.op(f"I[r] = {name}(A[r,k], where=B[r,k])")
    np.testing.assert_array_equal(op(a, keep), dt.interpret(op, a, keep))
    plain = dt.op(f"I[r] = {name}(A[r,k])")
    np.testing.assert_array_equal(plain(a), getattr(np, name)(a, 1))
    if n == 1000:
        compiled = compile_op(plain, [(dt.f32, a.shape)])
        assert "short.lanes" in compiled.loop_ir
        assert "vector(16)" in compiled.loop_ir or host_machine().vector_bytes < 64


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_the_search_ends_where_it_finds(dtype: Any) -> None:
    """The greatest in each place of a long row, alone and with one more behind it."""
    n = 650
    once = np.eye(n, dtype=dtype)
    twice = np.maximum(once, np.roll(once, 130, 1))
    op = dt.op("I[r] = argmax(A[r,k])")
    for a in (once, twice):
        np.testing.assert_array_equal(op(a), a.argmax(1))
    nan = once.astype(np.float64) if dtype is np.int32 else once.copy()
    nan[nan == 1] = np.nan
    np.testing.assert_array_equal(op(nan), range(n))
    compiled = compile_op(op, [(dt.f32, (n, n))])
    assert " until " in compiled.loop_ir


def test_a_search_by_hand() -> None:
    """The first place of a value, a number of the program's where it is not there."""
    none = 2**31 - 1
    op = dt.op(f"at[r] = min(where(A[r,k] == v[r], i32(k), i32({none})))")
    a = np.random.default_rng(0).integers(0, 900, (50, 900)).astype(np.float32)
    v = np.arange(50, dtype=np.float32)
    want = [next(iter(np.flatnonzero(row == x)), none) for row, x in zip(a, v, strict=True)]
    assert none in want and min(want) < 300 < sorted(want)[25]
    np.testing.assert_array_equal(op(a, v), want)
    assert " until " in compile_op(op, [(dt.f32, a.shape), (dt.f32, v.shape)]).loop_ir


@pytest.mark.parametrize("n", [1, 7, 16, 31, 64, 127, 256, 300])
@pytest.mark.parametrize("search", ["argmax({})", "argmin({})", "min({k}, where={} > 5)"])
def test_a_search_along_any_index_by_default(search: str, n: int) -> None:
    x = (np.arange(40 * n) * 5 % 7).astype(np.float32)
    for shape, cell, k in (((40, n), "y[j]", "i"), ((n, 40), "y[i]", "j")):
        found = search.format("x[i,j]", k=k)
        op = dt.op(f"{cell} = {found}")
        np.testing.assert_array_equal(op(x.reshape(shape)), dt.interpret(op, x.reshape(shape)))
    cube = x.reshape(5, 8, n)
    for cell, k in (("y[i,j]", "k"), ("y[i,k]", "j"), ("y[j,k]", "i")):
        op = dt.op(f"{cell} = {search.format('x[i,j,k]', k=k)}")
        np.testing.assert_array_equal(op(cube), dt.interpret(op, cube))
