"""Atomic updates: one instruction where LLVM has it, else a loop around compare-and-exchange.

The order is monotonic: updates of a cell commute, and whoever reads it afterwards meets the
updating threads first, at the end of a parallel loop, at a barrier, or between two launches.
"""

from __future__ import annotations

import llvmlite.ir as ir

from ..algo.dtypes import DType, bool_
from . import emit_memory
from .emit_operations import apply, bool_arithmetic
from .frame import Frame
from .values import Value, memory_type

ORDER = "monotonic"


def combine_atomically(f: Frame, dtype: DType, combine: str, cell: ir.Value, new: ir.Value) -> None:
    """*cell = combine(*cell, new), whatever other threads do to the cell meanwhile."""
    name = instruction(dtype, combine)
    if name is not None:
        f.ib.atomic_rmw(name, cell, emit_memory.to_memory(f, dtype, new), ORDER)
    else:
        _exchange(f, dtype, combine, cell, new)


def instruction(dtype: DType, combine: str) -> str | None:
    """What `atomicrmw` calls the operation; None where it has none of that meaning.

    The floating-point maximum and minimum of LLVM drop NaN, where ours propagate it.
    """
    if dtype is bool_:
        return {"or": "or", "and": "and"}.get(bool_arithmetic(combine))
    if dtype.is_float:
        return "fadd" if combine == "add" and dtype.bits >= 32 else None
    sign = "u" if dtype.kind == "u" else ""
    return {"add": "add", "max": f"{sign}max", "min": f"{sign}min"}.get(combine)


def _exchange(f: Frame, dtype: DType, combine: str, cell: ir.Value, new: ir.Value) -> None:
    bits = ir.IntType(8 * dtype.itemsize)
    first = f.ib.load_atomic(cell, ORDER, dtype.itemsize, typ=bits)
    before, again = f.ib.block, f.block("again")
    swap, after = f.block("swap"), f.block("swapped")
    f.ib.branch(again)
    f.ib.position_at_end(again)
    old = f.ib.phi(bits)
    old.add_incoming(first, before)
    now = emit_memory.from_memory(f, dtype, _cast(f, old, memory_type(dtype)))
    made = f.scalar(combined(f, combine, now, Value(dtype, new)))
    raw = _cast(f, emit_memory.to_memory(f, dtype, made), bits)
    # Where nothing changes, as for most elements of a maximum, no other thread is disturbed.
    f.ib.cbranch(f.ib.icmp_unsigned("==", raw, old), after, swap)
    f.ib.position_at_end(swap)
    seen = f.ib.cmpxchg(cell, old, raw, ORDER)
    old.add_incoming(f.ib.extract_value(seen, 0), swap)
    f.ib.cbranch(f.ib.extract_value(seen, 1), after, again)
    f.ib.position_at_end(after)


def _cast(f: Frame, value: ir.Value, typ: ir.Type) -> ir.Value:
    return value if value.type == typ else f.ib.bitcast(value, typ)


def combined(f: Frame, combine: str, cell: Value, new: Value) -> Value:
    """combine(cell, new), lane by lane."""
    varies = cell.varies or new.varies
    a, b = (f.vector(v) if varies else f.scalar(v) for v in (cell, new))
    name = bool_arithmetic(combine) if cell.dtype is bool_ else combine
    return Value(cell.dtype, apply(f, name, cell.dtype, a, b))
