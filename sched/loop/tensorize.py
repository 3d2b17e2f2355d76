"""`tensorize`: a loop becomes one instruction that multiplies and adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.expr import indices_of
from .dot import DEPTH, factors
from .marks import Mark
from .names import where
from .nest import Leaf, Loop, Nest, Stmt
from .show import shown

INTRINSICS = ("dot4",)
"""What there is: four products of bytes, added to an i32."""


@dataclass(frozen=True)
class Tensorize(Mark):
    """Takes the four iterations of an innermost loop by one dot product of bytes.

        vector for ji:                          vector for ji:
          for ki in 0:4:                 ==>      dot for ki in 0:4:
            C[i,j] += A[i,k] * B[k,j]               C[i,j] += A[i,k] * B[k,j]

    The intrinsic `dot4` adds four products of i8 or u8 to an i32, in each lane of a vector loop
    (x86's VNNI: vpdpbusd). The instruction is for an unsigned by a signed byte. Of two of one sign
    one has its highest bit flipped, where `stage` packs it if it does, and the sums of the other
    make up for that; this asks for an accumulator that is staged in registers, and runs as plain
    code without. Where the machine has no such instruction the loop is unrolled. The result is
    the same everywhere. It is fast where four neighbours in memory are the four factors: stage the
    operand of the lanes with layout=("j//16", "k//4", "j%16", "k%4"), the other with k innermost.
    """

    called: ClassVar[str] = "tensorize"
    intrinsic: str = "dot4"

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.loop, self.intrinsic), {}

    @property
    def kind(self) -> str:
        return "dot"

    def legal(self, nest: Nest) -> None:
        if self.intrinsic not in INTRINSICS:
            raise ScheduleError(
                f"{self.who}: there is no intrinsic {self.intrinsic}; choose one of "
                f"{', '.join(INTRINSICS)}"
            )
        super().legal(nest)

    def fits(self, nest: Nest, loop: Loop) -> None:
        if loop.extent != DEPTH:
            index = loop.name.rpartition(".")[2]
            raise ScheduleError(
                f"{self.who}: loop {loop.name}{where(nest, loop)} is not one of {DEPTH} iterations"
                f"; split {index} by {DEPTH} and tensorize the inner loop"
            )
        if not isinstance(loop.body, Leaf):
            raise ScheduleError(
                f"{self.who}: loop {loop.name}{where(nest, loop)} holds more than one statement; "
                "reorder it innermost"
            )
        stmt = nest.stmts[loop.body.stmt]
        if not _fits(nest, stmt, loop):
            raise ScheduleError(
                f"{self.who}: {self.intrinsic} is for sums over the loop of products of i8 or u8 "
                f"in i32, and {loop.name}{where(nest, loop)} computes {shown(nest, stmt)}"
            )


def _fits(nest: Nest, stmt: Stmt, loop: Loop) -> bool:
    """Is the statement a sum over the loop of products of bytes, as far as types are known?"""
    if stmt.reducer != "sum" or stmt.atomic:
        return False
    cell = {name for part in stmt.lhs for name in indices_of(part)}
    if not cell.isdisjoint(indices_of(loop.values[stmt.name])):
        return False
    op, kernel = nest.kernel.checked.op, nest.kernel
    if not kernel.sizes and any(param.type.dtype is None for param in op.params):
        return True  # asked again when the types are known
    types = {name: buffer.dtype for name, buffer in nest.buffers.items()}
    types |= {name: tensor.dtype for name, tensor in kernel.tensors.items() if name not in types}
    return factors(stmt.value, types) is not None
