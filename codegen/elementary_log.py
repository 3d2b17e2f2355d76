"""log, log2, log1p and softplus: k ln 2 + log(1 + f), by a series in f / (2 + f) as in fdlibm.

The coefficients are minimax fits (Remez) made at 40 digits.
"""

from __future__ import annotations

import math

from . import elementary_avx512 as avx512
from .elementary_exp import less_one
from .elementary_format import clamped, format_of, power_of_two, reduced, scaled, split
from .lanes import Lanes

# ((log(1+f) - 2s) / s**3 in s**2, s = f / (2 + f) in [-1/7, 1/5]; relative errors 2**-34, 2**-55
_SINGLE = (0.666666630612411, 0.4000086723099634, 0.2850679932831936, 0.2410345724081318)
_DOUBLE = (
    0.666666666666728, 0.3999999999611069, 0.28571429404624743, 0.2222213772404783,
    0.18186388487013222, 0.15249529767428316, 0.15373383340766622,
)  # fmt: skip


def _parts(f: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """a, b, c with log(1 + f) = f - (a - b * c): a is f**2 / 2."""
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    return half, s, z.fma(z.polynomial(_DOUBLE if f.double else _SINGLE), half)


def _log(k: Lanes, f: Lanes) -> Lanes:
    """k ln 2 + log(1 + f)"""
    c = format_of(f)
    half, s, rest = _parts(f)
    return k.fma(c.ln2_hi, f - (half - k.fma(c.ln2_lo, s * rest)))


def _finished(x: Lanes, y: Lanes) -> Lanes:
    """y, the logarithm of x, where x is positive and finite; -inf at 0, NaN below."""
    if x.unit.target.avx512:  # where the parts of x have led there
        return y
    y = x.eq(0.0).choose(-math.inf, x.lt(0.0).choose(math.nan, y))
    return x.lt(math.inf).choose(y, x)


def log(x: Lanes) -> Lanes:
    """The natural logarithm; -inf at 0, NaN below."""
    k, m = split(x)
    return _finished(x, _log(k, m - 1.0))


def log2(x: Lanes) -> Lanes:
    """The logarithm to base 2, exact for powers of two; -inf at 0, NaN below."""
    k, m = split(x)
    f = m - 1.0
    half, s, rest = _parts(f)
    return _finished(x, (f - (half - s * rest)).product_and(1 / math.log(2), k))


def _log_of_sum(u: Lanes, low: Lanes) -> Lanes:
    """log(u + low) for positive finite u, |low| below a unit in its last place."""
    k, m = split(u)
    if u.unit.target.avx512:
        low = avx512.scale(low, -k)
    else:  # at the last exponent it does not count
        low = low * power_of_two(-clamped(k, None, float(format_of(u).bias)))
    return _log(k, (m - 1.0) + low)


def log1p(x: Lanes) -> Lanes:
    """log(1 + x), exact where x is small; -inf at -1, NaN below."""
    y = _log_of_sum(*x.two_sum(1.0))
    y = x.eq(-1.0).choose(-math.inf, x.lt(-1.0).choose(math.nan, y))
    same = x.ib.or_(x.eq(0.0).llvm, x.ib.not_(x.lt(math.inf).llvm))  # 0 with its sign, inf, NaN
    return x.make(same).choose(x, y)


def softplus(x: Lanes) -> Lanes:
    """log(1 + e**x): max(x, 0) + log(1 + e**-|x|), with the error of e**-|x| carried along."""
    n, r = reduced(clamped(-x.abs(), format_of(x).exp_low, None))
    p = less_one(r)
    s = p + 1.0
    e, e_low = scaled(s, n), scaled(p - (s - 1.0), n)
    u = e + 1.0
    y = _log_of_sum(u, (e - (u - 1.0)) + e_low)
    return x.lt(0.0).choose(0.0, x) + y
