"""The emitter: machine code agrees with the executor of loop IR, statement by statement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from diptych.algo.dtypes import BY_NAME
from diptych.algo.errors import InternalError
from diptych.algo.tensor_expr.operations import ERASED, OPERATIONS
from diptych.codegen import host_code, jit
from diptych.codegen.emit import emit
from diptych.codegen.emit_operations import TABLE
from diptych.codegen.target import Target
from diptych.lower import run
from diptych.lower.ir_parse import parse_function
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def arrays(function: Any, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Inputs of small integers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    made = []
    for p in function.params:
        low = 0 if p.dtype.kind in "ub" else -9
        high = 2 if p.dtype.kind == "b" else 10
        made.append(rng.integers(low, high, p.shape).astype(p.dtype.numpy))
    return made


def agree(kernel: Any, seed: int = 0) -> None:
    """Both executors write the same, also where nothing is to be written."""
    ours = arrays(kernel.function, seed)
    theirs = [a.copy() for a in ours]
    assert kernel(*ours) == 0
    run.run(kernel.function, *theirs)
    for mine, want in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, want)


def test_every_operation_is_emitted() -> None:
    assert set(TABLE) == set(OPERATIONS) - ERASED.keys()


def test_tail_lanes_write_nothing(native: Any) -> None:
    agree(native("""
function scale(x: param f32[100] align 4, y: param f32[128] align 4):
    for io in 0 .. 13:
        for ii in 0 .. min(8, 100 - io * 8) vector(8):
            y[io * 8 + ii] = x[io * 8 + ii] * 2.0:f32
"""))  # fmt: skip


def test_constant_partial_vector(native: Any) -> None:
    agree(native("""
function part(x: param f32[16] align 4, y: param f32[16] align 4):
    for i in 2 .. 7 vector(8):
        y[i] = x[i + 1] + x[i - 2]
"""))  # fmt: skip


@pytest.mark.parametrize(
    "index",
    [
        "i",
        "7 - i",
        "2 * i",
        "14 - 2 * i",
        "3 * i + 1",
        "4 * i",
        "30 - 4 * i",
        "5 * i",
        "i // 2",
        "i * i",
    ],
)
def test_loads_of_every_kind(native: Any, index: str) -> None:
    agree(native(f"""
function loads(x: param f32[64] align 4, y: param f32[8] align 4):
    for i in 0 .. 8 vector(8):
        y[i] = x[{index}]
"""))  # fmt: skip


@pytest.mark.parametrize("index", ["i", "7 - i", "2 * i", "3 * i + 1", "(i * 5) % 8"])
@pytest.mark.parametrize("stop", ["8", "n[0]"])
def test_stores_of_every_kind(native: Any, index: str, stop: str) -> None:
    kernel = native(f"""
function stores(n: param i64[1] align 8, x: param f64[8] align 8, y: param f64[32] align 8):
    for i in 0 .. {stop} vector(8):
        y[{index}] = x[i]
""")  # fmt: skip
    for n in (0, 1, 5, 8):
        ours = [np.array([n]), np.arange(8.0), np.full(32, -1.0)]
        theirs = [a.copy() for a in ours]
        assert kernel(*ours) == 0
        run.run(kernel.function, *theirs)
        np.testing.assert_array_equal(ours[2], theirs[2])


def test_strides_of_both_signs_and_zero(native: Any) -> None:
    z = "f32[3, 8] strides [0, 2]"
    kernel = native(f"""
function f(x: param f32[3, 8] strides [1, -3], z: param {z}, y: param f32[3, 8]):
    for i in 0 .. 3:
        for j in 0 .. 8 vector(8):
            y[i, j] = x[i, j] + z[i, j]
""")  # fmt: skip
    base = np.arange(24, dtype=np.float32)
    x = base.reshape(8, 3)[::-1].T
    z = np.lib.stride_tricks.as_strided(np.arange(16, dtype=np.float32), (3, 8), (0, 8))
    assert x.strides == (4, -12)
    y = np.zeros((3, 8), np.float32)
    assert kernel(x, z, y) == 0
    np.testing.assert_array_equal(y, x + z)


def test_reductions_over_lanes_that_share_a_cell(native: Any) -> None:
    for reducer in ("sum", "max", "min", "prod"):
        agree(native(f"""
