"""Least and greatest indices are found in 32 bits where they fit, in as many lanes as the data.

    for j in 0 .. n vector:                   ==>     alloc y.short: register i32[1]:
        y[i] min= where(c(j), j, none)                    y.short[0] = none32
                                                          for j in 0 .. n vector:
                                                              y.short[0] min= where(c(j), j, none32)
                                                          y[i] min= y.short[0], none where none32

`none` is the identity of the reducer. So argmax of f32 has as many lanes as max.
"""

from __future__ import annotations

from ...algo.dtypes import i32, i64
from ...algo.tensor_expr.affine import bounds
from ...algo.tensor_expr.build import compare, const
from ...algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, accesses
from ...algo.tensor_expr.reducers import REDUCERS
from ..cells import Buffers, Known, Partial, Partials, Use
from ..ir import Alloc, Buffer, Function, Stmt, Store, Update, children
from ..ranges import inside

_FIRST = (const(0),)
_MOST = 2**31 - 2
"""The greatest magnitude of an index in 32 bits: what is beyond it is an identity."""


def shorten(function: Function) -> Function:
    """The function with reductions of indices in 32 bits, where they fit and lanes share them."""
    return _Shortening().function(function)


class _Shortening(Partials):
    def __init__(self) -> None:
        self.count = 0

    def partial(
        self, parts: list[Stmt], uses: list[Use], buffer: str, buffers: Buffers, known: Known
    ) -> Partial | None:
        """A place of 32 bits for each cell; none if some index does not fit."""
        if buffers[buffer].dtype is not i64:
            return None
        cells = list(dict.fromkeys(cell for use in uses for cell in use.cells))
        found: dict[Update, Expr] = {}
        for part in parts:
            if not _collect(part, buffer, cells, buffers, known, found):
                return None
        before: list[Stmt] = []
        after: list[Stmt] = []
        places: dict[tuple[Expr, ...], Buffer] = {}
        for cell in cells:
            place = Buffer(f"{buffer}.short{self.count or ''}", i32, (1,), (1,), "register", 64)
            self.count += 1
            places[cell] = place
            reducer, atomic = next((u.reducer, u.atomic) for u in found if u.index == cell)
            none = Const(REDUCERS[reducer].identity(i32), i32)
            before.append(Store(place.name, _FIRST, none))
            least = Access(place.name, _FIRST)
            whole = Const(REDUCERS[reducer].identity(i64), i64)
            value = Call("where", (compare("eq", least, none), whole, Cast(i64, least)))
            after.append(Update(buffer, cell, reducer, value, atomic))

        def update(stmt: Update, vector: str | None) -> Stmt:
            if stmt not in found:
                return stmt
            return Update(places[stmt.index].name, _FIRST, stmt.reducer, found[stmt])

        return Partial(places.values(), before, after, update)


def _collect(
    stmt: Stmt,
    name: str,
    cells: list[tuple[Expr, ...]],
    buffers: Buffers,
    known: Known,
    found: dict[Update, Expr],
) -> bool:
    """Adds the updates of the cells with their values in 32 bits; do all have one?"""
    if isinstance(stmt, Update) and stmt.buffer == name and stmt.index in cells:
        wide = any(buffers[a.tensor].dtype.itemsize > i32.itemsize for a in accesses(stmt.value))
        value = None if wide else _in_32_bits(stmt.value, stmt.reducer, known)
        if value is None:
            return False
        found[stmt] = value
        return True
    if isinstance(stmt, Alloc):
        buffers = {**buffers, **{own.name: own for own in stmt.buffers}}
    known = inside(stmt, known)
    return all(_collect(s, name, cells, buffers, known, found) for s in children(stmt))


def _in_32_bits(value: Expr, reducer: str, known: Known) -> Expr | None:
    """An index, or one of two as a condition says, in 32 bits; the identity stays what it is."""
    match value:
        case Const(number, _) if number == REDUCERS[reducer].identity(i64):
            return Const(REDUCERS[reducer].identity(i32), i32)
        case Call("where", (cond, then, orelse)):
            a, b = (_in_32_bits(part, reducer, known) for part in (then, orelse))
            return None if a is None or b is None else Call("where", (cond, a, b))
    low, high = bounds(value, known)
    if reducer not in ("min", "max") or low is None or high is None:
        return None
    return Cast(i32, value) if low >= -_MOST and high <= _MOST else None
