"""The search for the first place where a condition holds ends there.

    for s in 0 .. n:                                alloc found: register bool[1]:
        for j in 0 .. 64 vector:                        found[0] = False
            y[j] min= where(c(j), 64*s + j, none)       for s in 0 .. n until found[0]:
                                             ==>            for j in 0 .. 64 vector:
                                                                found[0] any= c(j)
                                                            if found[0]:
                                                                for j in 0 .. 64 vector:
                                                                    y[j] min= where(c(j), ...

`none` is the identity, and what is searched for ascends, so that later strips only have more. So
argmax reads on average half of a row again, and asks of each element one thing.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.dtypes import bool_
from ...algo.tensor_expr.affine import Interval, bounds, linear
from ...algo.tensor_expr.build import const
from ...algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, Index, accesses, indices_of
from ...algo.tensor_expr.reducers import REDUCERS
from ...sched.loop.machine import Machine
from ..ir import Buffer, For, Function, If, Stmt, Store, Update, allocate, block, rebuild, with_
from ..ranges import inside, span_of

LEAST = 8
"""Strips, from which on what is left out is worth a jump that no processor foresees."""

Known = Mapping[str, Interval]
_FIRST = (const(0),)


def first(function: Function, machine: Machine) -> Function:
    """The function whose searches end; expects strips of vector loops."""
    if machine.grid:
        return function  # threads wait for the last of them
    return Function(function.name, function.params, _stmt(function.body, {}))


def _stmt(stmt: Stmt, known: Known) -> Stmt:
    match stmt:
        case For(body=For(kind="vector", body=Update() as update) as lanes, kind="serial"):
            most = span_of(stmt, known)[1]
            if (most is None or most >= LEAST) and (cond := _sought(stmt, lanes, update, known)):
                return _ending(stmt, lanes, cond)
    within = inside(stmt, known)
    return rebuild(stmt, lambda inner: _stmt(inner, within))


def _sought(strips: For, lanes: For, update: Update, known: Known) -> Expr | None:
    """The condition of a search through strips, if that is what they are."""
    match update:
        case Update(name, at, "min", Call("where", (cond, place, Const() as none)), False):
            if {strips.var, lanes.var} & {i for index in at for i in indices_of(index)}:
                return None  # it is a search for each of several cells
            identity = REDUCERS["min"].identity(none.dtype) if none.dtype else None
            reads = list(accesses(cond))
            # Indices that are data are looked at in every instance, to report those out of range.
            plain = all(r.tensor != name and not any(map(accesses, r.indices)) for r in reads)
            if none.value == identity and plain and _ascends(strips, lanes, place, known):
                return cond
    return None


def _ascends(strips: For, lanes: For, place: Expr, known: Known) -> bool:
    """Is what a later strip has nowhere less than what an earlier one has?"""
    known = inside(lanes, inside(strips, known))
    if isinstance(place, Cast):
        low, high = bounds(place.arg, known)
        most = REDUCERS["min"].identity(place.dtype) if place.dtype.kind == "i" else 0
        if low is None or high is None or not -most <= low <= high <= most:
            return False
        place = place.arg
    form, width = linear(place), bounds(lanes.hi, known)[1]
    if form is None or width is None or accesses(place) or form.inside(strips.var):
        return False
    step, along = form.of(Index(strips.var)), form.of(Index(lanes.var))
    return not form.inside(lanes.var) and 0 <= along * (width - 1) <= step


def _ending(strips: For, lanes: For, cond: Expr) -> Stmt:
    """The search that ends after the strip in which it finds something."""
    found = Buffer(f"{strips.var}.found", bool_, (1,), (1,), "register", 64)
    hit = Access(found.name, _FIRST)
    ask = with_(lanes, body=Update(found.name, _FIRST, "any", cond))
    search = with_(strips, body=block(ask, If(hit, lanes)), until=hit)
    return allocate([found], block(Store(found.name, _FIRST, Const(False, bool_)), search))
