"""Tiles in registers that are read across: transposes and recurrences along rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen.host import machine

TURN = dt.op("y[i,j] = x[j,i]")


def turned(lanes: int) -> Any:
    return (
        TURN.schedule()
        .tile(i=lanes, j=lanes)
        .reorder("jo", "io", "ii", "ji")
        .stage("x", at="io", scope="register")
        .vectorize("x.pack.i")
        .unroll("ii")
        .vectorize("ji")
    )


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "?"])
@pytest.mark.parametrize("shape", [(32, 48), (33, 47), (7, 5), (1, 70)])
def test_transpose_through_registers(dtype: str, shape: tuple[int, int]) -> None:
    """Whole tiles, partial ones, and arrays smaller than a tile."""
    x = np.random.default_rng(0).integers(0, 2 if dtype == "?" else 99, shape).astype(dtype)
    out = np.full(shape[::-1], 1, dtype)
    turned(8)(x, out=out)
    np.testing.assert_array_equal(out, x.T)


def test_a_tile_is_turned_by_shuffles() -> None:
    """n loads, n log n shuffles and n stores of whole vectors, and no gather; LLVM may unroll."""
    x = np.zeros((64, 64), np.float32)
    lanes = min(8, machine().lanes(4))
    schedule = turned(lanes)
    schedule(x)
    source = schedule.source("llvm")
    assert "gather" not in source
    vector = rf"<{lanes} x float>"
    loads = len(re.findall(rf"= load {vector}", source))
    assert loads in (lanes, 2 * lanes, 4 * lanes)
    assert len(re.findall(rf"= shufflevector {vector}", source)) == loads * (lanes.bit_length() - 1)


@pytest.mark.parametrize("shape", [(16, 64), (19, 37), (5, 100)])
def test_recurrence_along_rows_in_lanes_across_them(shape: tuple[int, int]) -> None:
    """x is turned when it is loaded into registers, c when it is stored from them."""
    scan = dt.op(
        "scan(x: [B, N]) -> c:\n c[b,0] = x[b,0]\n c[b,i] = c[b,i-1] / 2 + x[b,i] where i in 1:N"
    )
    schedule = (
        scan.schedule()
        .split("c.1.b", 8)
        .split("c.1.i", 8)
        .reorder("c.1.bo", "c.1.io", "c.1.ii", "c.1.bi")
        .stage("x", at="c.1.io", scope="register")
        .stage("c", at="c.1.io", scope="register", layout=("i", "b"))
        .reorder("c.store.b", "c.store.i")
        .vectorize("c.store.i")
        .vectorize("x.pack.i")
        .vectorize("c.1.bi")
    )
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(schedule(x), dt.interpret(scan, x), rtol=1e-5, atol=1e-6)
    lanes = min(8, machine().lanes(4))
    if shape == (16, 64):  # full tiles have a version of their own, in registers
        assert f"shufflevector <{lanes} x float>" in schedule.source("llvm")


X, HERE = "x: [64,64]", "where i in 0:64, j in 0:64"
FAR = {
    "places that are data": f"f({X}, w: [5000], at: [64]) -> y:\n y[i,j] = x[j,i] * w[at[j]]",
    "rows far apart": f"f({X}, w: [6400,64]) -> y:\n y[i,j] = x[j,i] * w[100*j,i]",
    "a step in both": f"f({X}, w: [128,192]) -> y:\n y[i,j] = x[j,i] + w[2*j,3*i] + w[j,i] {HERE}",
    "from both ends": f"f({X}) -> y:\n y[i,j] = x[j,i] + x[63-j,63-i] {HERE}",
    "a sum of indices": f"f({X}, w: [128,64,64]) -> y:\n y[i,j] = x[j,i] + w[i+j,j,i]",
    "rests": f"f({X}, w: [64,64]) -> y:\n y[i,j] = x[j,i] + w[j,i%7] + w[j,i//2]",
    "neighbours": f"f({X}) -> y:\n y[i,j] = x[j,i] + x[j+1,i] where i in 0:64, j in 0:63",
    "many": f"f({X}, " + ", ".join(f"w{n}: [64,64]" for n in range(12)) + ") -> y:\n"
    " y[i,j] = x[j,i]" + "".join(f" + w{n}[j,i]" for n in range(12)),
}  # fmt: skip


@pytest.mark.parametrize("name", FAR)
def test_by_default_only_what_fits_is_copied(name: str) -> None:
    op = dt.op(FAR[name])
    rng = np.random.default_rng(0)
    given = [
        rng.integers(0, 5000, p.type.dims) if p.name == "at" else rng.random(p.type.dims)
        for p in op.params
    ]
    np.testing.assert_allclose(op(*given), dt.interpret(op, *given), rtol=1e-12)


def test_columns_of_what_is_written_in_between(native: Callable[..., Any]) -> None:
    """Rounds of shuffles are kept for other columns, until the buffer has other contents."""
    rows = "\n".join(
        f"        for w{n} in 0 .. 4 vector(4):\n            t[{n}, w{n}] = x[{n}, w{n}]"
        for n in range(4)
    )
    code = f"""function f(x: param f32[4, 4], y: param f32[3, 4]):
    alloc t: register f32[4, 4] align 64:
{rows}
        for a in 0 .. 4 vector(4):
            y[0, a] = t[a, 1]
        for b in 0 .. 4 vector(4):
            t[2, b] = x[2, b] + 1.0:f32
        for c in 0 .. 4 vector(4):
            y[1, c] = t[c, 1]
        t[3, 2] = 7.0:f32
        for d in 0 .. 4 vector(4):
            y[2, d] = t[d, 2]
"""
    x, y = np.arange(16, dtype=np.float32).reshape(4, 4), np.zeros((3, 4), np.float32)
    assert native(code)(x, y) == 0
    np.testing.assert_array_equal(y, [[1, 5, 9, 13], [1, 5, 10, 13], [2, 6, 11, 7]])
