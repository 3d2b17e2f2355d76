"""What a nest of matrix loops multiplies: rows, columns, sum and the loops around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...algo.dtypes import DType
from ...algo.tensor_expr.build import const
from ...algo.tensor_expr.expr import Expr, accesses, indices_of
from ...algo.tensor_expr.types import dtype_of
from ...sched.loop.dot import factors
from ..ir import Block, Buffer, For, Stmt, Update


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """A block, and the loops around that only add to it, outermost first.

    A loop of one iteration, which the program has not, is there all the same. The first factor
    moves along rows, the second along columns.
    """

    around: tuple[For, ...]
    rows: For
    columns: For
    depth: For
    update: Update
    factors: tuple[Expr, Expr]
    dtype: DType
    """Of a factor; both are bytes or both bf16."""


def matrix_product(loop: For, buffers: Mapping[str, Buffer]) -> MatrixProduct | None:
    """The product of matrices that a loop is, if its outer loops are serial and only add to it."""
    loops: list[For] = []
    stmt: Stmt = loop
    while isinstance(stmt, For) and stmt.kind in ("serial", "matrix") and stmt.step == 1:
        loops.append(stmt)
        stmt = stmt.body
    own = [item for item in loops if item.kind == "matrix"]
    around = loops[: len(loops) - len(own)]
    if not own or loops[len(around) :] != own or not isinstance(stmt, Update):
        return None
    if stmt.reducer != "sum" or stmt.atomic:
        return None
    if any(cell.tensor == stmt.buffer for cell in accesses(stmt.value)):
        return None
    types = {name: buffer.dtype for name, buffer in buffers.items()}
    found = factors(stmt.value, types)
    if found is None:
        return None
    cell = {name for part in stmt.index for name in indices_of(part)}
    depths = [item for item in own if item.var not in cell]
    sides = [item for item in own if item.var in cell]
    if len(depths) > 1 or len(sides) > 2:
        return None
    depth = depths[0] if depths else _once(f"{stmt.buffer}.k")
    if len(sides) < 2:  # columns are what lies as they should
        lone = sides[0] if sides else _once(f"{stmt.buffer}.j")
        sides = [_once(f"{stmt.buffer}.i"), lone]
    rows, columns = sides
    moves = [[s.var in indices_of(factor) for factor in found] for s in sides]
    if all(moves[0]) or all(moves[1]) or (any(moves[0]) and moves[0] == moves[1]):
        return None
    if moves[0] == [False, True] or moves[1] == [True, False]:
        found = found[::-1]
    inside = {item.var for item in (*around, *own)}
    fixed = {*cell, *_in(rows), *_in(columns)} & {item.var for item in around}
    if fixed or inside & {*_in(rows), *_in(columns)} or {rows.var, columns.var} & _in(depth):
        return None
    kinds = [dtype_of(factor, types) for factor in found]
    dtype = kinds[0]
    return MatrixProduct(tuple(around), rows, columns, depth, stmt, (found[0], found[1]), dtype)


def _once(var: str) -> For:
    return For(var, const(0), const(1), Block(()))


def _in(loop: For) -> set[str]:
    return {*indices_of(loop.lo), *indices_of(loop.hi)}