function rows(x: param f32[5, 11] align 4, y: param f32[5] align 4):
    for i in 0 .. 5:
        for jo in 0 .. 3:
            for j in 0 .. min(4, 11 - 4 * jo) vector(4):
                y[i] {reducer}= x[i, 4 * jo + j]
"""))  # fmt: skip


def test_a_sum_of_a_constant_counts_the_lanes(native: Any) -> None:
    agree(native("""
function count(y: param i32[1] align 4):
    for i in 0 .. 5 vector(8):
        y[0] sum= 1:i32
"""))  # fmt: skip


def test_histogram_with_colliding_lanes(native: Any) -> None:
    kernel = native("""
function histogram(x: param i64[13] align 8, h: param i32[4] align 4):
    for io in 0 .. 2:
        for i in 0 .. min(8, 13 - 8 * io) vector(8):
            h[x[8 * io + i]] sum= 1:i32
""")  # fmt: skip
    x = np.array([0, 1, 1, 3, 3, 3, 0, 1, 2, 2, 2, 2, 1])
    h = np.zeros(4, np.int32)
    assert kernel(x, h) == 0
    np.testing.assert_array_equal(h, np.bincount(x, minlength=4))


def test_conditions_that_differ_between_lanes(native: Any) -> None:
    agree(native("""
function branches(x: param f32[16] align 4, y: param f32[16] align 4):
    for i in 0 .. 16 vector(16):
        if (x[i] > 0.0:f32) & (i % 3 != 1):
            y[i] = x[i] * 2.0:f32
        else:
            if i < 5:
                y[i] = 7.0:f32
"""))  # fmt: skip


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
def test_comparisons_of_indices(native: Any, op: str) -> None:
    lines = [
        f"        y[i] sum= where({left} {op} {right}, {2**n}.0:f32, 0.0:f32)"
        for n, (left, right) in enumerate(
            [
                ("i", "3"),
                ("5", "i"),
                ("i", "n[0]"),
                ("i + n[0]", "2 * i"),
                ("2 * i", "6"),
                ("i", "i"),
            ]
        )
    ]
    kernel = native(
        "function compare(n: param i64[1] align 8, y: param f32[8] align 4):\n"
        "    for i in 0 .. 8 vector(8):\n" + "\n".join(lines) + "\n"
    )
    for n in (3, -1, 2**40, -(2**40), 7):
        ours = [np.array([n]), np.zeros(8, np.float32)]
        theirs = [a.copy() for a in ours]
        assert kernel(*ours) == 0
        run.run(kernel.function, *theirs)
        np.testing.assert_array_equal(ours[1], theirs[1])


def test_where_reads_only_what_its_condition_asks_for(native: Any) -> None:
    for lanes in ("", " vector(8)"):
        agree(
            native(f"""
function edges(x: param f32[8] align 4, y: param f32[8] align 4):
    for i in 0 .. 8{lanes}:
        y[i] = where(i >= 1, x[i - 1], 0.0:f32)
        y[i] sum= where(i < 6, x[i + 2], where(i < 0, x[0 - 1000000000], 5.0:f32))
