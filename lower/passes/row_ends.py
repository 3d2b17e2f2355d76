"""What rows in lines end with: the last iteration, if it computes their last cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...algo.tensor_expr.affine import Interval, linear, normalize
from ...algo.tensor_expr.build import const, sub
from ...algo.tensor_expr.expr import Const, Expr, accesses
from ..ir import Alloc, Block, Buffer, For, Let, Stmt, Store, Update, expressions, walk
from ..lanes import step
from .lines import LINE, place
from .simplify import simplified
from .turned import End, Part, Row, at


def end_of(
    loop: For, rows: Sequence[Row], buffer: Buffer, known: Mapping[str, Interval]
) -> End | None:
    """What the one iteration of a loop stores of rows; None if that is something else than equally
    many cells of each, in order from where a full iteration would start."""
    if normalize(sub(loop.hi, loop.lo), known) != const(1):
        return None
    body = simplified(loop, known)
    counts, places = [0] * len(rows), {}
    firsts = [row.first for row in rows]
    starts = [place(at(part, loop.lo, loop.var), buffer) for part in firsts]
    for part in _stored(body):
        vector, store = part
        if store.buffer != buffer.name:
            continue
        cells = const(1) if vector is None else normalize(sub(vector.hi, vector.lo))
        if vector is not None:
            line = vector.lanes * buffer.dtype.itemsize == LINE  # of parts LLVM makes memory
            if not line or step(buffer, store.index, vector.var) != 1:
                return None
        first = place(at(part), buffer)
        row = next((r for r, s in enumerate(starts) if apart(s, first) == counts[r]), None)
        if row is None or not isinstance(cells, Const):
            return None
        places[part] = row, counts[row]
        counts[row] += int(cells.value)
    if min(counts) != max(counts) or not places or not alone(body, buffer.name, len(places)):
        return None
    return End(body, counts[0], places)


def _stored(stmt: Stmt) -> Iterator[Part]:
    """The stores of cells and vectors that a statement makes once, in order."""
    match stmt:
        case Block(stmts):
            for inner in stmts:
                yield from _stored(inner)
        case Alloc(_, body) | Let(_, _, body):
            yield from _stored(body)
        case For(kind="vector", body=body):
            for inner in body.stmts if isinstance(body, Block) else (body,):
                if isinstance(inner, Store):
                    yield stmt, inner
        case Store():
            yield None, stmt


def alone(stmt: Stmt, name: str, stores: int) -> bool:
    """Is a buffer touched by so many stores alone?"""
    items = list(walk(stmt))
    read = {cell.tensor for item in items for e in expressions(item) for cell in accesses(e)}
    written = [item for item in items if isinstance(item, (Store, Update)) and item.buffer == name]
    plain = all(isinstance(item, Store) for item in written)
    return name not in read and plain and len(written) == stores


def apart(a: Expr, b: Expr) -> int | None:
    """How far a place lies behind another one, if that is a number."""
    form = linear(sub(b, a))
    return None if form is None or form.terms else form.const
