"""Updates: a value is combined into a cell, in every lane, or by many threads at once."""

from __future__ import annotations

import llvmlite.ir as ir

from ..algo.dtypes import bool_, f32, f64, i64
from ..algo.errors import InternalError, ScheduleError
from ..algo.tensor_expr.expr import Call, Const, Expr
from ..algo.tensor_expr.reducers import REDUCERS, Reducer
from ..lower.ir import Update
from . import elementary, emit_memory
from .emit_address import address
from .emit_atomic import combine_atomically, combined
from .emit_expr import value
from .emit_operations import apply, bool_arithmetic
from .frame import Frame
from .values import I32, Value


def update(f: Frame, stmt: Update) -> None:
    """buffer[index] = combine(buffer[index], value) in every active lane."""
    combine = REDUCERS[stmt.reducer].combine
    outer = f.flags
    with f.fresh_memo():
        at = tuple(value(f, i) for i in stmt.index)
        shared = f.lanes > 1 and emit_memory.shares_cell(f, stmt.buffer, at)
        if not shared and (fused := _fused(f, stmt, at)) is not None:
            emit_memory.store(f, stmt.buffer, at, fused)
            return
        if stmt.reducer == "sum":
            _addends(f, stmt.value)
        new = typed(f, stmt.buffer, value(f, stmt.value))
        # Only a scalar sum is reassociated by LLVM: elsewhere the schedule has said the order.
        f.flags = ("contract", "reassoc") if f.lanes == 1 else ("contract",)
        if shared:
            new = Value(new.dtype, horizontal(f, combine, new, REDUCERS[stmt.reducer]))
            _into(f, stmt, at, new)
        elif f.lanes > 1 and (stmt.atomic or emit_memory.may_collide(f, stmt.buffer, at)):
            _by_lane(f, stmt, at, new)
        else:
            _into(f, stmt, at, new)
    f.flags = outer


def _fused(f: Frame, stmt: Update, at: tuple[Value, ...]) -> Value | None:
    """A product added to a cell for each lane, in one instruction, if that is what is asked for.

    LLVM would contract it, but not where it moved a change of width in between.
    """
    dtype = f.buffers[stmt.buffer].buffer.dtype
    match stmt:
        case Update(reducer="sum", value=Call("mul", (a, b)), atomic=False) if (
            f.lanes > 1 and f.target.fma and dtype in (f32, f64)
        ):
            if emit_memory.may_collide(f, stmt.buffer, at):
                return None
            left, right = value(f, a), value(f, b)
            if left.dtype is not dtype or right.dtype is not dtype:
                return None
            cell = emit_memory.load(f, stmt.buffer, at)
            parts = (f.vector(v) for v in (left, right, cell))
            return Value(dtype, elementary.intrinsic(f, "fma", *parts))
    return None


def _addends(f: Frame, expr: Expr) -> None:
    """Computes what a sum adds, its products so that they may be contracted with the sum.

    What the products are of is computed as it is written: there, and in what is compared, it has
    the same bits in every nest. Derivatives ask `x + 2*y == m` where `m` is the maximum of such.
    """
    stack, seen = [expr], {expr}
    while stack:
        match item := stack.pop():
            case Call("add" | "sub" | "neg", args):
                stack += [arg for arg in reversed(args) if arg not in seen]
                seen.update(args)
            case Call("mul", args):
                for arg in args:
                    value(f, arg)
            case _:
                value(f, item)
    outer, f.flags = f.flags, ("contract",)
    value(f, expr)
    f.flags = outer


def _into(f: Frame, stmt: Update, at: tuple[Value, ...], new: Value) -> None:
    """Combines into one cell, or into cells that differ between lanes."""
    combine = REDUCERS[stmt.reducer].combine
    if not stmt.atomic:
        cell = emit_memory.load(f, stmt.buffer, at)
        emit_memory.store(f, stmt.buffer, at, combined(f, combine, cell, new))
        return
    buffer = f.buffers[stmt.buffer].buffer
    if buffer.align < buffer.dtype.itemsize:
        raise ScheduleError(
            f"{f.unit.module.name}: {buffer.name} is updated atomically, and its elements are not "
            f"aligned to {buffer.dtype.itemsize} bytes; give an aligned array, or use privatize"
        )
    pointer = address(f, stmt.buffer, at)

    def atomically() -> None:
        combine_atomically(f, new.dtype, combine, pointer, f.scalar(new))

    if f.mask is not None and not f.mask.some:
        f.if_else(f.any(f.mask.llvm), atomically)
    else:
        atomically()


def horizontal(f: Frame, combine: str, lanes: Value, reducer: Reducer | None = None) -> ir.Value:
    """All active lanes' values combined, by halves."""
    dtype = lanes.dtype
    llvm = f.vector(lanes)
    if f.mask is not None:
        reducer = reducer or REDUCERS[combine]
        neutral = value(f, Const(reducer.identity(dtype), dtype))
        llvm = f.ib.select(f.mask.llvm, llvm, f.splat(f.scalar(neutral)))
    name = bool_arithmetic(combine) if dtype is bool_ else combine
    if name == "or" and dtype is bool_:
        return f.any(llvm)
    n = f.lanes // 2
    while n > 1:
        low, high = (
            f.ib.shuffle_vector(
                llvm, llvm, ir.VectorType(I32, n)([I32(i) for i in range(a, a + n)])
            )
            for a in (0, n)
        )
        llvm = apply(f, name, dtype, low, high)
        n //= 2
    return apply(f, name, dtype, *(f.ib.extract_element(llvm, I32(lane)) for lane in (0, 1)))


def _by_lane(f: Frame, stmt: Update, at: tuple[Value, ...], new: Value) -> None:
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
                _into(f, stmt, cell_at, Value(new.dtype, f.ib.extract_element(llvm, one)))

            if mask is None:
                body()
            else:
                f.if_else(f.ib.extract_element(mask.llvm, one), body)
    f.lanes = lanes


def typed(f: Frame, buffer: str, new: Value) -> Value:
    """The value, which must be of the buffer's type."""
    want = f.buffers[buffer].buffer.dtype
    if new.dtype is not want:
        raise InternalError(f"{buffer} is {want} and the value stored is {new.dtype}")
    return new
