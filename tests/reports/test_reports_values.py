"""Rows on wrong results and on element types, each under its number in the list of reports."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.autodiff.reverse import adjoint
from diptych.lower import passes
from diptych.lower.kernel import translate
from diptych.lower.passes.simplify import simplify
from diptych.lower.run import run as run_ir
from diptych.sched.loop.machine import Machine
from exact import run
from reports.runs import agree, refusal

Array = np.ndarray[Any, Any]


# R01: floor division keeps its rounding


def test_r01_a_negative_factor_stays_inside_a_floor_division() -> None:
    want = np.array([(-8040 * (i - 158)) // 69 for i in range(400)], np.int32)
    assert want[[0, 157, 158, 159, 399]].tolist() == [18410, 116, 0, -117, -28082]
    schedules = [".split('i', 7)", ".split('i', 8)", ".split('i', 7, tail='separate').unroll('ii')",
                 ".vectorize('i', 8)", ".split('i', 8).parallel('io').vectorize('ii')",
                 ".reverse('i')"]  # fmt: skip
    index = dt.op("f() -> Z:\n Z[i] = i32((-8040*(i-158)) // 69) where i in 0:400")
    agree(index, [], want, schedules, gpu=[".split('i', 7).bind('io', 'block.x')"])
    data = dt.op("Z[i] = (-8040*(x[i]-158)) // 69")
    agree(data, [np.arange(400, dtype=np.int32)], want, schedules)


@pytest.mark.parametrize("text", ["", ".split('i', 7)", ".split('i', 8)"])
def test_r01_simplified_or_not(text: str) -> None:
    """The loop IR before any pass, after the simplifier alone, and after all of them."""
    op = dt.op("f() -> Z:\n Z[i] = i32((-8040*(i-158)) // 69) where i in 0:400")
    plain = translate(dt.Schedule.parse(op, text).nest({}, {}), "f")
    want = [(-8040 * (i - 158)) // 69 for i in range(400)]
    for function in (plain, simplify(plain), passes.run(plain, Machine())):
        z = np.zeros(400, np.int32)
        run_ir(function, z)
        assert z.tolist() == want


# R03: the first of ties, whatever the schedule


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_r03_the_first_of_ties(name: str) -> None:
    a = np.zeros((3, 40), np.float32)
    a[0], a[1, [5, 33]], a[2, 9] = 7, 9, np.nan
    a = a if name == "argmax" else -a
    extreme = f"I_{name[3:]}"
    agree(
        dt.op(f"I[r] = {name}(A[r,k])"), [a], np.array([0, 5, 9]),
        [
            f".split('I.k', 8).rfactor('I.ko').parallel('I.ko')"
            f".split('{extreme}.k', 8).rfactor('{extreme}.ko').parallel('{extreme}.ko')",
            f".vectorize('I.k', 8).vectorize('{extreme}.k', 8)",
            ".split('I.k', 7).parallel('I.r')",
            f".compute_at('{extreme}', 'I.r')",
        ],
        gpu=[f".bind('{extreme}.r', 'block.x').bind('I.r', 'block.x')"],
    )  # fmt: skip


# R04: accumulation starts from the identity


@pytest.mark.parametrize("shape", [(10, 70, 90), (10, 20, 20)])
def test_r04_an_average_pool_by_accumulation(shape: tuple[int, int, int]) -> None:
    b, h, w = shape
    image, want = np.ones(shape, np.float32), np.ones((b, h // 2, w // 2), np.float32)
    total = dt.op("O[b,y,x] = sum(I[b,2*y+p,2*x+q], over=(p in 0:2, q in 0:2)) / 4")
    written = dt.op("O[b,y,x] += I[b,2*y+p,2*x+q] / 4 where p in 0:2, q in 0:2")
    for op in (total, written):
        agree(op, [image], want, [
            ".vectorize('x', 8)", ".parallel('b')", ".tile(y=3, x=7)",
            ".stage('I', at='O.y')", ".stage('O', at='O.y')",
        ])  # fmt: skip


# R06: no float is folded away


def same_bits(got: Array, want: Array) -> None:
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


SPECIAL = np.array([np.inf, -np.inf, np.nan, -0.0, 5], np.float32)
NAN = np.nan


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("A[i] * 0.0", [NAN, NAN, NAN, -0.0, 0.0]),
        ("A[i] - A[i]", [NAN, NAN, NAN, 0.0, 0.0]),
        ("A[i] + 0.0", [np.inf, -np.inf, NAN, 0.0, 5]),
        ("A[i] - 0.0", [np.inf, -np.inf, NAN, -0.0, 5]),
        ("0.0 - A[i]", [-np.inf, np.inf, NAN, 0.0, -5]),
        ("A[i] * 1", [np.inf, -np.inf, NAN, -0.0, 5]),
        ("A[i] / A[i]", [NAN, NAN, NAN, NAN, 1]),
        ("0 * A[i] + A[i]", [NAN, NAN, NAN, -0.0, 5]),
    ],
)
def test_r06_inf_nan_and_negative_zero_survive(body: str, want: list[float]) -> None:
    agree(
        dt.op(f"Y[i] = {body}"), [SPECIAL], np.array(want, np.float32),
        [".vectorize('i', 4)", ".parallel('i')", ".split('i', 2).unroll('ii')",
         ".stage('A', at='Y.i')"],
        gpu=[".bind('i', 'thread.x')"], same=same_bits,
    )  # fmt: skip


def test_r06_integers_may_fold_and_gradients_may_not() -> None:
    whole = np.array([7, -3, 0, 2**31 - 1], np.int32)
    agree(dt.op("Y[i] = A[i] * 0 + (A[i] - A[i])"), [whole], np.zeros(4, np.int32))
    back = adjoint(dt.op("f(A: f32[N]) -> Y:\n Y[i] = A[i] * 0.0"), "A")
    found = run(back, {"A": SPECIAL, "dY": SPECIAL})["dA"]
    with np.errstate(invalid="ignore"):
        want = SPECIAL * np.float32(0)
    same_bits(found, want)


# R52: floor division and remainder of integers


def test_r52_every_pair_of_bytes() -> None:
    a, b = (x.astype(np.int8) for x in np.meshgrid(range(-128, 128), range(-128, 128)))
    with np.errstate(all="ignore"):
        q = np.where(b == 0, 0, a // np.where(b == 0, 1, b)).astype(np.int8)
        r = np.where(b == 0, 0, a % np.where(b == 0, 1, b)).astype(np.int8)
    assert q[b == 127][1] == -1 and q[(a == -128) & (b == -1)] == -128  # it wraps
    op = dt.op("Q[i,j] = A[i,j] // B[i,j]\nR[i,j] = A[i,j] % B[i,j]")
    wide = ".vectorize('Q.j', 16).parallel('Q.i').vectorize('R.j', 8).tile(**{'R.i': 7})"
    agree(op, [a, b], (q, r), [wide.replace(".tile(**{'R.i': 7})", ".split('R.i', 7)")])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_r52_wide_integers_and_their_extremes(dtype: Any) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    some = [low, low + 1, -7, -2, -1, 0, 1, 2, 7, high - 1, high]
    a, b = (np.array(x, dtype) for x in zip(*[(p, q) for p in some for q in some], strict=True))

    def wrapped(n: int) -> int:
        return (n - low) % (high - low + 1) + low

    q = [wrapped(int(x) // int(y)) if y else 0 for x, y in zip(a, b, strict=True)]
    r = [int(x) % int(y) if y else 0 for x, y in zip(a, b, strict=True)]
    agree(
        dt.op("Q[i] = A[i] // B[i]\nR[i] = A[i] % B[i]"), [a, b],
        (np.array(q, dtype), np.array(r, dtype)),
        [".vectorize('Q.i', 8).vectorize('R.i', 4)", ".parallel('Q.i').split('R.i', 7)"],
        gpu=[".bind('Q.i', 'thread.x').bind('R.i', 'thread.x')"],
    )  # fmt: skip


def test_r52_constants_and_indices_floor_too() -> None:
    pairs = [(7, -2, -4, -1), (-7, 2, -4, 1), (7, 2, 3, 1), (-7, -2, 3, -1), (5, 0, 0, 0)]
    for a, b, q, r in pairs:
        op = dt.op(
            f"f() -> y:\n y[i] = where(i == 0, ({a}) // ({b}), ({a}) % ({b})) where i in 0:2"
        )
        assert op().tolist() == dt.interpret(op).tolist() == [q, r]
    index = dt.op("f(x: f32[9]) -> y:\n y[i] = x[(i-8)//3 + 3] + x[(i-8)%3] where i in 0:9")
    x = np.arange(9, dtype=np.float32)
    want = np.array([x[(i - 8) // 3 + 3] + x[(i - 8) % 3] for i in range(9)])
    agree(index, [x], want, [".vectorize('i', 4)", ".split('i', 2).unroll('ii')"])


# R54: bools are whole bytes


def test_r54_comparisons_are_stored_as_bytes_0_and_1() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 7, 8, 13, 300):
        a, b = rng.integers(0, 3, (2, n)).astype(np.float32)
        agree(
            dt.op("G[i] = A[i] > B[i]"), [a, b], a > b,
            [".vectorize('i', 8)", ".parallel('i')", ".split('i', 5)"],
            gpu=[".bind('i', 'thread.x')"],
            same=lambda got, want: np.testing.assert_array_equal(got.view("u1"), want.view("u1")),
        )  # fmt: skip
        count = dt.op("G[i] = A[i] > B[i]\nN[] = sum(G[i])", returns="N")
        agree(count, [a, b], np.int64((a > b).sum()),
              [".vectorize('N.i', 8)", ".compute_at('G', 'N.i')", ".inline('G')"])  # fmt: skip


def test_r54_any_nonzero_is_true() -> None:
    x = np.array([-1, 0, 256, 2**40, 1], np.int64)
    agree(dt.op("Y[i] = i32(bool(x[i]))"), [x], np.array([1, 0, 1, 1, 1], np.int32),
          [".vectorize('i', 4)"])  # fmt: skip
    odd = np.frombuffer(bytes([0xFF, 0, 1, 0x80, 2]), bool)
    for text, want in (
        ("Y[i] = x[i]", np.array([1, 0, 1, 1, 1], bool)),
        ("Y[i] = i32(x[i])", np.array([1, 0, 1, 1, 1], np.int32)),
        ("Y[] = sum(x[i])", np.int64(4)),
        ("Y[i] = where(x[i], 3, 5)", np.array([3, 5, 3, 3, 3], np.int64)),
        ("Y[i] = ~x[i]", np.array([0, 1, 0, 0, 0], bool)),
    ):
        assert np.array_equal(dt.op(text)(odd), want)
        assert dt.op(text)(odd).dtype == want.dtype
        assert np.array_equal(dt.op(text).schedule().vectorize("i", 4)(odd), want)


# R56: half precision accumulates in single


def test_r56_sums_of_half_precision() -> None:
    total = dt.op("S[] = sum(x[i])")
    schedules = [".vectorize('i', 8)", ".split('i', 7)", ".split('i', 3).rfactor('io')"
                 ".parallel('io')"]  # fmt: skip
    half = np.float16
    for x, want in (([32000] * 4 + [-32000] * 4, 0.0), ([1] * 4096, 4096.0)):
        agree(total, [np.array(x, half)], np.array(want, half), schedules)
    a, b = np.ones((4, 4096), half), np.ones((4096, 4), half)
    agree(dt.op("C[i,j] = sum(A[i,k] * B[k,j])"), [a, b], np.full((4, 4), 4096, half),
          [".vectorize('k', 16)", ".tile(i=3, j=3)", ".stage('B', at='C.i')"])  # fmt: skip
    mean = dt.op("f(x: [N]) -> S:\n S[] = sum(f32(x[i])) / N")
    agree(mean, [np.ones(70000, half)], np.float32(1), [".vectorize('i', 16)"])


def test_r56_a_mean_divides_before_it_is_rounded() -> None:
    """The sum itself is beyond f16, and the accumulator is wider than what a cell holds."""
    op = dt.op("f(x: f16[N]) -> S:\n S[] = sum(x[i], dtype=f32) / N")
    assert op(np.ones(70000, np.float16)) == 1


def test_r56_gradients_and_scatters_accumulate_in_single() -> None:
    op = dt.op("f(x: f16[N], s: f16[]) -> y:\n y[i] = x[i] * s")
    x = np.ones(4096, np.float16)
    assert dt.vjp(op, x, np.float16(1))[1](x)[1] == 4096
    scatter = dt.op("H: [2]\nH[b[n]] += x[n]")
    agree(scatter, [np.zeros(4096, np.int64), x], np.array([4096, 0], np.float16))


def test_r56_bf16_too() -> None:
    op = dt.op("f(x: bf16[N]) -> S:\n S[] = sum(x[i])")
    ones = np.full(4096, 0x3F80, np.uint16)
    agree(op, [ones], np.uint16(0x4580), [".vectorize('i', 8)"])


def test_accumulators_by_type() -> None:
    """`+=` and `sum` agree: f16 and bf16 in f32, small integers in i32, bool counts in i64."""
    for name, result in {
        "bool": "i64", "i8": "i32", "i16": "i32", "u8": "i32", "u16": "i32", "i32": "i32",
        "u32": "u32", "i64": "i64", "u64": "u64", "f16": "f16", "bf16": "bf16", "f32": "f32",
    }.items():  # fmt: skip
        for body in ("S[] = sum(x[i])", "S[] += x[i] where i in 0:N"):
            op = dt.op(f"f(x: {name}[N]) -> S:\n {body}")
            nest = op.schedule().nest()
            assert nest.kernel.tensors["S"].dtype.name == result
            wide = {"f16": "f32", "bf16": "f32"}.get(result, result)
            stored = {b.dtype.name for n, b in nest.buffers.items() if n.startswith("S")}
            assert stored <= {result, wide} and wide in stored
    assert refusal(lambda: dt.op("S[] = sum(x[i] + y[i])")(
        np.ones(2, np.uint64), np.ones(2, np.int64)), dt.DTypeError
    ).startswith("+: u64 with i64 has no exact common type; cast one of them")  # fmt: skip
