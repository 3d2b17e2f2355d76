"""Vectors that would be stored past the caches across lines are turned, and stored as lines.

    for i in 0 .. 64:                          let y.turn0 = -1033*r % 16:
        for j in 0 .. 16 vector(16):               for j: y.line[0, 16 + j] = S(0, j)
            y[r, 16*i + j] = S(i, j)               for y.cell: the first line's cells in the row
    for j in 0 .. 9 vector(16):                    for y.cell: y.line[0, y.cell] =
        y[r, 1024 + j] = T(j)                          y.line[0, 16 + y.cell]
                                   ==>             for i in 1 .. 64:
                                                       for j: y.line[0, 16 + j] = S(i, j)
                                                       for y.cell: y[r, 16*i - 16 + y.turn0
                                         + y.cell] = y.line[0, y.turn0 + y.cell]
                                                       for y.cell: y.line[0, y.cell] = as above
                                                   for y.cell: the last line's cells in the row

Rows of a tile begin at different places of lines, and have iterations in common, so that no start
of the loop serves all (`lines.py` is for one row). Each row keeps its last vector in registers; a
line is the end of that one and the start of the next, shuffled. Iterations in which vectors end at
a row's end, under a condition that first ones fulfil, come after the loop. What they compute is
stored together with what is left of the last vector, if it is one iteration that computes it in
whole registers: two stores to a line that no cache holds cost more (`row_ends.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from ...algo.tensor_expr.affine import bounds, linear, normalize
from ...algo.tensor_expr.build import (
    add,
    all_of,
    conjuncts,
    const,
    floordiv,
    minimum,
    mod,
    mul,
    sub,
)
from ...algo.tensor_expr.expr import Call, Expr, Index, accesses, indices_of
from ...algo.tensor_expr.expr import substitute as replaced
from ...sched.loop.machine import Machine
from ..ir import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    If,
    Let,
    Stmt,
    Store,
    block,
    rebuild,
    walk,
    with_,
)
from ..lanes import Scope, step
from ..ranges import inside
from .lines import LINE, SHORTEST, place
from .row_ends import alone, apart, end_of
from .simplify import simplify
from .turned import NOTHING, Lines, Row, at

WORDS = (4, 8)
"""Bytes of the elements of which registers are shuffled by data."""


Conditions = tuple[Expr, ...]


def behind(function: Function, machine: Machine) -> Function:
    """The function with whole lines stored where registers are lines."""
    if machine.vector_bytes != LINE:
        return function
    params = {param.name: param for param in function.params}
    body = _stmt(function.body, _Around(Scope(params, {}), {}), machine)
    if body is function.body:
        return function
    return simplify(Function(function.name, function.params, body))


@dataclass(frozen=True, slots=True)
class _Around:
    """What is known at a statement, and what the names are that `Let`s around it give."""

    scope: Scope
    lets: Mapping[Expr, Expr]

    def within(self, stmt: Stmt) -> _Around:
        buffers, lets = self.scope.buffers, self.lets
        if isinstance(stmt, Alloc):
            buffers = {**buffers, **{buffer.name: buffer for buffer in stmt.buffers}}
        if isinstance(stmt, Let):
            lets = {**lets, Index(stmt.var): replaced(stmt.value, lets)}
        return _Around(Scope(buffers, inside(stmt, self.scope.known)), lets)


def _stmt(stmt: Stmt, around: _Around, machine: Machine) -> Stmt:
    if isinstance(stmt, For) and stmt.kind == "serial":
        for name in dict.fromkeys(store.buffer for _, _, store in _stored(stmt.body)):
            if name in around.scope.buffers:
                found = _lines(stmt, name, around, machine)
                if found is not None:
                    return found
    within = around.within(stmt)
    return rebuild(stmt, lambda inner: _stmt(inner, within, machine))


def _lines(loop: For, name: str, around: _Around, machine: Machine) -> Stmt | None:
    """The loop with the stores to a buffer in whole lines; None if they are so, or cannot be."""
    scope = around.scope
    buffer = scope.buffers[name]
    if not buffer.stream or buffer.dtype.itemsize not in WORDS or loop.step != 1 or loop.until:
        return None
    found = [under for under, _, store in _stored(loop.body) if store.buffer == name]
    conditions = tuple(dict.fromkeys(part for under in found for part in under))
    if fixed := next((part for part in conditions if _is_fixed(loop, part)), None):
        taken, other = (
            with_(loop, body=_where(loop.body, (fixed,), holds)) for holds in (True, False)
        )
        whole = _lines(taken, name, around, machine)
        return None if whole is None else If(fixed, whole, _stmt(other, around, machine))
    body = _where(loop.body, conditions, True)
    rows = _rows(loop, body, buffer)
    if rows is None or sum(len(row.parts) for row in rows) > machine.registers // 2:
        return None
    cells = LINE // buffer.dtype.itemsize
    turns = [_turn(loop, row, buffer, around) for row in rows]
    if all(turn == const(0) for turn in turns):
        return None
    ends = [_end(loop, cond) for cond in conditions]
    if None in ends:
        return None
    end = normalize(reduce(minimum, [loop.hi, *(e for e in ends if e is not None)]), scope.known)
    least = bounds(normalize(sub(end, loop.lo), scope.known), scope.known)[0]
    each = len(rows[0].parts)
    if least is None or least * each < SHORTEST:
        return None
    rest = with_(loop, lo=end)
    last = end_of(rest, rows, buffer, scope.known)
    lines = Lines(with_(loop, hi=end, body=body), buffer, cells, rows, last or NOTHING)
    return block(lines.stmt(turns), *([rest] if last is None else []))


def _stored(stmt: Stmt, under: Conditions = ()) -> Iterator[tuple[Conditions, For, Store]]:
    """The stores of vectors in the iterations of a loop with this body, in order, as long as only
    conditions are around."""
    match stmt:
        case Block(stmts):
            for inner in stmts:
                yield from _stored(inner, under)
        case Alloc(_, body) | Let(_, _, body):
            yield from _stored(body, under)
        case If(cond, then, _):
            yield from _stored(then, (*under, *conjuncts(cond)))
        case For(kind="vector", body=body):
            for inner in body.stmts if isinstance(body, Block) else (body,):
                if isinstance(inner, Store):
                    yield under, stmt, inner


def _where(stmt: Stmt, conditions: Conditions, holds: bool) -> Stmt:
    """The body of a loop where conditions hold, or where they do not."""
    if isinstance(stmt, If):
        parts = conjuncts(stmt.cond)
        left = [part for part in parts if part not in conditions]
        if len(left) < len(parts) and not holds:
            return block() if stmt.orelse is None else _where(stmt.orelse, conditions, holds)
        if not left:
            return _where(stmt.then, conditions, holds)
        stmt = If(all_of(left), stmt.then, stmt.orelse)
    if isinstance(stmt, (Block, Alloc, Let, If)):
        return rebuild(stmt, lambda inner: _where(inner, conditions, holds))
    return stmt


def _is_fixed(loop: For, cond: Expr) -> bool:
    """Is a condition the same in all iterations?"""
    return _bound(loop).isdisjoint(indices_of(cond)) and not list(accesses(cond))


def _bound(stmt: Stmt) -> set[str]:
    return {item.var for item in walk(stmt) if isinstance(item, (For, Let))}


def _rows(loop: For, body: Stmt, buffer: Buffer) -> list[Row] | None:
    """The rows of lines in which a body stores all that it does to a buffer; None if it does so
    otherwise, or reads it."""
    cells = LINE // buffer.dtype.itemsize
    found = [(vector, store) for _, vector, store in _stored(body) if store.buffer == buffer.name]
    bound = _bound(body)
    if not alone(body, buffer.name, len(found)):
        return None
    rows: list[Row] = []
    for vector, store in found:
        names = {name for index in store.index for name in indices_of(index)}
        full = normalize(sub(vector.hi, vector.lo)) == const(cells) and vector.lanes == cells
        if not full or step(buffer, store.index, vector.var) != 1:
            return None
        if not bound.isdisjoint(names - {vector.var}):
            return None
        part = (vector, store)
        start = place(at(part), buffer)
        for n, row in enumerate(rows):
            if apart(place(at(row.parts[-1]), buffer), start) == cells:
                rows[n] = Row((*row.parts, part))
                break
        else:
            rows.append(Row((part,)))
    for n, row in enumerate(rows):
        if step(buffer, row.first[1].index, loop.var) != cells * len(row.parts):
            return None
        if not all(_different(loop, row.first, other.first) for other in rows[:n]):
            return None
    return rows


def _different(loop: For, a: tuple[For, Store], b: tuple[For, Store]) -> bool:
    """Does an index, the same in all iterations, tell rows from each other?"""
    for mine, its in zip(a[1].index, b[1].index, strict=True):
        form = linear(sub(mine, its))
        varies = {loop.var, a[0].var, b[0].var} & {*indices_of(mine), *indices_of(its)}
        if form is not None and not varies and not form.terms and form.const:
            return True
    return False


def _turn(loop: For, row: Row, buffer: Buffer, around: _Around) -> Expr:
    """How many cells the first line of a row lies behind its first cell."""
    start = place(at(row.first, loop.lo, loop.var), buffer)
    start = mul(const(-1), replaced(start, around.lets))
    return normalize(mod(start, const(LINE // buffer.dtype.itemsize)), around.scope.known)


def _end(loop: For, cond: Expr) -> Expr | None:
    """The first iteration from which on a condition fails, if it holds before."""
    match cond:
        case Call("ge" | "gt" as op, (a, b)):
            left = sub(a, b)
        case Call("le" | "lt" as op, (a, b)):
            left = sub(b, a)
        case _:
            return None
    form = linear(left)
    factor = 0 if form is None or form.inside(loop.var) else form.of(Index(loop.var))
    if factor >= 0 or list(accesses(left)) or not _bound(loop.body).isdisjoint(indices_of(left)):
        return None
    rest = sub(add(left, mul(const(-factor), Index(loop.var))), const(int(op in ("gt", "lt"))))
    return add(floordiv(normalize(rest), const(-factor)), const(1))
