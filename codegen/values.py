"""What an expression has become: one value a lane, with lane arithmetic kept symbolic.

An i64 is held as `llvm + bias + step * lane` with a scalar `llvm`, as long as it can be: so the
address of a vector access shows whether it is one cell, a run of cells or neither, and constants
stay displacements. Every other value is a scalar (the same in all lanes) or a vector. Lanes of an
i64 that is known to fit are held in 32 bits: twice as many in a register, and they divide.
"""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.ir as ir

from ..algo.dtypes import DType

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
HALF, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()

Span = tuple[int, int]
WHOLE: Span = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """`llvm` None is 0. `bias` and `step` are 0 unless the type is i64 and `llvm` is scalar.

    `data` says that the value depends on an element of an array, so isl knows no range for it.
    `span` holds the least and the largest value that an i64 can have in an active lane.
    """

    dtype: DType
    llvm: ir.Value | None
    bias: int = 0
    step: int = 0
    data: bool = False
    span: Span = WHOLE

    @property
    def varies(self) -> bool:
        """Do lanes differ?"""
        return self.step != 0 or (self.llvm is not None and is_vector(self.llvm))

    @property
    def bounds(self) -> Span:
        """The span, which constants need not say."""
        return self.span if self.constant is None else (self.bias, self.bias)

    @property
    def constant(self) -> int | None:
        """The integer that this is known to be, or None."""
        return self.bias if self.llvm is None and self.step == 0 else None


def is_vector(value: ir.Value) -> bool:
    """Does an LLVM value have lanes?"""
    return isinstance(value.type, ir.VectorType)


def register_type(dtype: DType) -> ir.Type:
    """The LLVM type of a value in a register: f16 and bf16 are kept as rounded f32."""
    if dtype.kind == "f":
        return F64 if dtype.bits == 64 else F32
    return I1 if dtype.kind == "b" else ir.IntType(dtype.bits)


def memory_type(dtype: DType) -> ir.Type:
    """The LLVM type of an element in memory."""
    if dtype.name == "f16":
        return HALF
    return (
        ir.IntType(dtype.bits)
        if dtype.kind == "b" or dtype.name == "bf16"
        else (register_type(dtype))
    )


def shaped(scalar: ir.Type, lanes: int) -> ir.Type:
    """`scalar`, or a vector of it for more than one lane."""
    return scalar if lanes == 1 else ir.VectorType(scalar, lanes)


def lanes_of(value: ir.Value) -> int:
    """The number of lanes of an LLVM value; 1 for a scalar."""
    return int(value.type.count) if is_vector(value) else 1


def scalar_type(value: ir.Value) -> ir.Type:
    """The type of a value, or of its lanes."""
    return value.type.element if is_vector(value) else value.type


def suffix(typ: ir.Type) -> str:
    """The name of a type in overloaded intrinsics."""
    if isinstance(typ, ir.VectorType):
        return f"v{typ.count}{suffix(typ.element)}"
    if isinstance(typ, ir.IntType):
        return f"i{typ.width}"
    return {ir.HalfType: "f16", ir.FloatType: "f32", ir.DoubleType: "f64"}[type(typ)]


def frozen(ib: ir.IRBuilder, llvm: ir.Value) -> ir.Value:
    """The same value, but a definite one in lanes that are undefined, as those may be that are off.

    A branch on what is undefined, or a division by it, is undefined behaviour: LLVM then leaves out
    whatever leads there.
    """
    freeze = ir.instructions.Instruction(ib.block, llvm.type, "freeze", [llvm])
    ib._insert(freeze)
    return freeze


def constant(scalar: ir.Type, value: int | float, lanes: int = 1) -> ir.Constant:
    """A constant, the same in all lanes."""
    one = ir.Constant(scalar, value)
    return one if lanes == 1 else ir.Constant(ir.VectorType(scalar, lanes), [one] * lanes)


def like(value: ir.Value, number: int | float) -> ir.Constant:
    """A constant of the type of `value`."""
    return constant(scalar_type(value), number, lanes_of(value))


def number_of(value: ir.Value) -> float | None:
    """The number that a constant is, in all its lanes; None for what is computed."""
    if isinstance(value, ir.Constant) and is_vector(value):
        value = value.constant[0]
    number = value.constant if isinstance(value, ir.Constant) else None
    return float(number) if isinstance(number, (int, float)) else None
