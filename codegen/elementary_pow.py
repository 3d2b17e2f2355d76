"""x ** y of floats, by a logarithm of twice the precision, and of integers, by squaring.

f32 goes through f64, by polynomials that are just as exact as f32 needs (minimax fits by Remez).
"""

from __future__ import annotations

import math

import llvmlite.ir as ir

from .elementary_exp import EXP2_SINGLE, EXP_DOUBLE
from .elementary_format import DOUBLE, clamped, nearest, reciprocal, reduced, scaled, split
from .elementary_rare import where_any
from .frame import Unit
from .lanes import Lanes
from .values import constant, frozen, lanes_of, like

_LN2_TAIL = 5.497923018708371e-14  # ln 2 - _LN2_HEAD
_LN2_HEAD = 0.6931471805598903  # 42 bits: a multiple by an exponent is exact
_LOG2 = (  # log2(1+f) / f on [-1/4, 1/2], relative error 2**-33
    1.442695040995198, -0.7213475168435609, 0.48089828195820794, -0.3606743606612105,
    0.2885460421556916, -0.24042819807683735, 0.20581995458814228, -0.18031422538334604,
    0.16466037969379616, -0.15287756851155007, 0.11550500933165374, -0.04495048009549922,
)  # fmt: skip
_TAIL = (  # ((log(1+f) / 2s - 1) / z - 1/3) / z, s = f / (2 + f), z = s**2; 2**-69 of 1
    0.1999999999999986, 0.14285714285789725, 0.11111111095427281, 0.09090910781254598,
    0.07692202386957064, 0.06670599360670224, 0.05795766548673259, 0.06288285140606478,
)  # fmt: skip


def power(x: Lanes, y: Lanes) -> Lanes:
    """x ** y as C's pow."""
    size = x.abs()
    magnitude = _of_positive(size, y) if x.double else _of_positive_single(size, y)
    ib = x.ib
    inside = ib.and_(x.gt(0.0).llvm, x.lt(math.inf).llvm)
    plain = ib.and_(inside, y.abs().lt(math.inf).llvm)
    (result,) = where_any(
        x, ib.not_(plain), lambda: [_special(x, y, size, magnitude).llvm], [magnitude.llvm]
    )
    return result


def _special(x: Lanes, y: Lanes, size: Lanes, magnitude: Lanes) -> Lanes:
    """The power, given that of |x|, whatever the arguments are."""
    whole, odd = _parity(y)
    negative = x.lt(0.0)
    signed = x.make(x.ib.and_(negative.llvm, odd.llvm)).choose(-magnitude, magnitude)
    fraction = x.make(x.ib.and_(negative.llvm, x.ib.not_(whole.llvm)))
    result = fraction.choose(math.nan, signed)
    # Zeros and infinities of x, where the logarithm was infinite or NaN.
    flipped = x.make(x.ib.xor(size.eq(0.0).llvm, y.lt(0.0).llvm)).choose(0.0, x.constant(math.inf))
    minus_odd = x.make(x.ib.and_(x.bits().lt(0).llvm, odd.llvm))
    edge = minus_odd.choose(-flipped, flipped)
    at_edge = x.make(x.ib.or_(size.eq(0.0).llvm, size.eq(math.inf).llvm))
    result = at_edge.choose(edge, result)
    # |y| infinite: 0, 1 or inf by |x|.
    grows = x.make(x.ib.xor(size.lt(1.0).llvm, y.gt(0.0).llvm))
    extreme = size.eq(1.0).choose(1.0, grows.choose(math.inf, x.constant(0.0)))
    result = y.abs().eq(math.inf).choose(extreme, result)
    nan = x.make(x.ib.fcmp_unordered("uno", x.llvm, y.llvm))
    result = nan.choose(x + y, result)
    one = x.make(x.ib.or_(x.eq(1.0).llvm, y.eq(0.0).llvm))
    return one.choose(1.0, result)


