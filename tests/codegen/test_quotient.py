"""Division by a number of the program: the bits are those of the divider."""

from __future__ import annotations

from fractions import Fraction

import diptych as dt
import numpy as np
import pytest
from diptych.codegen.elementary_quotient import _rounded, parts
from diptych.codegen.host_code import host_target


@pytest.mark.parametrize("p", [5, 6, 8])
def test_every_quotient_of_short_floats(p: int) -> None:
    """Where there are parts all significands divide right, and some divisors have none."""
    taken = 0
    for c in range(1 << (p - 1), 1 << p):
        found = parts(float(c), p)
        if found is None:
            continue
        taken += 1
        hi, lo = map(Fraction, found)
        for x in range(1 << (p - 1), 1 << p):
            got = _rounded(x * hi + _rounded(x * lo, p), p)
            assert got == _rounded(Fraction(x, c), p), (x, c)
    assert 0.5 < taken / (1 << (p - 1)) < 1


def test_powers_of_two_and_divisors_that_fail_have_no_parts() -> None:
    assert all(parts(2.0**n, 24) is None for n in range(-5, 6))
    found = [parts(float(np.float32(c)), 24) for c in np.linspace(1.1, 1.9, 500)]
    assert 0.8 < sum(f is not None for f in found) / 500 < 1


DIVISORS = [3.0, 7.0, -49.0, 1000.0, 0.1, 1e-7, 16777215.0, 3e11, 1e-30]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("c", DIVISORS)
def test_quotients_are_those_of_the_divider(dtype: str, c: float) -> None:
    kind, whole = {"f32": (np.float32, np.uint32), "f64": (np.float64, np.uint64)}[dtype]
    bits = 8 * np.dtype(kind).itemsize
    rng = np.random.default_rng(7)
    x = rng.integers(0, 2**bits, 40_000, np.uint64, endpoint=False) if bits == 32 else None
    x = (rng.integers(0, 2**64, 40_000, np.uint64) if x is None else x).astype(whole)
    x[:10_000] &= whole((1 << (bits - 6)) - 1)  # the smallest, among which no bit may be lost
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(kind).max, np.finfo(kind).tiny]
    x = np.concatenate([x.view(kind), np.arange(1, 2000, dtype=kind), np.array(special, kind)])
    x = np.concatenate([x, np.arange(1, 2000).astype(whole).view(kind)])  # subnormal
    op = dt.op(f"y[i] = x[i] / {c!r}")
    with np.errstate(all="ignore"):
        want = x / kind(c)
    got = op(x)
    same = (got.view(whole) == want.view(whole)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), (x[~same][:5], got[~same][:5], want[~same][:5])


def test_wide_vectors_multiply() -> None:
    from diptych.codegen.kernels import compile_op

    if not host_target().avx512:
        pytest.skip("vectors of 512 bits")
    code = compile_op(dt.op("y[i] = x[i] / 3"), [(dt.f32, (1024,))]).asm
    assert "vfmadd" in code
    assert "vfmadd" not in compile_op(dt.op("y[i] = x[i] / 4"), [(dt.f32, (1024,))]).asm
