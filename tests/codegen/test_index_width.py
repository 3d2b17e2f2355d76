"""Index arithmetic in lanes has 32 bits where it fits, 64 where it does not."""

from __future__ import annotations

import re
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen.spans import WHOLE, span_of
from diptych.sched.loop.schedule import Schedule

from .test_emit import agree

BEYOND = 2**31 + 64


def widths(code: str) -> set[str]:
    """The integer types of the arithmetic in lanes."""
    return set(re.findall(r"= (?:add|sub|mul|udiv|sdiv|urem) (?:nsw |nuw )*<8 x (i\d+)>", code))


def test_small_indices_have_32_bits(native: Any) -> None:
    for index in ("(io * 8 + i) // 3", "(io * 8 + i) % 40", "max((io * 8 + i) - 5, 0) // 2 * 2",
                  "where((io * 8 + i) % 2 == 0, io * 8 + i, (io * 8 + i) // 7)"):  # fmt: skip
        kernel = native(f"""
function f(x: param f32[400] align 4, y: param f32[400] align 4):
    for io in 0 .. 50:
        for i in 0 .. 8 vector(8):
            y[io * 8 + i] = x[{index}]
""")
        agree(kernel)
        assert widths(kernel.text) == {"i32"}, index


def test_negative_quotients_and_remainders(native: Any) -> None:
    agree(
        native("""
function f(q: param i64[64] align 8, r: param i64[64] align 8, m: param i64[64] align 8):
    for io in 0 .. 8:
        for i in 0 .. 8 vector(8):
            q[io * 8 + i] = (io * 8 + i - 30) // 7
            r[io * 8 + i] = (io * 8 + i - 30) % 7
            m[io * 8 + i] = min(io * 8 + i - 30, 3) * max(io, 2) - (io * 8 + i) // (io + 1)
""")
    )


def test_what_does_not_fit_has_64_bits(native: Any) -> None:
    kernel = native("""
function f(y: param i64[8] align 8):
    for io in 0 .. 3000000001 step 3000000000:
        for i in 0 .. 8 vector(8):
            y[i] sum= (io + i) // 3
""")
    agree(kernel)
    assert widths(kernel.text) == {"i64"}
    agree(
        native("""
function f(y: param i64[5000] align 8):
    for io in 0 .. 625:
        for i in 0 .. 8 vector(8):
            y[io * 8 + i] = (io * 8 + i) // 2 * 1000000
""")
    )


def test_a_loop_of_three_billion_iterations(native: Any) -> None:
    agree(
        native("""
function f(h: param i64[10] align 8):
    for i in 2999999990 .. 3000000010:
        h[i % 10] sum= 1
""")
    )


def test_r64_the_cells_decide_too(native: Any) -> None:
    """Small indices, and a product with strides that is beyond 32 bits."""
    text = """
function f(at: param i32[8] align 4, x: param u8[EXTENT, 32769], y: param u8[8]):
    for i in 0 .. 8 vector(8):
        y[i] = x[i64(at[i]), 32768]
"""
    assert widths(native(text.replace("EXTENT", "65537")).text) == {"i64"}
    assert widths(native(text.replace("EXTENT", "65000")).text) == {"i32"}


@pytest.mark.parametrize("dtype", ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64"])
def test_indices_read_from_memory(native: Any, dtype: str) -> None:
    kernel = native(f"""
function f(at: param {dtype}[64], x: param f32[2, 10] align 4, y: param f32[64] align 4):
    for io in 0 .. 8:
        for i in 0 .. 8 vector(8):
            y[io * 8 + i] = x[1, i64(at[io * 8 + i])]
""")
    at = (np.arange(64) % (2 if dtype == "bool" else 10)).astype(
        kernel.function.params[0].dtype.numpy
    )
    x, y = np.arange(20, dtype=np.float32).reshape(2, 10), np.zeros(64, np.float32)
    assert kernel(at, x, y) == 0
    np.testing.assert_array_equal(y, x[1, at.astype(int)])
    assert widths(kernel.text) == {"i64" if dtype in ("u32", "i64") else "i32"}
    if dtype != "bool":
        for wrong in (-1, 10, 2**32 - 1, 2**63 - 1, -(2**63)):
            bad = at.copy()
            bad[37] = np.array(wrong % 2**64, np.uint64).astype(at.dtype)
            inside = 0 <= int(bad[37]) < 10
            assert (kernel(bad, x, y) == 0) == inside


def test_spans() -> None:
    assert span_of("add", [(1, 2), (-3, 5)]) == (-2, 7)
    assert span_of("sub", [(1, 2), (-3, 5)]) == (-4, 5)
    assert span_of("neg", [(1, 2)]) == (-2, -1)
    assert span_of("mul", [(-2, 3), (-5, 7)]) == (-15, 21)
    assert span_of("min", [(-2, 3), (-5, 7)]) == (-5, 3)
    assert span_of("max", [(-2, 3), (-5, 7)]) == (-2, 7)
    assert span_of("floordiv", [(-7, 8), (2, 3)]) == (-4, 4)
    assert span_of("mod", [(-7, 8), (3, 3)]) == (0, 2)
    assert span_of("mod", [(0, 1), (3, 9)]) == (0, 1)
    assert span_of("floordiv", [(1, 2), (0, 3)]) == WHOLE == span_of("mod", [(1, 2), (-1, 3)])
    assert span_of("mul", [(0, 2**62), (0, 4)]) == WHOLE == span_of("xor", [(0, 1), (0, 1)])


# Elements that lie far apart: memory that nobody touches costs nothing


@pytest.fixture(scope="module")
def far() -> Any:
    try:
        return np.zeros(BEYOND, np.uint8)
    except MemoryError:
        pytest.skip("no room for 2**31 bytes of addresses")


def test_r64_strides_beyond_two_to_the_31(far: Any) -> None:
    x = far[:: 2**26]
    x[:] = np.arange(len(x)) % 251
    want = x.astype(np.uint8) + np.uint8(1)
    op = dt.op("Y[i] = A[i] + 1")
    for schedule in (op.schedule(), op.schedule().vectorize("i", 16)):
        np.testing.assert_array_equal(schedule(x), want)
        out = np.zeros(BEYOND, np.uint8)[:: 2**26]
        schedule(want, out=out)
        np.testing.assert_array_equal(out, want + np.uint8(1))


def test_r64_the_last_elements(far: Any) -> None:
    far[:64], far[-64:] = np.arange(64), np.arange(64) + 100
    at = np.concatenate([np.arange(64), BEYOND - 1 - np.arange(64)])
    op = dt.op("Y[n] = A[at[n]]")
    for schedule in (op.schedule(), op.schedule().vectorize("n", 16)):
        np.testing.assert_array_equal(schedule(far, at), far[at])
    rows = far[: 65537 * 32767].reshape(65537, 32767)[::4096, ::16383]
    rows[-1] = [7, 8, 9]
    for schedule in ("", '.vectorize("i", 16)', '.vectorize("j")'):
        taken = Schedule.parse(dt.op("Y[i,j] = A[i,j] + 1"), schedule)(rows)
        np.testing.assert_array_equal(taken, rows + np.uint8(1))


def test_dynamic_sizes_are_known_by_their_maxima() -> None:
    every_third = dt.op("f(x: f32[N]) -> y:\n    y[i] = x[i//3] where i in 0:3*N").dynamic(N=300)
    third = every_third.schedule().vectorize("i", 8)
    for n in (1, 7, 300):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(third(x), np.repeat(x, 3))
    assert widths(third.source("llvm")) == {"i32"}
