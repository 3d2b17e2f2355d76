"""Least and greatest indices are found in 32 bits where they fit, in as many lanes as the data.

    for j in 0 .. n vector:                   ==>     alloc y.short: register i32[1]:
        y[i] min= where(c(j), j, none)                    y.short[0] = none32
                                                          for j in 0 .. n vector:
                                                              y.short[0] min= where(c(j), j, none32)
                                                          y[i] min= y.short[0], none where none32

`none` is the identity of the reducer. So argmax of f32 has as many lanes as max.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.dtypes import i32, i64
from ...algo.tensor_expr.affine import bounds
from ...algo.tensor_expr.build import compare, const
from ...algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, accesses
from ...algo.tensor_expr.reducers import REDUCERS
from ..cells import Known, candidates, run_of, use_of
from ..ir import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    Let,
    Stmt,
    Store,
    Update,
    allocate,
    block,
    children,
    rebuild,
)
from ..ranges import values_of

_FIRST = (const(0),)
_MOST = 2**31 - 2
"""The greatest magnitude of an index in 32 bits: what is beyond it is an identity."""


def shorten(function: Function) -> Function:
    """The function with reductions of indices in 32 bits, where they fit and lanes share them."""
    buffers = {param.name: param for param in function.params}
    body = _Shortening().body(function.body, buffers, {})
    return Function(function.name, function.params, body)


class _Shortening:
    def __init__(self) -> None:
        self.count = 0

    def body(self, stmt: Stmt, buffers: Mapping[str, Buffer], known: Known) -> Stmt:
        """A body, in which runs of statements that reduce indices into a cell do so in 32 bits."""
        parts = list(stmt.stmts) if isinstance(stmt, Block) else [stmt]
        for name in candidates(parts, buffers):
            if buffers[name].dtype is not i64:
                continue
            uses = [use_of(part, buffers[name], known) for part in parts]
            run = run_of(uses)
            if run is None:
                continue
            start, stop = run
            cells = dict.fromkeys(cell for use in uses[start:stop] for cell in use.cells)
            inside = self.short(parts[start:stop], name, list(cells), buffers, known)
            if inside is not None:
                return self.body(block(*parts[:start], inside, *parts[stop:]), buffers, known)
        return block(*(self.inner(part, buffers, known) for part in parts))

    def inner(self, stmt: Stmt, buffers: Mapping[str, Buffer], known: Known) -> Stmt:
        buffers, known = _within(stmt, buffers, known)
        return rebuild(stmt, lambda item: self.body(item, buffers, known))

    def short(
        self,
        parts: list[Stmt],
        name: str,
        cells: list[tuple[Expr, ...]],
        buffers: Mapping[str, Buffer],
        known: Known,
    ) -> Stmt | None:
        """The statements with each cell's updates going to one of 32 bits; None if some do not
        fit."""
        found: dict[Update, Expr] = {}
        for part in parts:
            if not _collect(part, name, cells, buffers, known, found):
                return None
        before, after, places = [], [], {}
        for cell in cells:
            place = Buffer(f"{name}.short{self.count or ''}", i32, (1,), (1,), "register", 64)
            self.count += 1
            places[cell] = place
            reducer, atomic = next((u.reducer, u.atomic) for u in found if u.index == cell)
            none = Const(REDUCERS[reducer].identity(i32), i32)
            before.append(Store(place.name, _FIRST, none))
            least = Access(place.name, _FIRST)
            whole = Const(REDUCERS[reducer].identity(i64), i64)
            value = Call("where", (compare("eq", least, none), whole, Cast(i64, least)))
            after.append(Update(name, cell, reducer, value, atomic))

        def redirect(stmt: Stmt) -> Stmt:
            if isinstance(stmt, Update) and stmt in found:
                return Update(places[stmt.index].name, _FIRST, stmt.reducer, found[stmt])
            return rebuild(stmt, redirect)

        return allocate(places.values(), block(*before, *map(redirect, parts), *after))


def _within(
    stmt: Stmt, buffers: Mapping[str, Buffer], known: Known
) -> tuple[Mapping[str, Buffer], Known]:
    """The buffers and the bounds of variables that are known inside of a statement."""
    match stmt:
        case For(var=var):
            known = {**known, var: values_of(stmt, known)}
        case Let(var, value, _):
            known = {**known, var: bounds(value, known)}
        case Alloc(own, _):
            buffers = {**buffers, **{buffer.name: buffer for buffer in own}}
    return buffers, known


def _collect(
    stmt: Stmt,
    name: str,
    cells: list[tuple[Expr, ...]],
    buffers: Mapping[str, Buffer],
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
    buffers, known = _within(stmt, buffers, known)
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