""")
        )  # fmt: skip


def test_what_no_lane_asks_for_is_not_branched_on(native: Any) -> None:
    """Where no lane reads m a number stands for it: a branch on an undefined value would let LLVM
    leave out the kernel's end, and the loops before it would never stop."""
    kernel = native("""
function choice(m: param i64[1], x: param f64[9], y: param f64[9, 9]):
    for z in 0 .. 9:
        for j in 0 .. 8 vector(8):
            $0 = x[0] + where(m[0] > 0, x[1], x[8 - j])
            y[z, j] = where((j >= 7) & (z >= 1) & (z < 3), $0, 0.0:f64)
""")  # fmt: skip
    agree(kernel)
    assert "[ undef" not in str(jit.optimize(kernel.text, jit.target_machine()))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("f64", "sin(x[i])"), ("f64", "x[i] ** y[i]"), ("f64", "x[i] % y[i]"),
     ("i64", "x[i] ** y[i]"), ("i64", "x[i] // y[i]"), ("i64", "x[i] % y[i]")],
)  # fmt: skip
def test_lanes_that_are_off_decide_nothing(native: Any, dtype: str, value: str) -> None:
    """Branches and integer divisions see some definite value in lanes that may be undefined."""
    kernel = native(f"""
function lanes(x: param {dtype}[8], y: param {dtype}[8], z: param {dtype}[8]):
    for i in 0 .. 5 vector(8):
        z[i] = {value}
""")  # fmt: skip
    assert "freeze" in kernel.text


def test_serial_loop_inside_a_vector_loop(native: Any) -> None:
    agree(native("""
function triangle(x: param f32[8, 8] align 4, y: param f32[8] align 4):
    for i in 0 .. 8 vector(8):
        y[i] = 0.0:f32
        for j in i // 2 .. i + 1:
            y[i] sum= x[i, j]
"""))  # fmt: skip


def test_each_lane_has_its_own_copy_of_a_buffer(native: Any) -> None:
    for scope in ("stack", "register", "heap"):
        index = ("0", "1") if scope == "register" else ("i % 2", "1 - i % 2")
        agree(native(f"""
function private(x: param f32[8] align 4, y: param f32[8] align 4):
    for i in 0 .. 8 vector(8):
        alloc t: {scope} f32[2]:
            t[{index[0]}] = x[i]
            t[{index[1]}] = x[i] * 3.0:f32
            y[i] = t[{index[0]}] - t[{index[1]}]
"""))  # fmt: skip


@pytest.mark.parametrize("scope", ["stack", "register", "heap"])
@pytest.mark.parametrize("stop", [8, 7])
def test_lanes_before_the_first_cell_are_not_touched(native: Any, scope: str, stop: int) -> None:
    """Conditions may hold off the lanes from which a vector of cells starts."""
    agree(native(f"""
function before(x: param f32[8] align 4, y: param f32[8] align 4):
    alloc t: {scope} f32[5]:
        for i in 0 .. 4 vector(4):
            t[i] = x[i]
        t[4] = x[4]
        for i in 0 .. {stop} vector(8):
            if i >= 4:
                t[i - 4] sum= x[i]
        for i in 0 .. 8 vector(8):
            y[i] = where((3 <= i) & (i < {stop}), t[i - 3], x[i])
"""))  # fmt: skip


def test_let(native: Any) -> None:
    agree(native("""
function lets(x: param f32[20] align 4, y: param f32[16] align 4):
    for i in 0 .. 2:
        let base = 8 * i + 1:
            for v in 0 .. 8 vector(8):
                let at = base + v:
                    y[at - 1] = x[at]
"""))  # fmt: skip


def test_steps_and_empty_loops(native: Any) -> None:
    agree(native("""
function steps(x: param f32[20] align 4, y: param f32[20] align 4):
    for i in 1 .. 20 step 3:
        y[i] = x[i]
        for j in 5 .. i - 3 step 2:
            y[i] sum= x[j]
        for k in 7 .. 3:
            y[k] = 0.0:f32
"""))  # fmt: skip


def test_parallel_loop_on_the_calling_thread(native: Any) -> None:
    agree(native("""
function rows(x: param f32[7, 9] align 4, y: param f32[7] align 4):
    alloc shared_: heap f32[9]:
        for j in 0 .. 9:
            shared_[j] = x[0, j]
        for i in 1 .. 7 step 2 parallel:
            alloc t: heap f32[9]:
                for j in 0 .. 9:
                    t[j] = x[i, j] + shared_[j]
                y[i] = 0.0:f32
                for k in 0 .. 9 parallel:
                    y[i] sum= t[k]
"""))  # fmt: skip


