"""Loop IR -> LLVM IR: statements. One emitter for the host and for GPUs.

`emit` gives a module whose function takes data pointers. What machines do differently is in a
`Target`. Vector loops become LLVM vectors of exactly their lanes; a last partial vector and
conditions that differ between lanes become masks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import llvmlite.ir as ir

from ..algo.dtypes import i64
from ..algo.errors import InternalError
from ..algo.tensor_expr.expr import Call, Expr, Index, substitute, walk
from ..lower.ir import (
    Alloc,
    Barrier,
    Block,
    For,
    Function,
    If,
    Let,
    Prefetch,
    Stmt,
    Store,
    Update,
)
from ..sched.loop.nest import PARALLEL
from . import (
    emit_dot,
    emit_index,
    emit_loop,
    emit_matrix,
    emit_memory,
    emit_parallel,
    emit_pieces,
    emit_prefetch,
    emit_squares,
    emit_stream,
    emit_tree,
    emit_update,
)
from .emit_expr import value
from .frame import Frame, Mask, Unit
from .spans import of_loop
from .target import Target
from .values import I1, I32, I64, Value, constant
from .workspace import Workspace, neighbours, workspace


@dataclass(frozen=True, slots=True, eq=False)
class Emitted:
    """An LLVM module (as llvmlite builds it) and what its caller must know.

    `sites` describes the statuses 1, 2, ... ; `workspace` says how many bytes the caller provides.
    """

    module: ir.Module
    function: Function
    workspace: Workspace
    sites: tuple[str, ...]
    parallel: bool


def emit(function: Function, target: Target, *, noalias: bool = True) -> Emitted:
    """Emits `function` for `target`. `noalias` False where an output is one of the inputs."""
    module = ir.Module(function.name)
    module.triple = target.triple
    layout = workspace(function, target)
    unit = Unit(module, target, noalias, layout)
    unit.streams = emit_stream.streams(function, target)
    unit.distinguish(neighbours(function))
    unit.matrices = emit_matrix.places(function, target)
    f = Frame(unit, target.declare(module, function))
    target.open(f, function)
    statement(f, function.body)
    emit_stream.fence(f)
    target.close(f)
    f.close()
    return Emitted(module, function, layout, tuple(unit.sites), unit.parallel)


def statement(f: Frame, stmt: Stmt) -> None:
    """Emits one statement at the builder's position."""
    if stmt in f.unit.matrices and not f.configured:
        emit_matrix.configured(f, lambda: statement(f, stmt))
        return
    match stmt:
        case Block(stmts):
            emit_pieces.block(f, stmts, statement)
        case For():
            _for(f, stmt)
        case If(cond, then, orelse):
            _if(f, cond, then, orelse)
        case Let(var, expr, body):
            with f.bound(var, replace(evaluate(f, expr), data=False)):
                statement(f, body)
        case Alloc(buffers, body):
            with f.allocated(buffers):
                statement(f, body)
        case Store(buffer, index, expr):
            with f.fresh_memo():
                at = tuple(value(f, i) for i in index)
                new = emit_update.typed(f, buffer, emit_tree.combined(f, expr))
                emit_memory.store(f, buffer, at, new)
        case Update():
            guard, stmt = _of_nothing(f, stmt)
            if guard is not None:
                _if(f, guard, stmt, None)
            else:
                emit_update.update(f, stmt)
        case Prefetch(cell):
            with f.fresh_memo():
                emit_prefetch.prefetch(f, cell)
        case Barrier():
            f.target.barrier(f)
        case _:
            raise InternalError(f"not a statement of loop IR: {stmt!r}")


def _of_nothing(f: Frame, stmt: Update) -> tuple[Expr | None, Update]:
    """What a tensor without elements is updated under, and how. Where a condition does not hold an
    update adds nothing to its first element, which there is not: so it becomes the statement's."""
    if 0 not in f.buffers[stmt.buffer].buffer.shape:
        return None, stmt
    parts = (item for part in stmt.index for item in walk(part))
    found = next((item for item in parts if isinstance(item, Call) and item.op == "where"), None)
    if found is None:
        return None, stmt
    guard, chosen, _ = found.args
    index = tuple(substitute(part, {found: chosen}) for part in stmt.index)
    return guard, Update(stmt.buffer, index, stmt.reducer, stmt.value, stmt.atomic)


def evaluate(f: Frame, expr: Expr) -> Value:
    """The value of one expression of a statement that has no other."""
    with f.fresh_memo():
        return value(f, expr)


# Loops


def _for(f: Frame, loop: For) -> None:
    if loop.kind == "matrix":
        emit_matrix.square(f, loop)
        return
    with f.fresh_memo():  # one memo, so that hi - lo can be seen to be constant
        lo, hi = value(f, loop.lo), value(f, loop.hi)
    if loop.kind == "vector" and loop.lanes > 1:
        _vector(f, loop, lo, hi)
    elif loop.kind in PARALLEL and f.target.parallel and f.pool is not None:
        emit_parallel.parallel(f, loop, lo, hi, statement)
    elif "." in loop.kind:
        _axis(f, loop, lo, hi)
    elif lo.varies or hi.varies:
        _ragged(f, loop, lo, hi)
    elif copies := emit_squares.squares(f, loop):
        emit_squares.transpose(f, loop, copies, lo, hi, _serial)
    elif loop.kind == "dot":
        emit_dot.dot(f, loop, lo, hi, lambda: _serial(f, loop, lo, hi))
    else:
        _serial(f, loop, lo, hi)


