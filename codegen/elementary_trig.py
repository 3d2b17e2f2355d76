"""sin and cos, for all arguments.

Up to about a million, multiples of pi/2 are subtracted in three parts of 33 bits (Cody and Waite;
the parts are fdlibm's), which is exact without fused operations; f32 has parts of its own where
there are fused operations, and else goes through f64. Beyond, the fraction of x * 2/pi
is taken from enough bits of 2/pi (Payne and Hanek), by integers of 256 bits, a lane at a time.
The polynomials are fdlibm's and FreeBSD's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import llvmlite.ir as ir

from .frame import Unit
from .lanes import Lanes
from .values import F64, I1, I32, I64, lanes_of

FAST = 1.6e6  # |x| below which the quotient has at most 20 bits
_PARTS = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624871116645580e-21)
_REST = 8.47842766036889956997e-32
FAST_SINGLE = 3e4  # the same for f32, where the quotient has 15 bits
_PARTS_SINGLE = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_SIN = (
    -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
    2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10,
)  # fmt: skip
_COS = (
    4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
    -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11,
)  # fmt: skip
_SINF = (-0.166666666416265235595, 0.0083333293858894631756, -0.000198393348360966317347,
         0.0000027183114939898219064)  # fmt: skip
_COSF = (0.0416666233237390631894, -0.00138867637746099294692, 0.0000243904487962774090654)


def sin(x: Lanes) -> Lanes:
    """The sine of radians; NaN at infinity. The sign of zero is kept."""
    return _quadrant(x, 0)


def cos(x: Lanes) -> Lanes:
    """The cosine of radians; NaN at infinity."""
    return _quadrant(x, 1)


def _quadrant(x: Lanes, ahead: int) -> Lanes:
    if x.double:
        quotient, hi, lo = _reduced(x)
        s, c = _sin_cos(hi, lo)
    else:
        quotient, hi, lo = _reduced_single(x)
        s, c = _sin_cos_single(hi, lo)
    quotient = quotient + ahead
    y = (quotient & 1).eq(0).choose(s, c)
    y = (quotient & 2).eq(0).choose(y, -y)
    y = x.abs().lt(math.inf).choose(y, x - x)
    return x.eq(0.0).choose(x, y) if ahead == 0 else y


def _sin_cos(x: Lanes, low: Lanes) -> tuple[Lanes, Lanes]:
    """Of x + low, |x| <= pi/4."""
    z = x * x
    v = z * x
    r = z.polynomial(_SIN[1:])
    s = x - ((z * (low * 0.5 - v * r) - low) - v * _SIN[0])
    r = z * z.polynomial(_COS)
    half = z * 0.5
    w = 1.0 - half
    return s, w + (((1.0 - w) - half) + (z * r - x * low))


def _sin_cos_single(x: Lanes, low: Lanes) -> tuple[Lanes, Lanes]:
    z = x * x
    s = x + (x * z).fma(z.polynomial(_SINF), low)
    half = z * 0.5
    w = 1.0 - half
    return s, w + (((1.0 - w) - half) + (z * z * z.polynomial(_COSF) - x * low))


def _reduced_single(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """n and hi + lo as in `_reduced`, of f32: by f32 alone where fused operations make it exact."""

    def through_double() -> tuple[Lanes, Lanes, Lanes]:
        n, hi, lo = _reduced(x.to_double())
        short = hi.to_single()
        return n.to_int(32), short, ((hi - short.to_double()) + lo).to_single()

    if not x.unit.target.fma:
        return through_double()
    large = x.abs().ge(FAST_SINGLE).llvm
    quick = _cody_waite(x, 1.5 * 2**23, _PARTS_SINGLE, 0.0)

    def slow() -> list[ir.Value]:
        parts = zip(through_double(), quick, strict=True)
        return [x.ib.select(large, exact.llvm, part.llvm) for exact, part in parts]

    n, hi, lo = _where_any(x, large, slow, [part.llvm for part in quick])
    return n, hi, lo


def _reduced(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """n (modulo 4) and hi + lo with x = n pi/2 + hi + lo, |hi| <= pi/4, of f64."""
    large = x.abs().ge(FAST).llvm
    quick = [part.llvm for part in _cody_waite(x, 1.5 * 2**52, _PARTS, _REST)]
    n, hi, lo = _where_any(x, large, lambda: _by_lane(x, large, list(quick)), quick)
    return n, hi, lo


def _where_any(
    x: Lanes, cond: ir.Value, slow: Callable[[], list[ir.Value]], quick: list[ir.Value]
) -> list[Lanes]:
    """The values of `slow` if the condition holds in some lane, else those of `quick`."""
    ib = x.ib
    if lanes_of(cond) > 1:
        bits = ir.IntType(lanes_of(cond))
        cond = ib.icmp_unsigned("!=", ib.bitcast(cond, bits), bits(0))
    before = ib.block
    there, after = ib.append_basic_block("large"), ib.append_basic_block("reduced")
    ib.cbranch(cond, there, after)
    ib.position_at_end(there)
    other = slow()
    end = ib.block
    ib.branch(after)
    ib.position_at_end(after)
    merged = []
    for mine, its in zip(quick, other, strict=True):
        phi = ib.phi(mine.type)
        phi.add_incoming(mine, before)
        phi.add_incoming(its, end)
        merged.append(x.make(phi))
    return merged


def _cody_waite(
    x: Lanes, shift: float, parts: tuple[float, float, float], rest: float
) -> tuple[Lanes, Lanes, Lanes]:
    """n, hi, lo; x minus n times the first part is exact."""
    shifted = x.fma(2 / math.pi, shift)
    n = shifted - shift
    a = n.fma(-parts[0], x)
    b, b_error = n.two_product(n.constant(parts[1]))
    hi, error = a.two_sum(-b)
    low = (error - b_error) - (n * parts[2] + n * rest)
    total = hi + low
    return shifted.bits(), total, (hi - total) + low


def _by_lane(x: Lanes, large: ir.Value, parts: list[ir.Value]) -> list[ir.Value]:
    """The parts, replaced by those of the exact reduction in lanes that are large."""
    fn, ib, n = _payne_hanek(x.unit), x.ib, x.count
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


@cache
def _two_over_pi() -> tuple[int, ...]:
    """64 zero bits and then the fraction 2/pi, as 64-bit words, by Machin's formula."""
    count = 22
    one = 1 << (64 * (count - 1) + 64)

    def arctan_inverse(n: int) -> int:
        total = term = one // n
        k, sign = 3, -1
        while term:
            term //= n * n
            total += sign * (term // k)
            k, sign = k + 2, -sign
        return total

    pi = 16 * arctan_inverse(5) - 4 * arctan_inverse(239)
    fraction = (2 * one << 64 * (count - 1)) // pi
    return tuple(fraction >> 64 * (count - 1 - i) & (1 << 64) - 1 for i in range(count))


def _payne_hanek(unit: Unit) -> ir.Function:
    """{n, hi, lo} of a finite f64 of at least 2**20."""
    key = ("payne-hanek",)
    if key in unit.functions:
        return unit.functions[key]
    result = ir.LiteralStructType([I64, F64, F64])
    fn = ir.Function(unit.module, ir.FunctionType(result, [F64]), "dt.reduce.large")
    fn.linkage = "internal"
    fn.attributes.add("noinline")
    unit.functions[key] = fn
    ib = ir.IRBuilder(fn.append_basic_block("entry"))
    wide, window = ir.IntType(256), ir.IntType(320)

    words = _two_over_pi()
    table_type = ir.ArrayType(I64, len(words))
    table = ir.GlobalVariable(unit.module, table_type, "dt.two_over_pi")
    table.linkage, table.global_constant = "internal", True
    table.initializer = table_type([I64(word) for word in words])
    table.type = ir.PointerType()

    # |x| = m 2**e. The bits of 2/pi that weigh a multiple of 4 in m 2**e 2/pi are left out, so
    # that m times the next 256 bits, modulo 2**256, is the product modulo 4 in units of 2**-254.
    bits = ib.and_(ib.bitcast(fn.args[0], I64), I64((1 << 63) - 1))
    m = ib.or_(ib.and_(bits, I64((1 << 52) - 1)), I64(1 << 52))
    e = ib.sub(ib.lshr(bits, I64(52)), I64(1075))
    start = ib.add(e, I64(62))
    first, skip = ib.lshr(start, I64(6)), ib.and_(start, I64(63))
    total = window(0)
    for k in range(5):
        at = ib.gep(table, [ib.add(first, I64(k))], source_etype=I64)
        total = ib.or_(ib.shl(total, window(64)), ib.zext(ib.load(at, typ=I64), window))
    cut = ib.lshr(ib.shl(total, ib.zext(skip, window)), window(64))
    product = ib.mul(ib.trunc(cut, wide), ib.zext(m, wide))

    # The nearest multiple of pi/2, and the rest as a fraction of it with its sign.
    n = ib.lshr(ib.add(product, wide(1 << 253)), wide(254))
    rest = ib.sub(product, ib.shl(n, wide(254)))
    negative = ib.icmp_signed("<", rest, wide(0))
    size = ib.select(negative, ib.sub(wide(0), rest), rest)

    # Its leading 62 bits and the next 62, as f64.
    count = unit.intrinsic("llvm.ctlz.i256", wide, [wide, I1])
    zeros = ib.call(count, [ib.or_(size, wide(1)), I1(0)])
    top = ib.shl(size, zeros)
    weight = ib.sub(I64(2 - 62 + 1023), ib.trunc(zeros, I64))  # of the lowest leading bit
    hi = _part(ib, ib.lshr(top, wide(194)), weight)
    lo = _part(ib, ib.and_(ib.lshr(top, wide(132)), wide((1 << 62) - 1)), weight, -62)

    # times pi/2, to twice the precision
    x = Lanes(unit, ib, hi)
    p, error = x.two_product(x.constant(math.pi / 2))
    error = error + x * 6.123233995736766e-17 + Lanes(unit, ib, lo) * (math.pi / 2)
    total_hi = p + error
    total_lo = (p - total_hi) + error
    sign = ib.xor(ib.fcmp_ordered("<", fn.args[0], F64(0.0)), negative)
    flip = [ib.select(sign, ib.fneg(v.llvm), v.llvm) for v in (total_hi, total_lo)]
    quotient = ib.trunc(n, I64)
    minus = ib.fcmp_ordered("<", fn.args[0], F64(0.0))
    out = result(ir.Undefined)
    for k, value in enumerate([ib.select(minus, ib.neg(quotient), quotient), *flip]):
        out = ib.insert_value(out, value, k)
    ib.ret(out)
    return fn


def _part(ib: ir.IRBuilder, bits: ir.Value, weight: ir.Value, extra: int = 0) -> ir.Value:
    """The integer `bits`, below 2**62, times 2**(weight - 1023 + extra)."""
    number = ib.sitofp(ib.trunc(bits, I64), F64)
    scale = ib.bitcast(ib.shl(weight, I64(52)), F64)
    scaled = ib.fmul(number, scale)
    return ib.fmul(scaled, F64(2.0**extra)) if extra else scaled
