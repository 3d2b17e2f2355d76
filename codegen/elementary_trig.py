"""sin and cos, for all arguments.

The nearest multiple of pi/2 is subtracted in three parts (Cody and Waite): by fused operations,
of which the first is exact and the others round once, or else in f64 and in parts of 33 bits
(fdlibm's). From about a million on (f32: 30,000) the exact reduction takes over, in its lanes.
The polynomials are fdlibm's and FreeBSD's.
"""

from __future__ import annotations

import math

import llvmlite.ir as ir

from .elementary_payne_hanek import payne_hanek
from .elementary_rare import where_any
from .lanes import Lanes
from .values import I32, frozen

FAST = 1.6e6  # |x| below which the quotient has at most 20 bits
FAST_SINGLE = 3e4  # the same for f32, where the quotient has 15 bits
_FUSED = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
_FUSED_SINGLE = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_PARTS = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624871116645580e-21)
_REST = 8.47842766036889956997e-32
_SIN = (
    -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
    2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10,
)  # fmt: skip
_COS = (
    1.0, -0.5, 4.16666666666666019037e-02, -1.38888888888741095749e-03,
    2.48015872894767294178e-05, -2.75573143513906633035e-07, 2.08757232129817482790e-09,
    -1.13596475577881948265e-11,
)  # fmt: skip
_SINF = (-0.166666666416265235595, 0.0083333293858894631756, -0.000198393348360966317347,
         0.0000027183114939898219064)  # fmt: skip
_COSF = (1.0, -0.5, 0.0416666233237390631894, -0.00138867637746099294692,
         0.0000243904487962774090654)  # fmt: skip


def sin(x: Lanes) -> Lanes:
    """The sine of radians; NaN at infinity. The sign of zero is kept."""
    y, quotient = _sin_or_cos(x.abs(), 0)
    return _signed(y, (quotient << 30 if not x.double else quotient << 62) ^ x.bits())


def cos(x: Lanes) -> Lanes:
    """The cosine of radians; NaN at infinity."""
    y, quotient = _sin_or_cos(x.abs(), 1)
    return _signed(y, quotient << (62 if x.double else 30))


def _sin_or_cos(size: Lanes, ahead: int) -> tuple[Lanes, Lanes]:
    """The sine of size + ahead pi/2 but for the sign that bit 1 of the quotient tells."""
    quotient, r = _reduced(size)
    quotient = quotient + ahead if ahead else quotient
    z = r * r
    s = (r * z).fma(z.polynomial(_SIN if r.double else _SINF), r)
    c = z.polynomial(_COS if r.double else _COSF)
    return (quotient & 1).eq(0).choose(s, c), quotient


def _signed(y: Lanes, bits: Lanes) -> Lanes:
    """y, negated where the first of the bits is set."""
    sign = -(1 << (63 if y.double else 31))
    return (y.bits() ^ (bits & sign)).as_float()


def _reduced(size: Lanes) -> tuple[Lanes, Lanes]:
    """An integer n (modulo 4) and r with size = n pi/2 + r, |r| <= pi/4 and a little more."""
    if not (size.double or size.unit.target.fma):
        n, r = _reduced(size.to_double())
        return n.to_int(32), r.to_single()
    size = size.make(frozen(size.ib, size.llvm))
    fast = size.lt(FAST if size.double else FAST_SINGLE).llvm  # NaN is not
    large = size.ib.not_(fast)
    quick = [part.llvm for part in _cody_waite(size)]

    def slow() -> list[ir.Value]:
        if size.double:
            return _by_lane(size, large, list(quick))
        n, r = _reduced(size.to_double())
        exact = (n.to_int(32).llvm, r.to_single().llvm)
        return [size.ib.select(large, new, old) for new, old in zip(exact, quick, strict=True)]

    n, r = where_any(size, large, slow, quick)
    return n, r


def _cody_waite(x: Lanes) -> tuple[Lanes, Lanes]:
    shift = 1.5 * (2.0**52 if x.double else 2.0**23)
    shifted = x.fma(2 / math.pi, shift)
    n = shifted - shift
    if x.unit.target.fma:
        for part in _FUSED if x.double else _FUSED_SINGLE:
            x = n.fma(-part, x)
        return shifted.bits(), x
    a = x - n * _PARTS[0]
    b, b_error = n.two_product(n.constant(_PARTS[1]))
    hi, error = a.two_sum(-b)
    return shifted.bits(), hi + ((error - b_error) - (n * _PARTS[2] + n * _REST))


def _by_lane(x: Lanes, large: ir.Value, parts: list[ir.Value]) -> list[ir.Value]:
    """The parts, replaced by those of the exact reduction in lanes that are large."""
    fn, ib, n = payne_hanek(x.unit), x.ib, x.count
    for lane in range(n):
        one = I32(lane)
        item = x.llvm if n == 1 else ib.extract_element(x.llvm, one)
        its = large if n == 1 else ib.extract_element(large, one)
        before, there, after = (
            ib.block,
            ib.append_basic_block("lane"),
            ib.append_basic_block("next"),
        )
        ib.cbranch(its, there, after)
        ib.position_at_end(there)
        found = ib.call(fn, [item])
        new = []
        for k, part in enumerate(parts):
            value = ib.extract_value(found, k)
            new.append(value if n == 1 else ib.insert_element(part, value, one))
        ib.branch(after)
        ib.position_at_end(after)
        for k, part in enumerate(parts):
            phi = ib.phi(part.type)
            phi.add_incoming(part, before)
            phi.add_incoming(new[k], there)
            parts[k] = phi
    return parts
