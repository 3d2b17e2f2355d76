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
(`matrix_operand.py`). Where a machine has no such unit, rows are a serial loop, columns run in
lanes, and the sum is cut into dot products if there are those.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.tensor_expr.affine import Interval
from ...algo.tensor_expr.build import add, const, floordiv, mul
from ...algo.tensor_expr.expr import Index
from ...sched.loop.dot import words
from ...sched.loop.machine import Machine
from ..ir import Alloc, Buffer, For, Function, Stmt, block, rebuild, walk, with_
from ..ir import substitute as replaced
from ..ranges import inside, span
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
            if found is not None and self.machine.matrices:
                made = Squares(found, buffers, known, self.padding).write()
                if made is not None:
                    return made
            if stmt.kind == "matrix":
                return self.plain(stmt, found)
        if isinstance(stmt, Alloc):
            buffers = {**buffers, **{buffer.name: buffer for buffer in stmt.buffers}}
        within = inside(stmt, known)
        return rebuild(stmt, lambda item: self.stmt(item, buffers, within))

    def plain(self, stmt: Stmt, found: MatrixProduct | None) -> Stmt:
        """The same by loops of other kinds."""
        if not isinstance(stmt, For):
            return rebuild(stmt, lambda item: self.plain(item, None))
        if found is None:
            return with_(stmt, kind="serial", body=self.plain(stmt.body, None))
        body = self.summed(found.depth, found.update, words(found.dtype))
        lanes = with_(found.columns, kind="vector", body=body)
        return with_(found.rows, kind="serial", body=lanes)

    def summed(self, loop: For, update: Stmt, length: int) -> Stmt:
        """The sum, by dot products if there are those of that length."""
        if length not in self.machine.dots:
            return with_(loop, kind="serial", body=update)
        count, var = span(loop), f"{loop.var}.word"
        full = floordiv(count, const(length))
        start = add(loop.lo, mul(Index(var), const(length)))
        inner = replaced(update, {Index(loop.var): add(start, Index(loop.var))})
        dot = For(loop.var, const(0), const(length), inner, "dot")
        rest = with_(loop, lo=add(loop.lo, mul(full, const(length))), kind="serial", body=update)
        return block(For(var, const(0), full, dot), rest)
