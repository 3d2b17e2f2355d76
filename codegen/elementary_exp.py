"""exp, log, tanh and sigmoid.

Range reduction as in fdlibm (Sun Microsystems, 1993); the coefficients of log are fdlibm's and
FreeBSD's, those of exp are of its series, which is long enough on |r| <= ln(2)/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .lanes import Lanes


@dataclass(frozen=True, slots=True)
class Format:
    """The constants of a float type. ln2 is split so that n * ln2_hi is exact for exponents n."""

    mantissa: int
    bias: int
    shift: float  # 1.5 * 2**mantissa: adding it rounds to an integer, found in the low bits
    ln2_hi: float
    ln2_lo: float
    exp: tuple[float, ...]  # (e**r - 1 - r) / r**2
    exp_low: float  # below: e**x is 0
    exp_high: float  # above: e**x is infinite
    log: tuple[float, ...]  # (log(1+f) - 2s) / (s**3 ...), s = f / (2+f), in s**2
    sqrt_half: int  # the bits of sqrt(1/2)
    tiny: float  # the least normal number
    tanh_one: float  # above: tanh is 1


def _series(last: int) -> tuple[float, ...]:
    return tuple(1 / math.factorial(k) for k in range(2, last + 1))


SINGLE = Format(
    23, 127, 1.5 * 2**23, 0.693359375, -2.1219444005469057e-4, _series(7), -104.0, 89.0,
    (0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841),
    0x3F3504F3, 2.0**-126, 10.0,
)  # fmt: skip
DOUBLE = Format(
    52, 1023, 1.5 * 2**52, 6.93147180369123816490e-01, 1.90821492927058770002e-10, _series(13),
    -746.0, 710.0,
    (6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
     2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
     1.479819860511658591e-01),
    0x3FE6A09E667F3BCD, 2.0**-1022, 20.0,
)  # fmt: skip


def format_of(x: Lanes) -> Format:
    """The constants for the type of x."""
    return DOUBLE if x.double else SINGLE


def _reduce(x: Lanes, c: Format) -> tuple[Lanes, Lanes]:
    """n as an integer and r with x = n ln 2 + r, |r| <= ln(2)/2."""
    shifted = x.fma(1 / math.log(2), c.shift)
    n = shifted - c.shift
    r = n.fma(-c.ln2_lo, n.fma(-c.ln2_hi, x))
    return shifted.bits() - x.constant(c.shift).bits(), r


def _power_of_two(n: Lanes, c: Format) -> Lanes:
    """2**n for exponents of normal numbers."""
    return ((n + c.bias) << c.mantissa).as_float()


def _clamped(x: Lanes, low: float, high: float) -> Lanes:
    """NaN stays."""
    return x.gt(high).choose(high, x.lt(low).choose(low, x))


def _less_one(r: Lanes, c: Format) -> Lanes:
    """e**r - 1 for the reduced r."""
    return (r * r).fma(r.polynomial(c.exp), r)


def exp(x: Lanes) -> Lanes:
    """e**x"""
    c = format_of(x)
    n, r = _reduce(_clamped(x, c.exp_low, c.exp_high), c)
    return _scaled(_less_one(r, c) + 1.0, n, c)


def _scaled(y: Lanes, n: Lanes, c: Format) -> Lanes:
    """y * 2**n, in two steps, so that results may be subnormal or infinite."""
    half = n >> 1
    return y * _power_of_two(half, c) * _power_of_two(n - half, c)


def _split(x: Lanes, c: Format) -> tuple[Lanes, Lanes]:
    """k as a float and m with x = 2**k m, sqrt(1/2) <= m < sqrt(2), for finite x > 0."""
    small = x.lt(c.tiny)
    x = small.choose(x * 2.0 ** (c.mantissa + 2), x)
    one = c.bias << c.mantissa
    bits = x.bits() + (one - c.sqrt_half)
    k = ((bits >> c.mantissa) - c.bias).to_float()
    k = small.choose(k - float(c.mantissa + 2), k)
    m = ((bits & ((1 << c.mantissa) - 1)) + c.sqrt_half).as_float()
    return k, m


def log(x: Lanes) -> Lanes:
    """The natural logarithm; -inf at 0, NaN below."""
    c = format_of(x)
    k, m = _split(x, c)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    rest = z * z.polynomial(c.log)
    half = f * f * 0.5
    y = k.fma(c.ln2_hi, f - (half - k.fma(c.ln2_lo, s * (half + rest))))
    y = x.eq(0.0).choose(-math.inf, x.lt(0.0).choose(math.nan, y))
    return x.lt(math.inf).choose(y, x)


def _ratio(a: Lanes, a_low: Lanes, b: Lanes, b_low: Lanes) -> Lanes:
    """(a + a_low) / (b + b_low), almost rounded once: a quotient and its correction."""
    inverse = 1.0 / b
    q = a * inverse
    p, error = q.two_product(b)
    rest = ((a - p) - error) + (a_low - q * b_low)
    return q + rest * inverse


def tanh(x: Lanes) -> Lanes:
    """The hyperbolic tangent: t / (t + 2) with t = e**2|x| - 1, both to twice the precision."""
    c = format_of(x)
    n, r = _reduce(_clamped(x.abs(), 0.0, c.tanh_one) * 2.0, c)
    scale = _power_of_two(n, c)
    above = scale - 1.0  # 0, or at least as large as what is added to it
    p = _less_one(r, c)
    t = scale.fma(p, above)
    low = scale * p - (t - above)
    b, b_low = t.two_sum(2.0)
    return _ratio(t, low, b, b_low + low).with_sign_of(x)


def sigmoid(x: Lanes) -> Lanes:
    """1 / (1 + e**-x): of e = e**-|x|, which never overflows, 1 or e over 1 + e."""
    c = format_of(x)
    n, r = _reduce(_clamped(-x.abs(), c.exp_low, 0.0), c)
    p = _less_one(r, c)
    small = n.lt(-60)  # 1 + e is 1, and e may be subnormal
    scale = _power_of_two(small.choose(-60, n), c)
    e = scale.fma(p, scale)
    low = scale * p - (e - scale)
    b = e + 1.0
    b_low = ((1.0 - b) + e) + low
    right = x.ge(0.0)
    q = _ratio(right.choose(1.0, e), right.choose(0.0, low), b, b_low)
    tail = x.make(x.ib.and_(small.llvm, x.lt(0.0).llvm))
    return tail.choose(_scaled(p + 1.0, n, c), q)
