"""x / c for a number c that the program gives, rounded correctly, without the divider.

With a register of sixteen lanes the divider takes ten cycles, a multiplication and a fused one take
one. 1/c is known in advance to twice the bits of x, as hi + lo of one sign, and x/c is
fma(x, hi, x*lo). That is off by less than 2**(2-2p) of x/c before its one rounding (p bits have a
significand), so it is rounded as x/c unless x/c lies so near a number halfway between two floats.
Such x are the solutions of a congruence, few, and tried when the code is made (the method of
Brisebarre, Muller and Raina, "Accelerating correctly rounded floating-point division when the
divisor is known in advance", 2004). Where x is so small that x*lo loses bits the divider is asked.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

from .elementary_rare import where_any
from .lanes import Lanes

_SMALL = {24: 0x60000000, 53: 0x6000000000000000}
"""Bits of the exponent that are 0 where |x| is below 2**-63, in f64 below 2**-511."""
_RANGE = {24: 40, 53: 400}
"""Powers of two between which c lies; then that is small enough."""
WIDE = 512
"""Bits of a vector from which this is quicker than to divide."""


def quotient(x: Lanes, c: float) -> Lanes:
    """x / c, for what `parts` has parts of."""
    p = _bits(x)
    found = parts(c, p)
    assert found is not None
    hi, lo = found
    size = x.bits() & ((1 << (63 if x.double else 31)) - 1)
    small = x.ib.and_((size & _SMALL[p]).eq(0).llvm, size.ne(0).llvm)
    (answer,) = where_any(x, small, lambda: [(x / c).llvm], [x.fma(hi, x * lo).llvm])
    return answer


def pays(x: Lanes, c: float) -> bool:
    """Is it quicker than to divide, and right for all x?"""
    p = _bits(x)
    wide = x.count * (64 if x.double else 32) >= WIDE
    near = 2.0 ** -_RANGE[p] < abs(c) < 2.0 ** _RANGE[p]
    return wide and near and x.unit.target.fma and parts(c, p) is not None


@cache
def parts(c: float, p: int) -> tuple[float, float] | None:
    """hi and lo of one sign, whose sum is nearly 1/c, for floats of p bits; None where that does
    not give every quotient as it should be, and for powers of two, which need no such thing."""
    exact = 1 / Fraction(abs(c))
    hi = _rounded(exact, p, down=True)
    lo = _rounded(exact - hi, p)
    if not lo or any(
        _rounded(x * hi + _rounded(x * lo, p), p) != _rounded(x * exact, p) for x in _hard(c, p)
    ):
        return None
    sign = -1.0 if c < 0 else 1.0
    return sign * float(hi), sign * float(lo)


def _bits(x: Lanes) -> int:
    return 53 if x.double else 24


def _hard(c: float, p: int) -> list[int]:
    """The significands x in [2**(p-1), 2**p) for which x/c may lie too near to a midpoint.

    With C the significand of c, and M, odd, that of a midpoint, either x < C and
    2**(p+1) x - M C = d, or x >= C and 2**p x - M C = d, where |d| < 8.
    """
    significand = Fraction(abs(c))
    while significand.denominator > 1 or significand < 1 << (p - 1):
        significand *= 2
    while significand >= 1 << p:
        significand /= 2
    whole = int(significand)
    shared = whole & -whole
    found = []
    for q in (p, p + 1):
        modulus = (1 << q) // shared
        for d in range(-7, 8):
            if not d or d % shared:  # x/c is never a midpoint
                continue
            first = -(d // shared) * pow(whole // shared, -1, modulus) % modulus
            for m in range(first, 1 << (p + 1), modulus):
                x = (m * whole + d) >> q
                if m >= 1 << p and 1 << (p - 1) <= x < 1 << p:
                    found.append(x)
    return found


def _rounded(x: Fraction | int, p: int, *, down: bool = False) -> Fraction:
    """A positive number, or 0, to p bits: to the nearest, ties to even, or towards 0."""
    x = Fraction(x)
    if not x:
        return x
    shift = p - (x.numerator.bit_length() - x.denominator.bit_length())
    scaled = x * Fraction(2) ** shift
    while scaled >= 1 << p:
        scaled, shift = scaled / 2, shift - 1
    while scaled < 1 << (p - 1):
        scaled, shift = scaled * 2, shift + 1
    whole = scaled.numerator // scaled.denominator if down else round(scaled)
    return whole / Fraction(2) ** shift
