"""x ** y of floats, by a logarithm of twice the precision, and of integers, by squaring.

f32 goes through f64, whose own log and exp are far more exact than needed there.
"""

from __future__ import annotations

import math

import llvmlite.ir as ir

from .elementary_exp import DOUBLE, _clamped, _reduce, _scaled, _split, exp, log
from .frame import Unit
from .lanes import Lanes
from .values import constant, lanes_of, like

_LN2_TAIL = 5.497923018708371e-14  # ln 2 - _LN2_HEAD
_LN2_HEAD = 0.6931471805598903  # 42 bits: a multiple by an exponent is exact


def power(x: Lanes, y: Lanes) -> Lanes:
    """x ** y as C's pow."""
    size = x.abs()
    if x.double:
        magnitude = _power_of_positive(size, y)
    else:
        magnitude = exp(y.to_double() * log(size.to_double())).to_single()
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


def _log_twice(x: Lanes) -> tuple[Lanes, Lanes]:
    """hi + lo = log x to some 68 bits: 2s (1 + z/3 + z^2/5 + ...), s = (m-1)/(m+1), z = s^2."""
    k, m = _split(x, DOUBLE)
    f = m - 1.0
    u, u_low = m.two_sum(1.0)
    s = f / u
    p, e = s.two_product(u)
    s_low = (((f - p) - e) - s * u_low) / u
    z, z_low = s.two_product(s)
    z_low = z_low + 2.0 * s * s_low
    tail = z.polynomial([1 / (2 * j + 5) for j in range(13)])  # 1/5 + z/7 + ...
    p, e = z.two_product(tail)
    third = 1 / 3
    q, q_low = p.two_sum(third)
    q_low = q_low + e + z_low * tail + 1.850371707708594e-17  # 1/3 - third
    p, e = z.two_product(q)  # z/3 + z^2/5 + ...
    e = e + z * q_low + z_low * q
    h, h_low = s.two_product(p)
    h_low = h_low + s * e + s_low * p
    hi, lo = s.two_sum(h)
    lo = lo + h_low + s_low
    hi, lo = hi * 2.0, lo * 2.0
    total, error = (k * _LN2_HEAD).two_sum(hi)
    return total, error + (lo + k * _LN2_TAIL)


def _power_of_positive(x: Lanes, y: Lanes) -> Lanes:
    hi, lo = _log_twice(x)
    p, e = y.two_product(hi)
    e = e + y * lo
    inside = p.abs().lt(800.0)
    e = inside.choose(e, e.constant(0.0))
    n, r = _reduce(_clamped(p, DOUBLE.exp_low, DOUBLE.exp_high), DOUBLE)
    r = r + e
    return _scaled((r * r).fma(r.polynomial(DOUBLE.exp), r) + 1.0, n, DOUBLE)


def integer_power(unit: Unit, ib: ir.IRBuilder, signed: bool, a: ir.Value, b: ir.Value) -> ir.Value:
    """a ** b modulo 2**bits by squaring; 0 for a negative b."""
    typ, n = a.type, lanes_of(a)
    zero, one = like(a, 0), like(a, 1)
    negative = ib.icmp_signed("<", b, zero) if signed else constant(ir.IntType(1), 0, n)
    exponent = ib.select(negative, zero, b)
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
