"""Square and cube roots and their inverses."""

from __future__ import annotations

import math

from . import elementary_avx512 as avx512
from .elementary_format import nearest, power_of_two, scaled, split
from .lanes import Lanes

_INVERSE_CUBE_ROOT = (  # m**(-1/3) on [3/8, 3]; minimax fit (Remez), relative error 2**-7
    1.855043020232297, -1.630140036631498, 1.069835104121593, -0.3413952395710327,
    0.04102088867218526,
)  # fmt: skip


def sqrt(x: Lanes) -> Lanes:
    """The square root, rounded correctly."""
    return x.call("sqrt")


def rsqrt(x: Lanes) -> Lanes:
    """1 / sqrt(x): an estimate and one step of third (f64: fifth) order, or as it is written."""
    if not x.unit.target.avx512:
        return 1.0 / sqrt(x)
    y = avx512.inverse_root(x)
    e = (x * y).fma(-y, 1.0)  # x = (1 - e) / y**2
    series = (0.5, 0.375, 0.3125, 0.2734375) if x.double else (0.5, 0.375)
    better = (y * e).fma(e.polynomial(series), y)
    return x.make(x.ib.fcmp_unordered("uno", e.llvm, e.llvm)).choose(y, better)  # of 0 and inf


def cbrt(x: Lanes) -> Lanes:
    """The cube root: of m in [3/8, 3) by its inverse, whose steps need no division."""
    size = x.abs()
    k, m = split(size)
    n = nearest(k, 1 / 3)
    m = m * power_of_two(k - n * 3.0)
    y = m.polynomial(_INVERSE_CUBE_ROOT)
    for _ in range(2 if x.double else 1):
        e = (m * y).fma(-(y * y), 1.0)
        y = (y * e).fma(e.polynomial((1 / 3, 2 / 9, 14 / 81)), y)
    square = y * y
    t = m * square
    t = (t * t).fma(-t, m).fma(square * (1 / 3), t)
    t = scaled(t, n) if x.unit.target.avx512 else t * power_of_two(n)
    same = x.ib.or_(x.eq(0.0).llvm, x.ib.not_(size.lt(math.inf).llvm))
    return x.make(same).choose(x, t.with_sign_of(x))
