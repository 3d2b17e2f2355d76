"""Arithmetic on LLVM values as Python operators, for writing elementary functions readably.

Floating-point operations carry no flags: what is written is what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.ir as ir

from .frame import Unit
from .values import F32, F64, constant, is_vector, lanes_of, like, scalar_type, shaped


class Lanes:
    """A scalar or vector value of floats, integers or conditions, and the builder it is made by."""

    __slots__ = ("ib", "llvm", "unit")

    def __init__(self, unit: Unit, ib: ir.IRBuilder, llvm: ir.Value) -> None:
        self.unit, self.ib, self.llvm = unit, ib, llvm

    def make(self, llvm: ir.Value) -> Lanes:
        """Another value by the same builder."""
        return Lanes(self.unit, self.ib, llvm)

    def _raw(self, other: Lanes | int | float) -> ir.Value:
        return other.llvm if isinstance(other, Lanes) else like(self.llvm, other)

    @property
    def is_float(self) -> bool:
        """Are these floats?"""
        return not isinstance(scalar_type(self.llvm), ir.IntType)

    @property
    def double(self) -> bool:
        """Are these f64?"""
        return bool(scalar_type(self.llvm) == F64)

    @property
    def count(self) -> int:
        """The number of lanes."""
        return lanes_of(self.llvm)

    # Floats and integers

    def __add__(self, other: Lanes | int | float) -> Lanes:
        ib, b = self.ib, self._raw(other)
        return self.make(ib.fadd(self.llvm, b) if self.is_float else ib.add(self.llvm, b))

    __radd__ = __add__

    def __sub__(self, other: Lanes | int | float) -> Lanes:
        ib, b = self.ib, self._raw(other)
        return self.make(ib.fsub(self.llvm, b) if self.is_float else ib.sub(self.llvm, b))

    def __rsub__(self, other: int | float) -> Lanes:
        return self.make(like(self.llvm, other)) - self

    def __mul__(self, other: Lanes | int | float) -> Lanes:
        ib, b = self.ib, self._raw(other)
        return self.make(ib.fmul(self.llvm, b) if self.is_float else ib.mul(self.llvm, b))

    __rmul__ = __mul__

    def __truediv__(self, other: Lanes | float) -> Lanes:
        return self.make(self.ib.fdiv(self.llvm, self._raw(other)))

    def __rtruediv__(self, other: float) -> Lanes:
        return self.make(like(self.llvm, other)) / self

    def __neg__(self) -> Lanes:
        return self.make(self.ib.fneg(self.llvm) if self.is_float else self.ib.neg(self.llvm))

    def fma(self, factor: Lanes | float, addend: Lanes | float) -> Lanes:
        """self * factor + addend, rounded once where the machine can."""
        if not self.unit.target.fma:
            return self * factor + addend
        return self.call("fma", factor, addend)

    def call(self, intrinsic: str, *others: Lanes | float) -> Lanes:
        """An LLVM intrinsic that is an instruction on the target."""
        args = [self.llvm, *map(self._raw, others)]
        typ = self.llvm.type
        short = (f"v{self.count}" if is_vector(self.llvm) else "") + (
            f"i{scalar_type(self.llvm).width}"
            if not self.is_float
            else "f64"
            if self.double
            else "f32"
        )
        fn = self.unit.intrinsic(f"llvm.{intrinsic}.{short}", typ, [typ] * len(args))
        return self.make(self.ib.call(fn, args))

    def two_product(self, other: Lanes) -> tuple[Lanes, Lanes]:
        """self * other and its rounding error."""
        p = self * other
        if self.unit.target.fma:
            return p, self.fma(other, -p)
        split = 134217729.0 if self.double else 4097.0  # Dekker, in halves of the significand
        t, u = self * split, other * split
        a_hi, b_hi = t - (t - self), u - (u - other)
        a_lo, b_lo = self - a_hi, other - b_hi
        return p, ((a_hi * b_hi - p) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo

    def two_sum(self, other: Lanes | float) -> tuple[Lanes, Lanes]:
        """self + other and its rounding error (Knuth)."""
        s = self + other
        v = s - self
        return s, (self - (s - v)) + (-v + other)

    def product_and(self, factor: Lanes | float, addend: Lanes) -> Lanes:
        """self * factor + addend, rounded once, or but for a small part of a unit."""
        if self.unit.target.fma:
            return self.fma(factor, addend)
        p, error = self.two_product(self.make(self._raw(factor)))
        total, lost = p.two_sum(addend)
        return total + (error + lost)

    def polynomial(self, coefficients: Sequence[float]) -> Lanes:
        """c[0] + c[1] x + c[2] x^2 + ...

        The first two terms are added last, as by Horner's rule, for their rounding is what counts.
        The others are added in 2, 4 or 8 chains (Estrin), since a long chain waits for itself.
        """
        first, rest = coefficients[:2], coefficients[2:]
        if len(rest) < 3:
            first, rest = coefficients[:-1], coefficients[-1:]
        terms: list[Lanes | float] = list(rest)
        power = self
        for _ in range((len(rest) - 1).bit_length() - 1 if len(rest) < 16 else 3):
            pairs = zip(terms[::2], terms[1::2], strict=False)
            joined: list[Lanes | float] = [power.fma(high, low) for low, high in pairs]
            terms = joined + terms[2 * len(joined) :]
            power = power * power
        total = self.make(self._raw(terms[-1]))
        for term in reversed(terms[:-1]):
            total = total.fma(power, term)
        for c in reversed(first):
            total = total.fma(self, c)
        return total

    def abs(self) -> Lanes:
        """|x| of floats."""
        return self.call("fabs")

    def with_sign_of(self, other: Lanes) -> Lanes:
        """The magnitude of this with the sign bit of `other`."""
        return self.call("copysign", other)

    def round(self, name: str) -> Lanes:
        """floor or ceil: an instruction, or by way of the integer it is near."""
        if self.unit.target.rounding:
            return self.call(name)
        limit = 2.0**52 if self.double else 2.0**23  # from here on every float is an integer
        near = self.make(self.ib.fptosi(self.llvm, self.bits().llvm.type)).to_float()
        if name == "floor":
            result = near.gt(self).choose(near - 1.0, near)
        else:
            result = near.lt(self).choose(near + 1.0, near)
        return self.abs().lt(limit).choose(result.with_sign_of(self), self)

    # Integers

    def __and__(self, other: Lanes | int) -> Lanes:
        return self.make(self.ib.and_(self.llvm, self._raw(other)))

    def __or__(self, other: Lanes | int) -> Lanes:
        return self.make(self.ib.or_(self.llvm, self._raw(other)))

    def __xor__(self, other: Lanes | int) -> Lanes:
        return self.make(self.ib.xor(self.llvm, self._raw(other)))

    def __lshift__(self, other: Lanes | int) -> Lanes:
        return self.make(self.ib.shl(self.llvm, self._raw(other)))

    def __rshift__(self, other: Lanes | int) -> Lanes:
        """Arithmetic: the sign is repeated."""
        return self.make(self.ib.ashr(self.llvm, self._raw(other)))

    # Comparisons: false for NaN, but for ne

    def _compare(self, symbol: str, other: Lanes | int | float) -> Lanes:
        b = self._raw(other)
        if not self.is_float:
            return self.make(self.ib.icmp_signed(symbol, self.llvm, b))
        compare = self.ib.fcmp_unordered if symbol == "!=" else self.ib.fcmp_ordered
        return self.make(compare(symbol, self.llvm, b))

    def lt(self, other: Lanes | int | float) -> Lanes:
        """self < other"""
        return self._compare("<", other)

    def gt(self, other: Lanes | int | float) -> Lanes:
        """self > other"""
        return self._compare(">", other)

    def ge(self, other: Lanes | int | float) -> Lanes:
        """self >= other"""
        return self._compare(">=", other)

    def eq(self, other: Lanes | int | float) -> Lanes:
        """self == other"""
        return self._compare("==", other)

    def ne(self, other: Lanes | int | float) -> Lanes:
        """self != other"""
        return self._compare("!=", other)

    def choose(self, then: Lanes | float, orelse: Lanes) -> Lanes:
        """then where this condition holds, else orelse."""
        return self.make(self.ib.select(self.llvm, orelse._raw(then), orelse.llvm))

    # Representations

    def _as(self, scalar: ir.Type) -> ir.Type:
        return shaped(scalar, self.count)

    def bits(self) -> Lanes:
        """The bits of floats as integers."""
        return self.make(
            self.ib.bitcast(self.llvm, self._as(ir.IntType(64 if self.double else 32)))
        )

    def as_float(self) -> Lanes:
        """Bits as floats."""
        typ = F64 if scalar_type(self.llvm).width == 64 else F32
        return self.make(self.ib.bitcast(self.llvm, self._as(typ)))

    def to_float(self) -> Lanes:
        """Signed integers as floats of the same width."""
        typ = F64 if scalar_type(self.llvm).width == 64 else F32
        return self.make(self.ib.sitofp(self.llvm, self._as(typ)))

    def to_double(self) -> Lanes:
        """f32 as f64."""
        return self if self.double else self.make(self.ib.fpext(self.llvm, self._as(F64)))

    def to_single(self) -> Lanes:
        """f64 as f32."""
        return self.make(self.ib.fptrunc(self.llvm, self._as(F32))) if self.double else self

    def to_int(self, bits: int) -> Lanes:
        """Integers of another width, signed."""
        width = scalar_type(self.llvm).width
        if width == bits:
            return self
        typ = self._as(ir.IntType(bits))
        return self.make(
            self.ib.trunc(self.llvm, typ) if bits < width else self.ib.sext(self.llvm, typ)
        )

    def constant(self, number: int | float) -> Lanes:
        """A constant of the type of this value."""
        return self.make(constant(scalar_type(self.llvm), number, self.count))
