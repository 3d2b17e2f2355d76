"""`tensorize`: loops become instructions that multiply and add many narrow numbers at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

from ...algo.dtypes import DType
from ...algo.errors import ScheduleError
from ...algo.tensor_expr.expr import indices_of
from ...algo.tensor_expr.types import dtype_of
from .dot import Types, factors, words
from .extent import extent
from .names import find_loop, where
from .nest import Leaf, Loop, Nest, Stmt
from .primitive import Primitive
from .show import shown
from .tree import around_loop, edit, with_tree

SIDE, ACCUMULATORS = 16, 4
"""Rows and columns of the cells that one matrix instruction adds to, and how many such squares a
block may have: what is read then serves two of them."""


@dataclass(frozen=True)
class Tensorize(Primitive):
    """Takes an innermost loop by dot products, or a block of three by products of matrices.

        vector for ji:                          vector for ji:
          for ki in 0:4:                 ==>      dot for ki in 0:4:
            C[i,j] += A[i,k] * B[k,j]               C[i,j] += A[i,k] * B[k,j]

        for ii in 0:32: for ji in 0:32:         matrix for ii in 0:32: for ji in 0:32:
          for ki in 0:K:                 ==>      matrix for ki in 0:K:
            C[i,j] += A[i,k] * B[k,j]               C[i,j] += A[i,k] * B[k,j]

    It is for sums of products of i8 or u8, which are added up in i32, and of bf16, in f32.

    One loop, of 4 iterations for bytes and 2 for bf16, is a dot product in each lane of a vector
    loop (x86's vpdpbusd and vdpbf16ps). vpdpbusd is for an unsigned by a signed byte: of two of
    one sign one has its highest bit flipped, where `stage` packs it if it does, and the sums of
    the other make up for that; this asks for an accumulator that is staged in registers, and runs
    as plain code without.

    Three loops are the rows, the columns and the sum of a product of matrices (x86's AMX), each of
    any length, of at most 4 squares of 16 x 16 cells; what is left over is filled up with zeros.
    The sums stay in the matrix unit over all serial loops around that only add to them.

    Both are fast where the factors of a word lie side by side, those of neighbouring columns after
    each other: stage the operand of the columns with layout=("j//16", "k//4", "j%16", "k%4"), for
    bf16 with 2 in place of 4; other operands are copied for each block. The other operand has k
    innermost. Where a machine has no matrix unit, a block is computed in tiles of vector registers
    by dot products of words; where it lacks those, words are multiplied by plainer instructions
    (bytes as i16, which x86 adds in pairs, bf16 as f32). Of bytes the result is the same
    everywhere. Of bf16 it differs by the order of summation, and where numbers are subnormal: x86's
    instructions for bf16 take them, and sums that come to be, as 0.
    """

    called: ClassVar[str] = "tensorize"
    loops: tuple[str, ...]

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.loops, {}

    def legal(self, nest: Nest) -> None:
        if len(self.loops) not in (1, 3):
            raise ScheduleError(
                f"{self.who}: expected one loop, or three for rows, columns and the sum, got "
                f"{len(self.loops)}"
            )
        found = self._found(nest)
        for loop in found:
            if loop.kind != "serial":
                raise ScheduleError(
                    f"{self.who}: loop {loop.name}{where(nest, loop)} is {loop.kind} already"
                )
        last = self._innermost(nest, found)
        if not isinstance(last.body, Leaf):
            raise ScheduleError(
                f"{self.who}: loop {last.name}{where(nest, last)} holds more than one statement; "
                "reorder it innermost"
            )
        stmt = nest.stmts[last.body.stmt]
        dtype = self._type(nest, stmt, found[-1])
        if len(found) == 3:
            self._check_block(nest, stmt, found)
        elif last.extent not in ((2, 4) if dtype is None else (words(dtype),)):
            index = last.name.rpartition(".")[2]
            wanted = (
                "4 iterations, or 2 of bf16," if dtype is None else f"{words(dtype)} iterations"
            )
            count = 4 if dtype is None else words(dtype)
            raise ScheduleError(
                f"{self.who}: loop {last.name}{where(nest, last)} is not one of {wanted}"
                f"; split {index} by {count} and tensorize the inner loop"
            )

    def _innermost(self, nest: Nest, found: list[Loop]) -> Loop:
        """The innermost of the loops, which must hold each other and nothing else."""
        order = sorted(found, key=lambda loop: len(around_loop(nest.tree, loop.name)))
        for outer, inner in pairwise(order):
            if outer.body is not inner:
                raise ScheduleError(
                    f"{self.who}: loop {outer.name}{where(nest, outer)} does not hold "
                    f"{inner.name} alone; reorder the three innermost"
                )
        if len(found) == 3 and order.index(found[0]) > order.index(found[1]):
            raise ScheduleError(
                f"{self.who}: the rows, {found[0].name}{where(nest, found[0])}, are inside of the "
                f"columns, {found[1].name}; reorder them, or exchange their names here"
            )
        return order[-1]

    def _found(self, nest: Nest) -> list[Loop]:
        return [find_loop(nest, name, self.who) for name in self.loops]

    def _type(self, nest: Nest, stmt: Stmt, loop: Loop) -> DType | None:
        """The type of the factors; None where types are not known yet."""
        kernel = nest.kernel
        known = kernel.sizes or all(p.type.dtype is not None for p in kernel.checked.op.params)
        types = _types(nest)
        found = factors(stmt.value, types)
        cell = {name for part in stmt.lhs for name in indices_of(part)}
        sums = stmt.reducer == "sum" and not stmt.atomic
        if not sums or not cell.isdisjoint(_moved(stmt, loop)) or (known and found is None):
            raise ScheduleError(
                f"{self.who}: it is for sums over {loop.name} of products of i8 or u8 in i32, or "
                f"of bf16 in f32, and {loop.name}{where(nest, loop)} computes {shown(nest, stmt)}"
            )
        if not known or found is None:
            return None
        kinds = [dtype_of(factor, types) for factor in found]
        return kinds[0]

    def _check_block(self, nest: Nest, stmt: Stmt, found: list[Loop]) -> None:
        """Rows move one factor, columns the other, and both the cell; and they are few enough."""
        cell = {name for part in stmt.lhs for name in indices_of(part)}
        sides = factors(stmt.value, _types(nest))
        if sides is None:
            return  # asked again when the types are known
        moved = [
            [n for n in (0, 1) if not _moved(stmt, loop).isdisjoint(indices_of(sides[n]))]
            for loop in found[:2]
        ]
        for loop, factor, what in zip(found, moved, ("rows", "columns"), strict=False):
            if len(factor) != 1 or cell.isdisjoint(_moved(stmt, loop)) or moved[0] == moved[1]:
                raise ScheduleError(
                    f"{self.who}: rows move one factor and the cell, columns the other and the "
                    f"cell; {loop.name}{where(nest, loop)}, the {what}, does not so in "
                    f"{shown(nest, stmt)}"
                )
        counts = [extent(nest, loop) for loop in found[:2]]
        rows, columns = (-(-n // SIDE) if n is not None else None for n in counts)
        if rows is not None and columns is not None and rows * columns > ACCUMULATORS:
            raise ScheduleError(
                f"{self.who}: a block of {counts[0]} rows and {counts[1]} columns has "
                f"{rows * columns} squares of {SIDE} x {SIDE} cells, and {ACCUMULATORS} at most "
                f"fit; tile both loops, by {2 * SIDE} for example"
            )

    def apply(self, nest: Nest) -> Nest:
        found = self._found(nest)
        kind = "dot" if len(found) == 1 else "matrix"

        def mark(loop: Loop) -> Loop:
            return replace(loop, kind=kind)

        return with_tree(nest, edit(nest.tree, {loop.name: mark for loop in found}))


def _types(nest: Nest) -> Types:
    types = {name: buffer.dtype for name, buffer in nest.buffers.items()}
    tensors = nest.kernel.tensors.items()
    return types | {name: tensor.dtype for name, tensor in tensors if name not in types}


def _moved(stmt: Stmt, loop: Loop) -> set[str]:
    """The dims of the statement that a loop's value depends on."""
    return set(indices_of(loop.values[stmt.name]))
