"""Borders: what is read beyond a tensor's ends, as part of a copy of it.

    where(0 <= h+r-1 < H, X[h+r-1], 0)   ==>   X.pack: T[d] = where(0 <= d < H, X[d], 0)
                                               T[h+r-1]

A tile that is copied can hold the border too, so that loops around what uses it ask no more where
the ends are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...algo import isl
from ...algo.dtypes import DType
from ...algo.tensor_expr.affine import is_affine
from ...algo.tensor_expr.build import all_of, any_of, compare, const, negation
from ...algo.tensor_expr.expr import (
    Access,
    Call,
    Cast,
    Const,
    Expr,
    indices_of,
    sizes_of,
    transform,
    walk,
)
from ...algo.tensor_expr.points import points
from .nest import Stmt
from .relations import from_data, positive


def border(stmts: Sequence[Stmt], buffer: str, dtype: DType, shape: Sequence[Expr]) -> Const | None:
    """The number that statements read beyond the ends of a buffer of that type; None if that is
    not one."""
    found: dict[Const, None] = {}
    for stmt in stmts:
        for item in walk(stmt.value):
            if isinstance(item, Call) and (fill := _fill(stmt, item, buffer, shape)) is not None:
                found[fill if isinstance(item.args[1], Access) else _number(fill, dtype)] = None
    return next(iter(found)) if len(found) == 1 else None


def unguarded(stmt: Stmt, buffer: str, shape: Sequence[Expr]) -> Stmt:
    """The statement with reads that know no ends."""

    def read(item: Expr) -> Expr:
        if isinstance(item, Call) and _fill(stmt, item, buffer, shape) is not None:
            return item.args[1]
        return item

    return replace(stmt, value=transform(stmt.value, read))


def bordered(cell: Access, shape: Sequence[Expr], fill: Const, domain: Sequence[Expr]) -> Expr:
    """The element, or the number beyond the ends that `domain` reaches."""
    claims = [claim for claim in _claims(cell.indices, shape) if not _holds(claim, domain)]
    return Call("where", (all_of(claims), cell, fill)) if claims else cell


def _fill(stmt: Stmt, item: Expr, buffer: str, shape: Sequence[Expr]) -> Const | None:
    """The number in `where(c, buffer[i], number)`, if c says that i is within the ends."""
    match item:
        case Call("where", (cond, chosen, Const() as fill)) if (
            isinstance(cell := uncast(chosen), Access)
            and cell.tensor == buffer
            and (chosen is cell or _is_small(fill))
        ):
            indices = cell.indices
            if any(map(from_data, indices)) or not is_affine(cond):
                return None
            inside = all_of(_claims(indices, shape))
            differ = any_of([all_of([cond, negation(inside)]), all_of([negation(cond), inside])])
            return fill if _holds(negation(differ), stmt.domain) else None
    return None


def uncast(expr: Expr) -> Expr:
    """What was cast to other types, if anything was."""
    while isinstance(expr, Cast):
        expr = expr.arg
    return expr


def _is_small(number: Const) -> bool:
    """Is it a whole number that all types but bool hold, so that casts leave it as it is?"""
    value = number.value
    whole = not isinstance(value, bool) and 0 <= value <= 127 and value == int(value)
    return whole and math.copysign(1, value) > 0


def _number(number: Const, dtype: DType) -> Const:
    """The same number in another type."""
    return Const(float(number.value) if dtype.is_float else int(number.value), dtype)


def _claims(indices: Sequence[Expr], shape: Sequence[Expr]) -> Iterator[Expr]:
    """That an element is within the ends, condition by condition."""
    for index, end in zip(indices, shape, strict=True):
        yield compare("le", const(0), index)
        yield compare("lt", index, end)


def _holds(claim: Expr, domain: Sequence[Expr]) -> bool:
    conditions = [*domain, negation(claim)]
    dims = dict.fromkeys(name for condition in conditions for name in indices_of(condition))
    sizes = sizes_of(conditions)
    return (
        isl.is_empty(points(tuple(dims), [*conditions, *positive(sizes)], sizes)) is isl.Answer.YES
    )