@pytest.mark.parametrize("name", [n for n in BY_NAME if n not in ("bf16",)])
def test_every_type_is_loaded_and_stored(native: Any, name: str) -> None:
    for lanes in ("", " vector(8)"):
        agree(native(f"""
function copy(x: param {name}[8], y: param {name}[8]):
    for i in 0 .. 8{lanes}:
        y[i] = x[i]
"""))  # fmt: skip


def test_any_nonzero_byte_is_true(native: Any) -> None:
    kernel = native("""
function negate(x: param bool[8], y: param bool[8]):
    for i in 0 .. 8 vector(8):
        y[i] = ~x[i]
""")  # fmt: skip
    x = np.array([0, 1, 2, 128, 255, 0, 7, 1], np.uint8)
    y = np.full(8, 9, np.uint8)
    assert kernel(x, y) == 0
    assert y.tolist() == [1, 0, 0, 0, 0, 1, 0, 0]


def bf16(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Bits of f32 rounded to nearest even, by the definition."""
    bits = x.view(np.uint32).astype(np.uint64)
    kept = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(x), 0x7FC0, kept).astype(np.uint16)


@pytest.mark.parametrize("lanes", ["", " vector(16)"])
def test_bf16_rounds_to_nearest_even(native: Any, lanes: str) -> None:
    kernel = native(f"""
function round(x: param f32[16], y: param bf16[16], z: param f32[16]):
    for i in 0 .. 16{lanes}:
        y[i] = bf16(x[i])
        z[i] = f32(y[i] + y[i])
""")  # fmt: skip
    x = np.array(
        [
            1,
            1.00390625,
            1.01171875,
            -3.14,
            1e38,
            3.4e38,
            np.inf,
            -0.0,
            1e-40,
            2.7,
            0.1,
            5,
            6,
            7,
            np.nan,
            -np.inf,
        ],
        np.float32,
    )
    y, z = np.zeros(16, np.uint16), np.zeros(16, np.float32)
    assert kernel(x, y, z) == 0
    np.testing.assert_array_equal(y, bf16(x))
    wide = (y.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):
        want = (bf16(wide + wide).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(z, want)


def test_f16_rounds_after_every_operation(native: Any) -> None:
    kernel = native("""
function arithmetic(x: param f16[8], y: param f16[8], z: param f16[8]):
    for i in 0 .. 8 vector(8):
        z[i] = x[i] * y[i] + x[i]
""")  # fmt: skip
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=8).astype(np.float16) for _ in range(2))
    z = np.zeros(8, np.float16)
    assert kernel(x, y, z) == 0
    np.testing.assert_array_equal(z, x * y + x)


def test_f64_to_f16_rounds_once(native: Any) -> None:
    kernel = native("""
function casts(x: param f64[8], y: param f16[8], z: param bf16[8]):
    for i in 0 .. 8 vector(8):
        y[i] = f16(x[i])
        z[i] = bf16(x[i])
""")  # fmt: skip
    middle = 1 + 2.0**-11  # halfway between two f16
    tie = [middle, middle + 2.0**-40, middle - 2.0**-40, -middle - 2.0**-40]
    x = np.array([*tie, 0.1, np.inf, np.nan, 1 + 2.0**-8 + 2.0**-40])
    y, z = np.zeros(8, np.float16), np.zeros(8, np.uint16)
    assert kernel(x, y, z) == 0
    np.testing.assert_array_equal(y, x.astype(np.float16))
    assert z[7] == 0x3F81


INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("rounding", [True, False])
def test_integer_division_floors_and_never_traps(
    native: Any, name: str, lanes: int, rounding: bool
) -> None:
    vector = f" vector({lanes})" if lanes > 1 else ""
    target = Target(
        host_code.host_target().triple, fma=host_code.host_target().fma, rounding=rounding
    )
    text = f"""
function divide(x: param {name}[64], y: param {name}[64], q: param {name}[64], r: param {name}[64]):
    for io in 0 .. {64 // lanes}:
        for ii in 0 .. {lanes}{vector}:
            q[io * {lanes} + ii] = x[io * {lanes} + ii] // y[io * {lanes} + ii]
            r[io * {lanes} + ii] = x[io * {lanes} + ii] % y[io * {lanes} + ii]
"""
    kernel = native(text, target)
    dtype = BY_NAME[name].numpy
    info = np.iinfo(dtype)
    corners = [v for v in (0, 1, 2, 7, -1, -2, -7, info.min, info.max) if info.min <= v <= info.max]
    pairs = [(a, b) for a in corners for b in corners][:64]
    x = np.resize(np.array([p[0] for p in pairs], dtype), 64)
    y = np.resize(np.array([p[1] for p in pairs], dtype), 64)
    q, r = np.zeros_like(x), np.zeros_like(x)
    assert kernel(x, y, q, r) == 0
    for a, b, quotient, rest in zip(x.tolist(), y.tolist(), q, r, strict=True):
        want = (0, 0) if b == 0 else divmod(a, b)
        if want[0] > info.max:  # INT_MIN // -1
            want = (info.min, 0)
        assert (int(quotient), int(rest)) == want, (a, b)


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 16, 100])
@pytest.mark.parametrize("name", ["i32", "i64", "u8"])
def test_division_by_constants(native: Any, name: str, divisor: int) -> None:
    for lanes in ("", " vector(16)"):
        kernel = native(f"""
function divide(x: param {name}[16], q: param {name}[16], r: param {name}[16]):
    for i in 0 .. 16{lanes}:
        q[i] = x[i] // {divisor}:{name}
        r[i] = x[i] % {divisor}:{name}
""")  # fmt: skip
        dtype = BY_NAME[name].numpy
        low = np.iinfo(dtype).min
        x = np.array([low, low + 1, -1 if low else 1, 0, 5, 14, 15, 16, 99, 100, *range(6)], dtype)
        q, r = np.zeros_like(x), np.zeros_like(x)
        assert kernel(x, q, r) == 0
        np.testing.assert_array_equal(q, x // dtype.type(divisor))
        np.testing.assert_array_equal(r, x % dtype.type(divisor))


def test_nan_goes_through_max_and_min(native: Any) -> None:
    kernel = native("""
function f(x: param f32[4], y: param f32[4], a: param f32[4], b: param f32[4], c: param f32[4]):
    for i in 0 .. 4 vector(4):
        a[i] = max(x[i], y[i])
        b[i] = min(x[i], y[i])
        c[i] = max(0.0:f32, x[i])
""")  # fmt: skip
    nan = np.nan
    x, y = np.array([[nan, 1, nan, 2], [1, nan, nan, -3]], np.float32)
    hi, lo, relu = np.zeros((3, 4), np.float32)
    assert kernel(x, y, hi, lo, relu) == 0
    np.testing.assert_array_equal(hi, np.maximum(x, y))
    np.testing.assert_array_equal(lo, np.minimum(x, y))
    np.testing.assert_array_equal(relu, np.maximum(x, 0))


def test_conversions(native: Any) -> None:
    kernel = native("""
function casts(x: param f64[8], a: param i32[8], b: param f32[8], c: param bool[8], d: param u8[8]):
    for i in 0 .. 8 vector(8):
        a[i] = i32(x[i])
        b[i] = f32(x[i])
        c[i] = bool(x[i])
        d[i] = u8(a[i])
""")  # fmt: skip
    x = np.array([0.0, -0.0, 1.7, -1.7, 200.9, 1e-9, 12345.6, -7.0])
    a, b, c = np.zeros(8, np.int32), np.zeros(8, np.float32), np.zeros(8, bool)
    d = np.zeros(8, np.uint8)
    assert kernel(x, a, b, c, d) == 0
    np.testing.assert_array_equal(a, x.astype(np.int32))
    np.testing.assert_array_equal(b, x.astype(np.float32))
    np.testing.assert_array_equal(c, x.astype(bool))
    np.testing.assert_array_equal(d, a.astype(np.uint8))


@pytest.mark.parametrize("lanes", ["", " vector(8)"])
def test_data_dependent_index_out_of_range_is_reported(native: Any, lanes: str) -> None:
    kernel = native(f"""
function gather(w: param f32[5, 3] align 4, t: param i32[8] align 4, y: param f32[8] align 4):
    for i in 0 .. 8{lanes}:
        y[i] = w[i64(t[i]), 1]
""")  # fmt: skip
    w = np.arange(15, dtype=np.float32).reshape(5, 3)
    good = np.array([0, 4, 2, 1, 3, 3, 0, 4], np.int32)
    y = np.zeros(8, np.float32)
    assert kernel(w, good, y) == 0
    np.testing.assert_array_equal(y, w[good, 1])
    for wrong in (-1, 5, 2**31 - 1):
        bad = good.copy()
        bad[6] = wrong
        status = kernel(w, bad, y)
        assert kernel.emitted.sites[status - 1] == "w axis 0 of size 5"


def test_masked_lanes_do_not_fail_checks(native: Any) -> None:
    kernel = native("""
function gather(w: param f32[5] align 4, t: param i32[8] align 4, y: param f32[8] align 4):
    for i in 0 .. 5 vector(8):
        y[i] = where(i64(t[i]) >= 0, w[i64(t[i])], 0.0:f32)
""")  # fmt: skip
    w, y = np.arange(5, dtype=np.float32), np.zeros(8, np.float32)
    t = np.array([4, -1, 3, -9, 0, 77, 77, 77], np.int32)
    assert kernel(w, t, y) == 0
    assert y.tolist() == [4, 0, 3, 0, 0, 0, 0, 0]


def test_nothing_is_contracted_outside_reductions(native: Any) -> None:
    kernel = native("""
function plain(x: param f32[16] align 4, y: param f32[16] align 4, z: param f32[16] align 4):
    for i in 0 .. 16 vector(16):
        z[i] = x[i] * y[i] + x[i]
""")  # fmt: skip
    rng = np.random.default_rng(2)
    x, y = (rng.normal(size=16).astype(np.float32) for _ in range(2))
    z = np.zeros(16, np.float32)
    assert kernel(x, y, z) == 0
    np.testing.assert_array_equal(z, x * y + x)
    assert "contract" not in kernel.text and "reassoc" not in kernel.text


def test_buffers_never_share_memory(native: Any) -> None:
    """LLVM is told so. Copies of one buffer, under one name, do."""
    body = "".join(
        f"""
    alloc {name}: heap f32[100]:
        for i in 0 .. 100:
            {name}[i] = x[i] + {n}.0:f32
        for i in 0 .. 100:
            y[i] sum= {name}[99 - i]"""
        for n, name in enumerate(("s", "t", "t", "s"))
    )
    kernel = native(f"function siblings(x: param f32[100], y: param f32[100]):{body}\n")
    agree(kernel)
    assert kernel.emitted.workspace.kernel == 2 * 4 * 176  # 100 and 64 of padding, to 64 bytes


def test_a_wide_read_of_what_was_written_in_parts_last_one_first(native: Any) -> None:
    """LLVM 22 read the part that is written later before it was."""
    agree(native("""
function parts(x: param f64[4] align 8, y: param f64[4] align 8):
    alloc t: stack f64[4]:
        for i in 0 .. 2 vector(2):
            t[i + 2] = x[i + 2] * 2.0:f64
        for i in 0 .. 2 vector(2):
            t[i] = x[i] * 3.0:f64
        for i in 0 .. 4 vector(4):
            y[i] = t[i]
"""))  # fmt: skip


def test_what_threads_share_is_not_blended(native: Any) -> None:
    """A masked store to a buffer of the thread's own may rewrite its neighbours; not so here."""
    kernel = native("""
function shared_(x: param f32[30], y: param f32[30]):
    alloc t: stack f32[30]:
        for i in 0 .. 6 parallel:
            for v in 0 .. min(5, 30 - 5 * i) vector(8):
                t[i * 5 + v] = x[i * 5 + v]
        for i in 0 .. 30:
            y[i] = t[i]
""")
    agree(kernel)
    assert '@"llvm.masked.store.v8f32.p0"' in kernel.text


def test_integer_power(native: Any) -> None:
    for lanes in ("", " vector(8)"):
        kernel = native(f"""
function power(x: param i32[8], y: param i32[8], z: param i32[8]):
    for i in 0 .. 8{lanes}:
        z[i] = x[i] ** y[i]
""")  # fmt: skip
        x = np.array([2, -3, 0, 0, 7, -1, 5, 2], np.int32)
        y = np.array([10, 5, 0, 4, -2, 1000001, 20, 31], np.int32)
        z = np.zeros(8, np.int32)
        assert kernel(x, y, z) == 0
        np.testing.assert_array_equal(z, OPERATIONS["pow"].numpy(x, y))


def test_float_division_and_remainder_are_numpys(native: Any) -> None:
    rng = np.random.default_rng(3)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.1, -2.5, 1e-310, 1e300]
    a, b = (g.ravel() for g in np.meshgrid(special, special))
    a = np.concatenate([a, rng.normal(size=135) * 10.0 ** rng.integers(-20, 20, 135)])
    b = np.concatenate([b, rng.normal(size=135) * 10.0 ** rng.integers(-20, 20, 135)])
    for name, dtype in (("f64", np.float64), ("f32", np.float32)):
        with np.errstate(all="ignore"):
            x, y = a.astype(dtype), b.astype(dtype)
        t = f"{name}[256]"
        for lanes in ("", " vector(8)"):
            kernel = native(f"""
function floats(x: param {t}, y: param {t}, q: param {t}, r: param {t}):
    for io in 0 .. 32:
        for i in 0 .. 8{lanes}:
            q[io * 8 + i] = x[io * 8 + i] // y[io * 8 + i]
            r[io * 8 + i] = x[io * 8 + i] % y[io * 8 + i]
""")  # fmt: skip
            q, r = np.zeros(256, dtype), np.zeros(256, dtype)
            assert kernel(x, y, q, r) == 0
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(q, np.floor_divide(x, y))
                np.testing.assert_array_equal(r, np.mod(x, y))


def test_wrong_types_are_our_bug(native: Any) -> None:
    for value, message in (
        ("x[0] + 1:i32", "add of f32, i32 in loop IR"),
        ("1:i32", "y is f32 and the value stored is i32"),
        ("f32(n)", "loop IR reads n, which no loop or let binds"),
    ):
        text = f"function wrong(x: param f32[4], y: param f32[4]):\n    y[0] = {value}\n"
        with pytest.raises(InternalError) as caught:
            emit(parse_function(text), host_code.host_target())
        assert str(caught.value) == message


@settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    m=st.integers(1, 9),
    n=st.integers(1, 21),
    lanes=st.sampled_from([2, 4, 8, 16]),
    step=st.integers(-3, 3),
    order=st.booleans(),
)
def test_random_tiles(native: Any, m: int, n: int, lanes: int, step: int, order: bool) -> None:
    """Tiles of any size against the executor; `step` is the stride of the lanes' reads."""
    at = f"{step} * (jo * {lanes} + v) + {max(0, -step) * (n - 1) + 2}"
    width = max(1, abs(step)) * n + 8
    first, second = ("x[i, ", "x[i, ") if order else ("x[0, ", "x[i, ")
    kernel = native(f"""
function tile(x: param f32[{m}, {width}], y: param f32[{m}, {n}], s: param f32[{m}]):
    for i in 0 .. {m} parallel:
        for jo in 0 .. {-(-n // lanes)}:
            for v in 0 .. min({lanes}, {n} - {lanes} * jo) vector({lanes}):
                y[i, jo * {lanes} + v] = {first}{at}] + {second}jo * {lanes} + v] * 2.0:f32
                s[i] sum= y[i, jo * {lanes} + v]
""")  # fmt: skip
    agree(kernel, m * n)
