"""x ** n for a number n that the program gives: a few multiplications; of floats within 2 ulp."""

from __future__ import annotations

import math

from .lanes import Lanes

GREATEST = 64
"""Beyond, more multiplications than a logarithm and an exponential take."""


def constant_power(x: Lanes, n: float) -> Lanes | None:
    """x ** n as C's pow, or None where multiplications are no better than the general function.

    The multiplications never overflow or lose a small number before the result does.
    """
    if n == 0.5:  # pow(-0.0, 0.5) is 0.0 and pow(-inf, 0.5) inf; square roots differ there
        return x.eq(-math.inf).choose(math.inf, (x + 0.0).call("sqrt"))
    if not abs(n) <= GREATEST or n != int(n):
        return None
    if -2 <= n <= 4:
        return _plain(x, int(n))
    if not x.double:
        return _in_double(x, int(n))
    return _compensated(x, int(n)) if n > 0 and x.unit.target.fma else None


def _plain(x: Lanes, n: int) -> Lanes:
    """Each product rounded: at most 1.92 ulp for 4 and -2, less for the others."""
    return product_of(1.0 / x if n < 0 else x, abs(n))


def _in_double(x: Lanes, n: int) -> Lanes:
    """f32 by products of f64, whose rounding errors are too small to matter."""
    power = product_of(x.to_double(), abs(n))
    return (1.0 / power if n < 0 else power).to_single()


def product_of(x: Lanes, n: int) -> Lanes:
    """n factors x, by squaring."""
    if n == 0:
        return x.constant(1)
    power = x
    for bit in f"{n:b}"[1:]:
        power = power * power
        power = power * x if bit == "1" else power
    return power


def _compensated(x: Lanes, n: int) -> Lanes:
    """hi + lo = x ** n, each product with its rounding error.

    Where hi is infinite lo is meaningless, and where lo is 0 the sum may lose the sign of -0.0.
    """
    hi, lo = x, x.constant(0.0)
    for bit in f"{n:b}"[1:]:
        square, error = hi.two_product(hi)
        hi, lo = square, (hi * lo).fma(2.0, error)
        if bit == "1":
            product, error = hi.two_product(x)
            hi, lo = product, lo.fma(x, error)
    whole = hi.make(hi.ib.and_(lo.ne(0.0).llvm, hi.abs().lt(math.inf).llvm))
    return whole.choose(hi + lo, hi)
