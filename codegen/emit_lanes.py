"""A cell a lane: gathers and scatters.

No processor has them for elements of less than 32 bits, so LLVM reads and writes these one by one,
each behind a branch where lanes may be off. Of unrolled statements that would be more than it can
schedule in reasonable time: what comes after the first `NARROW` is a loop over the lanes, written
once for each kind.
"""

from __future__ import annotations

import llvmlite.ir as ir

from .emit_address import pointer_a_lane
from .frame import Frame, Storage
from .values import I1, I8, I32, I64, VOID, Value, constant, suffix

NARROW = 1024
"""Lanes of elements of less than 32 bits that are written out, in all of a kernel."""


def gather(f: Frame, storage: Storage, offset: Value, vec: ir.VectorType) -> ir.Instruction:
    """Reads a cell for each active lane."""
    pointers, mask = pointer_a_lane(f, storage, offset), _all(f)
    if _is_crowded(f, vec):
        return f.ib.call(_loop(f, "gather", vec, pointers.type), [pointers, mask])
    name = f"llvm.masked.gather.{suffix(vec)}.v{vec.count}{storage.pointer.type.intrinsic_name}"
    fn = f.unit.intrinsic(name, vec, [pointers.type, I32, mask.type, vec])
    return f.ib.call(fn, [pointers, _align(storage), mask, vec(None)])


def scatter(f: Frame, storage: Storage, offset: Value, raw: ir.Value) -> ir.Instruction:
    """Writes a cell for each active lane, the last lane last."""
    pointers, mask = pointer_a_lane(f, storage, offset), _all(f)
    if _is_crowded(f, raw.type):
        return f.ib.call(_loop(f, "scatter", raw.type, pointers.type), [pointers, mask, raw])
    name = f"llvm.masked.scatter.{suffix(raw.type)}.v{f.lanes}"
    name += storage.pointer.type.intrinsic_name
    fn = f.unit.intrinsic(name, VOID, [raw.type, pointers.type, I32, mask.type])
    return f.ib.call(fn, [raw, pointers, _align(storage), mask])


def _align(storage: Storage) -> ir.Constant:
    return I32(min(storage.buffer.dtype.itemsize, storage.buffer.align))


def _all(f: Frame) -> ir.Value:
    return constant(I1, 1, f.lanes) if f.mask is None else f.mask.llvm


def _is_crowded(f: Frame, vec: ir.VectorType) -> bool:
    if suffix(vec.element) not in ("i8", "i16", "f16") or not f.target.parallel:
        return False
    f.unit.narrow += vec.count
    return f.unit.narrow > NARROW


def _loop(f: Frame, what: str, vec: ir.VectorType, pointers: ir.VectorType) -> ir.Function:
    """The function of pointers, a mask (and values) that reads or writes lane by lane."""
    key = (what, suffix(vec))
    if key in f.unit.functions:
        return f.unit.functions[key]
    n, masks = vec.count, ir.VectorType(I1, vec.count)
    given = [pointers, masks] if what == "gather" else [pointers, masks, vec]
    kind = ir.FunctionType(vec if what == "gather" else VOID, given)
    fn = ir.Function(f.unit.module, kind, f"{what}.{suffix(vec)}")
    fn.linkage = "internal"
    fn.attributes.add("noinline")
    f.unit.functions[key] = fn
    ib = ir.IRBuilder(fn.append_basic_block("entry"))
    at, on, cells = (ib.alloca(t) for t in (pointers, ir.VectorType(I8, n), vec))
    ib.store(fn.args[0], at)
    ib.store(ib.zext(fn.args[1], ir.VectorType(I8, n)), on)
    ib.store(fn.args[2] if what == "scatter" else vec([0] * n), cells)
    body, active, onward, end = (
        fn.append_basic_block(name) for name in ("lane", "active", "onward", "end")
    )
    start = ib.block
    ib.branch(body)
    ib.position_at_end(body)
    lane = ib.phi(I64)
    lane.add_incoming(I64(0), start)
    flag = ib.load(ib.gep(on, [lane], source_etype=I8), typ=I8)
    ib.cbranch(ib.icmp_unsigned("!=", flag, I8(0)), active, onward)
    ib.position_at_end(active)
    pointer = ib.load(ib.gep(at, [lane], source_etype=pointers.element), typ=pointers.element)
    cell = ib.gep(cells, [lane], source_etype=vec.element)
    cell.type = pointers.element  # llvmlite says one to a vector here
    source, target = (pointer, cell) if what == "gather" else (cell, pointer)
    ib.store(ib.load(source, typ=vec.element, align=1), target, align=1)
    ib.branch(onward)
    ib.position_at_end(onward)
    following = ib.add(lane, I64(1))
    lane.add_incoming(following, onward)
    ib.cbranch(ib.icmp_unsigned("<", following, I64(n)), body, end)
    ib.position_at_end(end)
    if what == "gather":
        ib.ret(ib.load(cells, typ=vec))
    else:
        ib.ret_void()
    return fn
