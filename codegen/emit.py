"""Loop IR -> LLVM IR: statements. One emitter for the host and for GPUs.

`emit` gives a module whose function takes data pointers. What machines do differently is in a
`Target`. Vector loops become LLVM vectors of exactly their lanes; a last partial vector and
conditions that differ between lanes become masks.
"""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.ir as ir

from ..algo.dtypes import bool_, i64
from ..algo.errors import InternalError
from ..algo.tensor_expr.expr import Call, Const, Expr, Index
from ..algo.tensor_expr.reducers import REDUCERS, Reducer
from ..lower.ir import Alloc, Barrier, Block, For, Function, If, Let, Stmt, Store, Update
from . import emit_index, emit_memory, emit_parallel
from .emit_expr import value
from .emit_operations import apply, bool_arithmetic
from .frame import Frame, Mask, Unit
from .target import Target
from .values import I1, I32, I64, Value, constant
from .workspace import Workspace, buffer_names, workspace


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
    unit.distinguish(buffer_names(function))
    f = Frame(unit, target.declare(module, function))
    target.open(f, function)
    statement(f, function.body)
    target.close(f)
    f.close()
    return Emitted(module, function, layout, tuple(unit.sites), unit.parallel)


def statement(f: Frame, stmt: Stmt) -> None:
    """Emits one statement at the builder's position."""
    match stmt:
        case Block(stmts):
            for part in stmts:
                statement(f, part)
        case For():
            _for(f, stmt)
        case If(cond, then, orelse):
            _if(f, cond, then, orelse)
        case Let(var, expr, body):
            with f.bound(var, evaluate(f, expr)):
                statement(f, body)
        case Alloc(buffer, body):
            with f.allocated(buffer):
                statement(f, body)
        case Store(buffer, index, expr):
            with f.fresh_memo():
                at = tuple(value(f, i) for i in index)
                emit_memory.store(f, buffer, at, _typed(f, buffer, value(f, expr)))
        case Update():
            _update(f, stmt)
        case Barrier():
            f.target.barrier(f)
        case _:
            raise InternalError(f"not a statement of loop IR: {stmt!r}")


def evaluate(f: Frame, expr: Expr) -> Value:
    """The value of one expression of a statement that has no other."""
    with f.fresh_memo():
        return value(f, expr)


def _typed(f: Frame, buffer: str, new: Value) -> Value:
    want = f.buffers[buffer].buffer.dtype
    if new.dtype is not want:
        raise InternalError(f"{buffer} is {want} and the value stored is {new.dtype}")
    return new


# Loops


def _for(f: Frame, loop: For) -> None:
    with f.fresh_memo():  # one memo, so that hi - lo can be seen to be constant
        lo, hi = value(f, loop.lo), value(f, loop.hi)
    if loop.kind == "vector" and loop.lanes > 1:
        _vector(f, loop, lo, hi)
    elif loop.kind == "parallel" and f.target.parallel and f.pool is not None:
        emit_parallel.parallel(f, loop, f.scalar(lo), f.scalar(hi), statement)
    elif "." in loop.kind:
        _axis(f, loop, lo, hi)
    elif lo.varies or hi.varies:
        _ragged(f, loop, lo, hi)
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
    with f.bound(loop.var, Value(i64, var)):
        statement(f, loop.body)
    following = f.ib.add(var, step, flags=("nsw",))
    var.add_incoming(following, f.ib.block)
    f.ib.cbranch(f.ib.icmp_signed("<", following, stop), body, after)
    f.ib.position_at_end(after)


def _ragged(f: Frame, loop: For, lo: Value, hi: Value) -> None:
    """A serial loop whose bounds differ between lanes: over their hull, under masks."""
    if loop.step != 1:
        raise InternalError(f"loop {loop.var} has a step and bounds that differ between lanes")
    hull_lo = Value(i64, _horizontal(f, "min", lo))
    hull_hi = Value(i64, _horizontal(f, "max", hi))
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
    var = Value(i64, lo.llvm, lo.bias, 1)

    def body() -> None:
        f.lanes = loop.lanes
        mask = None
        if known is None or known < loop.lanes:
            steps = ir.Constant(ir.VectorType(I32, f.lanes), [I32(i) for i in range(f.lanes)])
            active = f.splat(f.ib.trunc(f.scalar(extent), I32))  # at most `lanes`, so it fits
            mask = Mask(f.ib.icmp_signed("<", steps, active), True)
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