def _serial(f: Frame, loop: For, lo: Value, hi: Value) -> None:
    first, last = lo.constant, hi.constant
    if first is not None and last is not None:
        if first >= last:
            return
        if first + loop.step >= last:
            with f.bound(loop.var, lo):
                statement(f, loop.body)
            return
    start, stop, step = f.scalar(lo), f.scalar(hi), I64(loop.step)
    before, body, after = f.ib.block, f.block(loop.var), f.block(f"{loop.var}.end")
    if first is not None and last is not None:
        f.ib.branch(body)
    else:
        f.ib.cbranch(f.ib.icmp_signed("<", start, stop), body, after)
    f.ib.position_at_end(body)
    var = f.ib.phi(I64)
    var.add_incoming(start, before)
    with f.bound(loop.var, Value(i64, var, span=of_loop(lo.bounds, hi.bounds))):
        statement(f, loop.body)
    if loop.until is not None:
        onward = f.block(f"{loop.var}.on")
        f.ib.cbranch(f.scalar(evaluate(f, loop.until)), after, onward)
        f.ib.position_at_end(onward)
    following = f.ib.add(var, step, flags=("nsw",))
    var.add_incoming(following, f.ib.block)
    back = f.ib.cbranch(f.ib.icmp_signed("<", following, stop), body, after)
    emit_loop.tell(f, loop, back)
    f.ib.position_at_end(after)


def _ragged(f: Frame, loop: For, lo: Value, hi: Value) -> None:
    """A serial loop whose bounds differ between lanes: over their hull, under masks."""
    if loop.step != 1:
        raise InternalError(f"loop {loop.var} has a step and bounds that differ between lanes")
    hull_lo = Value(i64, emit_update.horizontal(f, "min", lo), span=lo.bounds)
    hull_hi = Value(i64, emit_update.horizontal(f, "max", hi), span=hi.bounds)
    inside = Call(
        "and", (Call("le", (loop.lo, Index(loop.var))), Call("lt", (Index(loop.var), loop.hi)))
    )
    body = If(inside, loop.body)
    _serial(f, For(loop.var, loop.lo, loop.hi, body), hull_lo, hull_hi)


def _vector(f: Frame, loop: For, lo: Value, hi: Value) -> None:
    if f.lanes != 1 or loop.step != 1:
        raise InternalError(f"vector loop {loop.var} is inside another, or has a step")
    extent = emit_index.difference(f, hi, lo)
    known = extent.constant
    if known is not None and known <= 0:
        return
    var = Value(i64, lo.llvm, lo.bias, 1, span=of_loop(lo.bounds, hi.bounds))

    def body() -> None:
        f.lanes = loop.lanes
        mask = None
        if known is None or known < loop.lanes:
            steps = ir.Constant(ir.VectorType(I32, f.lanes), [I32(i) for i in range(f.lanes)])
            count = f.scalar(extent)
            active = f.splat(f.ib.trunc(count, I32))  # at most `lanes`, so it fits
            mask = Mask(f.ib.icmp_signed("<", steps, active), True, count)
        with f.masked(mask), f.bound(loop.var, var):
            statement(f, loop.body)
        f.lanes = 1

    if known is None:
        f.if_else(f.ib.icmp_signed(">", f.scalar(extent), I64(0)), body)
    else:
        body()


def _axis(f: Frame, loop: For, lo: Value, hi: Value) -> None:
    """Every thread takes the iteration at its own position."""
    at = emit_index.scaled(f, Value(i64, f.target.axis(f, loop.kind)), loop.step)
    var = emit_index.added(f, lo, at)
    extent = emit_index.difference(f, hi, lo)
    var = replace(var, span=of_loop(lo.bounds, hi.bounds))

    def body() -> None:
        with f.bound(loop.var, var):
            statement(f, loop.body)

    if f.target.covers(loop.kind, extent.constant):
        body()
    else:
        f.if_else(f.ib.icmp_signed("<", f.scalar(var), f.scalar(hi)), body)


# Conditions


def _if(f: Frame, cond: Expr, then: Stmt, orelse: Stmt | None) -> None:
    c = evaluate(f, cond)
    no = None if orelse is None else (lambda: statement(f, orelse))
    if not c.varies:
        f.if_else(f.scalar(c), lambda: statement(f, then), no)
        return
    outside = constant(I1, 1, f.lanes)
    for lanes, part in ((c.llvm, then), (f.ib.xor(c.llvm, outside), orelse)):
        if part is not None:
            active = f.narrow(lanes)

            def body(part: Stmt = part, active: ir.Value = active) -> None:
                with f.masked(Mask(active, True)):
                    statement(f, part)

            f.if_else(f.any(active), body)
