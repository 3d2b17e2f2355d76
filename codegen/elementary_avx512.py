"""AVX-512's instructions on exponents and small tables, for vectors of any number of lanes and
for scalars.

They serve where `Target.avx512` says so. Zeros, infinities, NaN and subnormal numbers need no
care: the exponent of 0 is -inf, and scaling rounds once into the subnormal numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.ir as ir

from .lanes import Lanes
from .values import F32, I32, lanes_of, scalar_type

_KEEP_ROUNDING = 4  # as the control register says
_THREE_QUARTERS, _NAN_BELOW_ZERO = 3, 2 << 2  # of getmant: [0.75, 1.5), NaN for numbers below 0


def scale(x: Lanes, n: Lanes) -> Lanes:
    """x * 2**floor(n), rounded once."""
    return _call("scalef", x, n)


def exponent(x: Lanes) -> Lanes:
    """floor(log2 |x|) as a float."""
    return _call("getexp", x)


def significand(x: Lanes) -> Lanes:
    """x divided by a power of two, in [0.75, 1.5); 1 for 0 and inf, NaN below 0."""
    return _call("getmant", x, immediate=_THREE_QUARTERS | _NAN_BELOW_ZERO)


def inverse_root(x: Lanes) -> Lanes:
    """1 / sqrt(x) with a relative error below 2**-14; inf for 0."""
    return _call("rsqrt14", x)


def inverse(x: Lanes) -> Lanes:
    """1 / x with a relative error below 2**-14."""
    return _call("rcp14", x)


TABLE = 16
"""The numbers of a table that lies in one register."""


def table(index: Lanes, numbers: Sequence[float]) -> Lanes:
    """The f32 of `TABLE` numbers that the low four bits of 32-bit integers say."""
    vec, at = ir.VectorType(F32, TABLE), ir.VectorType(I32, TABLE)
    fn = index.unit.intrinsic("llvm.x86.avx512.permvar.sf.512", vec, [vec, at])
    known = vec([F32(number) for number in numbers])
    parts = [
        index.ib.call(fn, [known, _piece(index.ib, index.llvm, first, TABLE)])
        for first in range(0, index.count, TABLE)
    ]
    return index.make(_joined(index.ib, parts, index.count))


def _call(name: str, *args: Lanes, immediate: int | None = None) -> Lanes:
    """An instruction on registers of 128, 256 or 512 bits, as often as the lanes need it."""
    x = args[0]
    width = 64 if x.double else 32
    per = min(max(x.count, 128 // width), 512 // width)
    vec = ir.VectorType(scalar_type(x.llvm), per)
    mask = ir.IntType(max(8, per))
    full = per * width == 512 and not name.endswith("14")
    values = [vec] * len(args) + ([I32] if immediate is not None else [])
    types = [*values, vec, mask, *([I32] if full else [])]
    prefix = "" if name.endswith("14") else "mask."
    fn = x.unit.intrinsic(
        f"llvm.x86.avx512.{prefix}{name}.{'pd' if x.double else 'ps'}.{per * width}", vec, types
    )
    parts = []
    for first in range(0, x.count, per):
        operands = [_piece(x.ib, arg.llvm, first, per) for arg in args]
        operands += [I32(immediate)] if immediate is not None else []
        operands += [vec(None), mask(-1), *([I32(_KEEP_ROUNDING)] if full else [])]
        parts.append(x.ib.call(fn, operands))
    return x.make(_joined(x.ib, parts, x.count))


def _piece(ib: ir.IRBuilder, value: ir.Value, first: int, per: int) -> ir.Value:
    """`per` lanes from `first` on; lanes that there are not are 0."""
    n = lanes_of(value)
    if n == per:
        return value
    zero = ir.VectorType(scalar_type(value), per)(None)
    if n == 1 and not isinstance(value.type, ir.VectorType):
        return ib.insert_element(zero, value, I32(0))
    if n < per:
        return _shuffle(ib, value, value.type(None), [*range(n), *[n] * (per - n)])
    return _shuffle(ib, value, value, range(first, first + per))


def _joined(ib: ir.IRBuilder, parts: list[ir.Value], count: int) -> ir.Value:
    """The first `count` lanes of vectors one after the other."""
    if count == 1:
        return ib.extract_element(parts[0], I32(0))
    while len(parts) > 1:
        n = 2 * lanes_of(parts[0])
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [_shuffle(ib, a, b, range(n)) for a, b in pairs]
    if lanes_of(parts[0]) == count:
        return parts[0]
    return _shuffle(ib, parts[0], parts[0], range(count))


def _shuffle(ib: ir.IRBuilder, a: ir.Value, b: ir.Value, order: Sequence[int]) -> ir.Value:
    mask = ir.VectorType(I32, len(order))([I32(k) for k in order])
    return ib.shuffle_vector(a, b, mask)
