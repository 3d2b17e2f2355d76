"""Cells of buffers into which vector loops combine a value of every lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..algo.tensor_expr.affine import Interval, bounds
from ..algo.tensor_expr.expr import Expr, accesses, indices_of
from ..sched.loop.nest import PARALLEL
from .ir import (
    AXES,
    Alloc,
    Buffer,
    For,
    If,
    Let,
    Stmt,
    Store,
    Update,
    expressions,
)
from .ir import children as inner_statements
from .ranges import span_of, values_of

Known = Mapping[str, Interval]


@dataclass(slots=True)
class Use:
    """What a statement does with a buffer. `cells` are those that lanes share, and how many do;
    spoiled: it does other things than combining values into them."""

    reducer: str | None = None
    cells: dict[tuple[Expr, ...], int] = field(default_factory=dict)
    updates: int = 0
    looped: bool = False
    used: bool = False
    spoiled: bool = False
    atomic: bool = False


def candidates(parts: list[Stmt], buffers: Mapping[str, Buffer]) -> list[str]:
    """Buffers from outside that are updated somewhere in `parts`, under a vector loop."""
    found: dict[str, None] = {}
    stack: list[tuple[Stmt, bool]] = [(part, False) for part in reversed(parts)]
    while stack:
        stmt, vector = stack.pop()
        if isinstance(stmt, Update) and vector and stmt.buffer in buffers:
            found[stmt.buffer] = None
        vector = vector or (isinstance(stmt, For) and stmt.kind == "vector")
        stack.extend((inner, vector) for inner in reversed(inner_statements(stmt)))
    return list(found)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands: what is bound around it within the statements looked at.

    `certain`: it is executed whenever they are, so its cell lies inside the buffer then.
    """

    known: Known
    bound: frozenset[str] = frozenset()
    vector: For | None = None
    looped: bool = False
    certain: bool = True


def use_of(stmt: Stmt, buffer: Buffer, known: Known) -> Use:
    """What a statement does with a buffer from outside, given bounds of the variables around."""
    use = Use()
    _collect(stmt, buffer, _Place(known), use)
    return use


def _collect(stmt: Stmt, buffer: Buffer, place: _Place, use: Use) -> None:
    """Adds what `stmt` does with the buffer."""
    if any(item.tensor == buffer.name for expr in expressions(stmt) for item in accesses(expr)):
        use.used = use.spoiled = True
    match stmt:
        case Store(name, _, _) if name == buffer.name:
            use.used = use.spoiled = True
        case Update(name, index, reducer, _, atomic) if name == buffer.name:
            use.used = True
            use.atomic |= atomic
            use.spoiled |= use.reducer not in (None, reducer)
            use.reducer = reducer
            _collect_cell(index, buffer, place, use)
        case Alloc(inner, _) if any(own.name == buffer.name for own in inner):
            use.spoiled = True
        case For(kind=kind) if kind in PARALLEL or kind in AXES:
            inside = use_of(stmt.body, buffer, place.known)
            use.used |= inside.used
            use.spoiled |= inside.used
        case For(var=var, kind=kind):
            least = span_of(stmt, place.known)[0]
            vector = stmt if kind == "vector" else place.vector
            place = _Place(
                {**place.known, var: values_of(stmt, place.known)},
                place.bound | {var},
                vector,
                place.looped or vector is None,
                place.certain and least is not None and least > 0,
            )
        case If():
            place = replace(place, certain=False)
        case Let(var, value, _):
            known = {**place.known, var: bounds(value, place.known)}
            place = replace(place, known=known, bound=place.bound | {var})
    for inner_stmt in inner_statements(stmt):
        _collect(inner_stmt, buffer, place, use)


def _collect_cell(index: tuple[Expr, ...], buffer: Buffer, place: _Place, use: Use) -> None:
    names = {name for part in index for name in indices_of(part)}
    if place.vector is None or place.vector.var in names:
        return
    most = bounds(place.vector.hi, place.known)[1]
    data = any(accesses(part) for part in index)
    inside = place.certain or _within(index, buffer, place.known)
    if most is None or data or names & place.bound or not inside:
        use.spoiled = True
    use.cells[index] = max(use.cells.get(index, 1), most or 1)
    use.updates += 1
    use.looped |= place.looped


def _within(index: tuple[Expr, ...], buffer: Buffer, known: Known) -> bool:
    """Does a cell certainly lie inside the buffer, even where its update is not executed?"""
    for part, extent in zip(index, buffer.shape, strict=True):
        low, high = bounds(part, known)
        if low is None or low < 0 or high is None or high >= extent:
            return False
    return True


def run_of(uses: list[Use]) -> tuple[int, int] | None:
    """The first longest range of statements that only accumulate, and do so from lanes."""
    start = 0
    for stop in range(len(uses) + 1):
        if stop == len(uses) or uses[stop].spoiled or not _agree(uses[start : stop + 1]):
            inside = [n for n in range(start, stop) if uses[n].cells]
            if inside:
                return inside[0], inside[-1] + 1
            start = stop + (stop < len(uses) and uses[stop].spoiled)
    return None


def _agree(uses: list[Use]) -> bool:
    return len({use.reducer for use in uses if use.reducer is not None}) <= 1
