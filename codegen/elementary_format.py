"""Floats taken apart and put together: their formats, reduction by ln 2, powers of two."""

from __future__ import annotations

import math
from dataclasses import dataclass

from . import elementary_avx512 as avx512
from .lanes import Lanes


@dataclass(frozen=True, slots=True)
class Format:
    """The constants of a float type.

    ln2 is split so that n * ln2_hi is exact for exponents n, and both parts are positive.
    """

    mantissa: int
    bias: int
    shift: float  # 1.5 * 2**mantissa: adding it rounds to an integer, found in the low bits
    ln2_hi: float
    ln2_lo: float
    exp_low: float  # below: e**x is 0
    exp_high: float  # above: e**x is infinite
    three_quarters: int  # the bits of 0.75
    tiny: float  # the least normal number
    one_alone: float  # n above which 1 - 2**-n is 1


SINGLE = Format(
    23, 127, 1.5 * 2**23, 6.93138122558593750e-01, 9.05800061445916072e-06, -104.0, 89.0,
    0x3F400000, 2.0**-126, 30.0,
)  # fmt: skip
DOUBLE = Format(
    52, 1023, 1.5 * 2**52, 6.93147180369123816490e-01, 1.90821492927058770002e-10, -746.0, 710.0,
    0x3FE8000000000000, 2.0**-1022, 60.0,
)  # fmt: skip


def format_of(x: Lanes) -> Format:
    """The constants for the type of x."""
    return DOUBLE if x.double else SINGLE


def nearest(x: Lanes, factor: float = 1.0) -> Lanes:
    """x * factor rounded to an integer, for less than 2**22 (f64: 2**51)."""
    shift = format_of(x).shift
    return (x + shift if factor == 1.0 else x.fma(factor, shift)) - shift


def reduced(x: Lanes) -> tuple[Lanes, Lanes]:
    """n, whole, and r with x = n ln 2 + r, |r| <= ln(2)/2."""
    c = format_of(x)
    n = nearest(x, 1 / math.log(2))
    return n, n.fma(-c.ln2_lo, n.fma(-c.ln2_hi, x))


def clamped(x: Lanes, low: float | None, high: float | None) -> Lanes:
    """x, at least `low` and at most `high`. NaN stays."""
    x = x if low is None else x.lt(low).choose(low, x)
    return x if high is None else x.gt(high).choose(high, x)


def power_of_two(n: Lanes) -> Lanes:
    """2**n for whole n that are exponents of normal numbers."""
    c = format_of(n)
    return ((n + (c.shift + c.bias)).bits() << c.mantissa).as_float()


def scaled(y: Lanes, n: Lanes) -> Lanes:
    """y * 2**n for whole n, so that results may be subnormal or infinite."""
    if y.unit.target.avx512:
        return avx512.scale(y, n)
    half = nearest(n, 0.5)
    return y * power_of_two(half) * power_of_two(n - half)


def split(x: Lanes) -> tuple[Lanes, Lanes]:
    """k, whole, and m with x = 2**k m, 0.75 <= m < 1.5, for finite x > 0."""
    c = format_of(x)
    if x.unit.target.avx512:
        k, m = avx512.exponent(x), avx512.significand(x)
        return m.lt(1.0).choose(k + 1.0, k), m
    small = x.lt(c.tiny)
    x = small.choose(x * 2.0 ** (c.mantissa + 2), x)
    one = c.bias << c.mantissa
    bits = x.bits() + (one - c.three_quarters)
    k = ((bits >> c.mantissa) - c.bias).to_float()
    k = small.choose(k - float(c.mantissa + 2), k)
    return k, ((bits & ((1 << c.mantissa) - 1)) + c.three_quarters).as_float()


def reciprocal(x: Lanes) -> Lanes:
    """1 / x of f64 not far from 1, to a unit in the last place; sooner than by the divider."""
    if not x.unit.target.avx512:
        return 1.0 / x
    r = avx512.inverse(x)
    e = r.fma(-x, 1.0)
    r = r.fma(e, r)
    return r.fma(e * e, r)