def _parity(y: Lanes) -> tuple[Lanes, Lanes]:
    """Is y an integer, and an odd one? Found in the bits, for every size of y."""
    c = 52 if y.double else 23
    bias = 1023 if y.double else 127
    width = 64 if y.double else 32
    bits = y.bits() & ((1 << (width - 1)) - 1)
    exponent = (bits >> c) - bias
    # The bit of weight 1 is the lowest of the mantissa where the exponent is c.
    place = y.constant(0.0).bits() + c - exponent
    place = place.lt(0).choose(0, place)
    beyond = place.gt(c)
    place = beyond.choose(0, place)
    mantissa = (bits & ((1 << c) - 1)) | (1 << c)
    one = place.constant(1)
    unit = mantissa & (one << place)
    below = mantissa & ((one << place) - 1)
    ib = y.ib
    inside = ib.not_(beyond.llvm)
    whole = ib.or_(ib.and_(inside, below.eq(0).llvm), y.eq(0.0).llvm)
    odd = ib.and_(
        ib.and_(ib.and_(inside, below.eq(0).llvm), unit.ne(0).llvm), exponent.lt(c + 1).llvm
    )
    return y.make(whole), y.make(odd)


def _of_positive_single(x: Lanes, y: Lanes) -> Lanes:
    """x ** y of f32, for finite x > 0: 2 ** (y log2 x) in f64."""
    k, m = split(x)
    f = (m - 1.0).to_double()
    t = y.to_double() * f.fma(f.polynomial(_LOG2), k.to_double())
    t = clamped(t, -160.0, 160.0)
    n = nearest(t)
    return scaled((t - n).polynomial((1.0, *EXP2_SINGLE)), n).to_single()


def _log_twice(x: Lanes) -> tuple[Lanes, Lanes]:
    """hi + lo = log x to some 64 bits: 2s (1 + z/3 + z^2/5 + ...), s = (m-1)/(m+1), z = s^2."""
    k, m = split(x)
    f, u = m - 1.0, m + 1.0
    u_low = m - (u - 1.0)
    inverse = reciprocal(u)
    s = f * inverse
    p, e = s.two_product(u)
    s_low = (((f - p) - e) - s * u_low) * inverse
    z, z_low = s.two_product(s)
    z_low = z_low + (s * 2.0) * s_low
    h, e = z.two_product(z.constant(1 / 3))
    e = e + z.fma(1.850371707708594e-17, z_low * (1 / 3))  # 1/3 in two parts
    tail = (z * z) * z.polynomial(_TAIL)
    total = h + tail
    low = (tail - (total - h)) + e
    g, g_low = s.two_product(total)
    hi = s + g
    lo = (g - (hi - s)) + (s.fma(low, g_low) + s_low.fma(total, s_low))
    hi, lo = hi * 2.0, lo * 2.0
    whole = k * _LN2_HEAD  # 0 or larger than hi
    total = whole + hi
    return total, (hi - (total - whole)) + k.fma(_LN2_TAIL, lo)


def _of_positive(x: Lanes, y: Lanes) -> Lanes:
    """x ** y of f64, for finite x > 0."""
    hi, lo = _log_twice(x)
    y = clamped(y, -(2.0**64), 2.0**64)  # beyond it x ** y is 0, 1 or inf
    p, e = y.two_product(hi)
    e = e + y * lo
    e = p.abs().lt(800.0).choose(e, e.constant(0.0))
    n, r = reduced(clamped(p, DOUBLE.exp_low, DOUBLE.exp_high))
    return scaled((r + e).polynomial((1.0, 1.0, *EXP_DOUBLE)), n)


def integer_power(unit: Unit, ib: ir.IRBuilder, signed: bool, a: ir.Value, b: ir.Value) -> ir.Value:
    """a ** b modulo 2**bits by squaring; 0 for a negative b."""
    typ, n = a.type, lanes_of(a)
    zero, one = like(a, 0), like(a, 1)
    negative = ib.icmp_signed("<", b, zero) if signed else constant(ir.IntType(1), 0, n)
    exponent = frozen(ib, ib.select(negative, zero, b))
    before, again, after = (
        ib.block,
        ib.append_basic_block("power"),
        ib.append_basic_block("power.end"),
    )
    ib.branch(again)
    ib.position_at_end(again)
    result, base, left = (ib.phi(typ) for _ in range(3))
    odd = ib.icmp_unsigned("!=", ib.and_(left, one), zero)
    product = ib.select(odd, ib.mul(result, base), result)
    square = ib.mul(base, base)
    rest = ib.lshr(left, one)
    steps = ((result, one, product), (base, a, square), (left, exponent, rest))
    for phi, first, following in steps:
        phi.add_incoming(first, before)
        phi.add_incoming(following, again)
    more = ib.icmp_unsigned("!=", rest, zero)
    if n > 1:
        mask = ir.IntType(n)
        more = ib.icmp_unsigned("!=", ib.bitcast(more, mask), mask(0))
    ib.cbranch(more, again, after)
    ib.position_at_end(after)
    return ib.select(negative, zero, product)
