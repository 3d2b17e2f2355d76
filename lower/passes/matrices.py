"""Blocks of products of matrices are cut into what the machine's matrix unit takes at once.

    for i in 0 .. m matrix:                 alloc s.tile0: tile i32[16, 16]:
        for j in 0 .. n matrix:                 zero s.tile0
            for k in 0 .. K matrix:     ==>     for k.block in 0 .. K // 64:
                s[i, j] sum= a[i, k]                s.tile0 sum= 16 x 64 of a, 64 x 16 of b
                           * b[k, j]            the rest of k, filled up with zeros
                                                s.sums = s.tile0; s sum= s.sums

The sums stay in the unit over all serial loops around that do nothing but add to them. What it
does is written as loops again, of kind matrix and of whole squares: over rows, columns, and where
it multiplies words and the elements of a word. Factors that do not lie as it reads them are copied
(`matrix_operand.py`). Where a machine has no such unit, or the size of a block is unknown, sums are
tiles of vector registers (`matrix_lanes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.tensor_expr.affine import Interval
from ...sched.loop.machine import Machine
from ..ir import Alloc, Buffer, For, Function, Stmt, rebuild, walk, with_
from ..ranges import inside
from .matrix_lanes import InLanes
from .matrix_operand import Padding
from .matrix_product import MatrixProduct, matrix_product
from .matrix_squares import Squares

Known = Mapping[str, Interval]
Buffers = Mapping[str, Buffer]


def matrices(function: Function, machine: Machine) -> Function:
    """The function with matrix loops over whole squares, or without any."""
    if not any(isinstance(item, For) and item.kind == "matrix" for item in walk(function.body)):
        return function
    made = _Matrices(machine)
    body = made.stmt(function.body, {param.name: param for param in function.params}, {})
    return made.padding.apply(Function(function.name, function.params, body))


class _Matrices:
    def __init__(self, machine: Machine) -> None:
        self.machine, self.padding = machine, Padding()

    def stmt(self, stmt: Stmt, buffers: Buffers, known: Known) -> Stmt:
        if isinstance(stmt, For) and stmt.kind in ("serial", "matrix"):
            found = matrix_product(stmt, buffers)
            made = None if found is None else self.block(found, buffers, known)
            if made is not None:
                return made
            if stmt.kind == "matrix":
                return plain(stmt)
        if isinstance(stmt, Alloc):
            buffers = {**buffers, **{buffer.name: buffer for buffer in stmt.buffers}}
        within = inside(stmt, known)
        return rebuild(stmt, lambda item: self.stmt(item, buffers, within))

    def block(self, found: MatrixProduct, buffers: Buffers, known: Known) -> Stmt:
        """A block by the unit where that can, else in vector registers."""
        made = None
        if self.machine.matrices:
            made = Squares(found, buffers, known, self.padding).write()
        return made or InLanes(found, buffers, known, self.padding, self.machine).write()


def plain(stmt: Stmt) -> Stmt:
    """Matrix loops as serial ones."""
    if isinstance(stmt, For) and stmt.kind == "matrix":
        stmt = with_(stmt, kind="serial")
    return rebuild(stmt, plain)
