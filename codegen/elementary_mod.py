"""Floor division and remainder of floats, as NumPy defines them, on an exact remainder.

The remainder toward zero is exact: long division of the significands, in steps of as many bits as
a 64-bit integer leaves, one lane after the other.
"""

from __future__ import annotations

import llvmlite.ir as ir

from .frame import Unit
from .lanes import Lanes
from .values import F32, F64, I32, I64, frozen


def divide(a: Lanes, b: Lanes) -> Lanes:
    """a // b: (a - r) / b rounded to an integer, r being the remainder toward zero."""
    rest = _remainder(a, b)
    ratio = (a - rest) / b
    ratio = _crosses(rest, b).choose(ratio - 1.0, ratio)
    down = ratio.round("floor")
    whole = (ratio - down).gt(0.5).choose(down + 1.0, down)
    by_sign = a.constant(0.0).with_sign_of(a / b)
    return b.eq(0.0).choose(a / b, ratio.eq(0.0).choose(by_sign, whole))


def modulo(a: Lanes, b: Lanes) -> Lanes:
    """a % b, with the sign of b."""
    rest = _remainder(a, b)
    fixed = _crosses(rest, b).choose(rest + b, rest)
    return rest.eq(0.0).choose(a.constant(0.0).with_sign_of(b), fixed)


def _crosses(rest: Lanes, b: Lanes) -> Lanes:
    """Is the remainder toward zero on the other side of zero than b?"""
    opposite = rest.make(rest.ib.xor(rest.lt(0.0).llvm, b.lt(0.0).llvm))
    return rest.make(rest.ib.and_(opposite.llvm, rest.ne(0.0).llvm))


def _remainder(a: Lanes, b: Lanes) -> Lanes:
    """a - b * trunc(a / b), exactly."""
    fn = _scalar(a.unit, a.double)
    ib = a.ib
    if a.count == 1:
        return a.make(ib.call(fn, [a.llvm, b.llvm]))
    total = a.llvm
    for lane in range(a.count):
        one = I32(lane)
        x, y = (ib.extract_element(v.llvm, one) for v in (a, b))
        total = ib.insert_element(total, ib.call(fn, [x, y]), one)
    return a.make(total)


def _scalar(unit: Unit, double: bool) -> ir.Function:
    key = ("remainder", double)
    if key in unit.functions:
        return unit.functions[key]
    typ, whole = (F64, I64) if double else (F32, I32)
    mantissa, width = (52, 64) if double else (23, 32)
    step = 63 - mantissa  # bits by which a remainder, below 2**(mantissa+1), can be shifted
    name = f"dt.remainder.f{width}"
    fn = ir.Function(unit.module, ir.FunctionType(typ, [typ, typ]), name)
    fn.linkage = "internal"
    fn.attributes.add("noinline")
    unit.functions[key] = fn
    ib = ir.IRBuilder(fn.append_basic_block("entry"))
    x, y = (frozen(ib, arg) for arg in fn.args)
    small, work, loop, done, bad, finish = (
        fn.append_basic_block(n) for n in ("small", "work", "loop", "done", "bad", "finish")
    )

    def magnitude(v: ir.Value) -> ir.Value:
        bits = ib.and_(ib.bitcast(v, whole), whole((1 << (width - 1)) - 1))
        return bits if double else ib.zext(bits, I64)

    def unpack(bits: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Significand and exponent, so that the value is m * 2**e up to a common factor."""
        exponent = ib.lshr(bits, I64(mantissa))
        fraction = ib.and_(bits, I64((1 << mantissa) - 1))
        normal = ib.icmp_unsigned("!=", exponent, I64(0))
        m = ib.select(normal, ib.or_(fraction, I64(1 << mantissa)), fraction)
        return m, ib.select(normal, exponent, I64(1))

    a, b = magnitude(x), magnitude(y)
    infinity = I64(((1 << (width - 1 - mantissa)) - 1) << mantissa)
    fine = ib.and_(ib.icmp_unsigned("<", a, infinity), ib.icmp_unsigned("<=", b, infinity))
    fine = ib.and_(fine, ib.icmp_unsigned("!=", b, I64(0)))
    ib.cbranch(fine, small, bad)

    ib.position_at_end(small)
    ib.cbranch(ib.icmp_unsigned("<", a, b), finish, work)

    ib.position_at_end(work)
    (ma, ea), (mb, eb) = unpack(a), unpack(b)
    first, distance = ib.urem(ma, mb), ib.sub(ea, eb)
    ib.cbranch(ib.icmp_signed(">", distance, I64(0)), loop, done)

    ib.position_at_end(loop)
    rest, left = ib.phi(I64), ib.phi(I64)
    rest.add_incoming(first, work)
    left.add_incoming(distance, work)
    take = ib.select(ib.icmp_signed("<", left, I64(step)), left, I64(step))
    following = ib.urem(ib.shl(rest, take), mb)
    remaining = ib.sub(left, take)
    rest.add_incoming(following, loop)
    left.add_incoming(remaining, loop)
    ib.cbranch(ib.icmp_signed(">", remaining, I64(0)), loop, done)

    ib.position_at_end(done)
    m = ib.phi(I64)
    m.add_incoming(first, work)
    m.add_incoming(following, loop)
    # m * 2**eb back to a float: shifted up until its leading bit is the hidden one, or eb is 1.
    count = unit.intrinsic("llvm.ctlz.i64", I64, [I64, ir.IntType(1)])
    high = ib.sub(ib.call(count, [m, ir.IntType(1)(0)]), I64(63 - mantissa))
    most = ib.sub(eb, I64(1))
    shift = ib.select(ib.icmp_signed("<", high, most), high, most)
    shifted = ib.shl(m, shift)
    exponent = ib.sub(eb, shift)
    hidden = ib.icmp_unsigned(">=", shifted, I64(1 << mantissa))
    field = ib.select(hidden, ib.shl(exponent, I64(mantissa)), I64(0))
    packed = ib.or_(ib.and_(shifted, I64((1 << mantissa) - 1)), field)
    packed = ib.select(ib.icmp_unsigned("==", m, I64(0)), I64(0), packed)
    ib.branch(finish)

    ib.position_at_end(bad)
    ib.ret(typ(float("nan")))

    ib.position_at_end(finish)
    size = ib.phi(I64)
    size.add_incoming(a, small)
    size.add_incoming(packed, done)
    bits = size if double else ib.trunc(size, I32)
    sign = ib.and_(ib.bitcast(x, whole), whole(1 << (width - 1)))
    ib.ret(ib.bitcast(ib.or_(bits, sign), typ))
    return fn
