"""The exact reduction of large angles (Payne and Hanek), one at a time, by integers of 256 bits.

The fraction of x * 2/pi is taken from as many bits of 2/pi as it needs.
"""

from __future__ import annotations

import math
from functools import cache

import llvmlite.ir as ir

from .frame import Unit
from .lanes import Lanes
from .values import F64, I1, I64


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


def payne_hanek(unit: Unit) -> ir.Function:
    """{n, r} of an f64 of at least 2**20; r is NaN for inf and NaN."""
    key = ("payne-hanek",)
    if key in unit.functions:
        return unit.functions[key]
    result = ir.LiteralStructType([I64, F64])
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
    bits = ib.bitcast(fn.args[0], I64)
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

    # times pi/2, to twice the precision, rounded once
    x = Lanes(unit, ib, hi)
    p, error = x.two_product(x.constant(math.pi / 2))
    error = error + x * 6.123233995736766e-17 + Lanes(unit, ib, lo) * (math.pi / 2)
    total = (p + error).llvm
    infinite = ib.icmp_unsigned(">=", bits, I64(0x7FF << 52))
    signed = ib.select(negative, ib.fneg(total), total)
    r = ib.select(infinite, F64(math.nan), signed)
    ib.ret(ib.insert_value(ib.insert_value(result(ir.Undefined), ib.trunc(n, I64), 0), r, 1))
    return fn


def _part(ib: ir.IRBuilder, bits: ir.Value, weight: ir.Value, extra: int = 0) -> ir.Value:
    """The integer `bits`, below 2**62, times 2**(weight - 1023 + extra)."""
    number = ib.sitofp(ib.trunc(bits, I64), F64)
    scale = ib.bitcast(ib.shl(weight, I64(52)), F64)
    scaled = ib.fmul(number, scale)
    return ib.fmul(scaled, F64(2.0**extra)) if extra else scaled