# Reductions


def _update(f: Frame, stmt: Update) -> None:
    combine = REDUCERS[stmt.reducer].combine
    outer = f.flags
    with f.fresh_memo():
        at = tuple(value(f, i) for i in stmt.index)
        shared = f.lanes > 1 and emit_memory.shares_cell(f, stmt.buffer, at)
        f.flags = ("contract",)
        new = _typed(f, stmt.buffer, value(f, stmt.value))
        # Only a scalar sum is reassociated by LLVM: elsewhere the schedule has said the order.
        f.flags = ("contract", "reassoc") if f.lanes == 1 else ("contract",)
        if shared:
            _update_shared(f, stmt, combine, at, new)
        elif emit_memory.may_collide(f, stmt.buffer, at):
            _update_by_lane(f, stmt, combine, at, new)
        else:
            cell = emit_memory.load(f, stmt.buffer, at)
            emit_memory.store(f, stmt.buffer, at, _combined(f, combine, cell, new))
    f.flags = outer


def _combined(f: Frame, combine: str, cell: Value, new: Value) -> Value:
    varies = cell.varies or new.varies
    a, b = (f.vector(v) if varies else f.scalar(v) for v in (cell, new))
    name = bool_arithmetic(combine) if cell.dtype is bool_ else combine
    return Value(cell.dtype, apply(f, name, cell.dtype, a, b))


def _update_shared(f: Frame, stmt: Update, combine: str, at: tuple[Value, ...], new: Value) -> None:
    total = Value(new.dtype, _horizontal(f, combine, new, REDUCERS[stmt.reducer]))
    cell = emit_memory.load(f, stmt.buffer, at)
    emit_memory.store(f, stmt.buffer, at, _combined(f, combine, cell, total))


def _horizontal(f: Frame, combine: str, lanes: Value, reducer: Reducer | None = None) -> ir.Value:
    """All active lanes' values combined, by halves."""
    dtype = lanes.dtype
    llvm = f.vector(lanes)
    if f.mask is not None:
        reducer = reducer or REDUCERS[combine]
        neutral = value(f, Const(reducer.identity(dtype), dtype))
        llvm = f.ib.select(f.mask.llvm, llvm, f.splat(f.scalar(neutral)))
    name = bool_arithmetic(combine) if dtype is bool_ else combine
    n = f.lanes
    while n > 1:
        n //= 2
        low, high = (
            f.ib.shuffle_vector(
                llvm, llvm, ir.VectorType(I32, n)([I32(i) for i in range(a, a + n)])
            )
            for a in (0, n)
        )
        llvm = apply(f, name, dtype, low, high)
    return f.ib.extract_element(llvm, I32(0))


def _update_by_lane(
    f: Frame, stmt: Update, combine: str, at: tuple[Value, ...], new: Value
) -> None:
    """Lanes may hit the same cell, so they go one after the other."""
    index = [f.vector(i) for i in at]
    llvm, mask, lanes = f.vector(new), f.mask, f.lanes
    f.lanes = 1
    with f.masked(None):
        for lane in range(lanes):
            one = I32(lane)

            def body(one: ir.Value = one) -> None:
                cell_at = tuple(
                    Value(i64, f.ib.extract_element(i, one), data=v.data)
                    for i, v in zip(index, at, strict=True)
                )
                item = Value(new.dtype, f.ib.extract_element(llvm, one))
                cell = emit_memory.load(f, stmt.buffer, cell_at)
                emit_memory.store(f, stmt.buffer, cell_at, _combined(f, combine, cell, item))

            if mask is None:
                body()
            else:
                f.if_else(f.ib.extract_element(mask.llvm, one), body)
    f.lanes = lanes
