"""Dot loops: four products of unsigned by signed bytes are added to every lane at once.

The four bytes of a lane are one word. Where they are neighbours in memory it is loaded as one;
else it is put together from the bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from ..algo.dtypes import i8, i64, u8
from ..algo.tensor_expr.affine import linear
from ..algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, Index, indices_of
from ..algo.tensor_expr.types import dtype_of
from ..lower.ir import For, Update
from ..sched.loop.dot import DEPTH, factors
from . import emit_index, emit_memory
from .emit_address import is_vector_offset, offset_of
from .emit_expr import value
from .frame import Frame
from .values import I32, I64, Value, constant, is_vector, like


def dot(f: Frame, loop: For, lo: Value, hi: Value, serial: Callable[[], None]) -> None:
    """The loop by one instruction where it has all four iterations, else by `serial`.

    A loop of another form than the instruction's (what it adds to is no run of i32, or its factors
    have one sign) is an ordinary one.
    """
    found = _operands(f, loop)
    count = emit_index.difference(f, hi, lo)
    if found is None or count.constant not in (None, DEPTH):
        serial()
        return
    update, unsigned, signed = found

    def at_once() -> None:
        with f.fresh_memo():
            at = tuple(value(f, i) for i in update.index)
            words = [
                _in_lanes(f, _word(f, operand, loop.var, lo)) for operand in (unsigned, signed)
            ]
            old = emit_memory.load(f, update.buffer, at)
            new = _instruction(f, f.vector(old), *words)
            emit_memory.store(f, update.buffer, at, Value(old.dtype, new))

    if count.constant == DEPTH:
        at_once()
    else:
        full = f.ib.icmp_signed("==", f.scalar(count), I64(DEPTH))
        f.if_else(full, at_once, serial)


def _operands(f: Frame, loop: For) -> tuple[Update, Expr, Expr] | None:
    """The update of a dot loop, and its unsigned and its signed factor."""
    update = loop.body
    if not isinstance(update, Update) or update.reducer != "sum" or update.atomic:
        return None
    if f.lanes not in f.target.dots or any(loop.var in indices_of(i) for i in update.index):
        return None
    types = {name: storage.buffer.dtype for name, storage in f.buffers.items()}
    found = factors(update.value, types)
    with f.fresh_memo():
        at = tuple(value(f, i) for i in update.index)
        offset = offset_of(f, f.buffers[update.buffer], at)
    if found is None or offset.step != 1 or is_vector_offset(offset):
        return None
    signs = tuple(dtype_of(factor, types) for factor in found)
    if signs == (u8, i8):
        return update, found[0], found[1]
    return (update, found[1], found[0]) if signs == (i8, u8) else None


def _instruction(f: Frame, total: ir.Value, unsigned: ir.Value, signed: ir.Value) -> ir.Value:
    words = ir.VectorType(I32, f.lanes)
    name = f"llvm.x86.avx512.vpdpbusd.{32 * f.lanes}"
    return f.ib.call(f.unit.intrinsic(name, words, [words] * 3), [total, unsigned, signed])


def _in_lanes(f: Frame, word: ir.Value) -> ir.Value:
    return word if is_vector(word) else f.splat(word)


def _word(f: Frame, expr: Expr, var: str, lo: Value) -> ir.Value:
    """The four values of a byte, the first lowest: one word, or one a lane where lanes differ."""
    match expr:
        case Const(number):
            return constant(I32, _signed(int(number) % 256 * 0x01010101), f.lanes)
        case Cast(_, arg) if _is_byte(f, arg):
            return _word(f, arg, var, lo)
        case Call("add", (arg, Const(number))) if int(number) % 256 == 128:
            word = _word(f, arg, var, lo)
            return f.ib.xor(word, like(word, _signed(0x80808080)))
        case Access(buffer, indices) if _are_neighbours(f, buffer, indices, var):
            with f.fresh_memo(), f.bound(var, lo):
                return emit_memory.load_words(f, buffer, tuple(value(f, i) for i in indices))
    return _from_bytes(f, expr, var, lo)


def _from_bytes(f: Frame, expr: Expr, var: str, lo: Value) -> ir.Value:
    parts = []
    for n in range(DEPTH):
        here = Value(i64, lo.llvm, lo.bias + n)
        with f.fresh_memo(), f.bound(var, here):
            parts.append(f.vector(value(f, expr)))
    low, high = (_joined(f, parts[n], parts[n + 1]) for n in (0, 2))
    count = f.lanes
    order = [start + part for n in range(count) for start in (n, 2 * count + n)
             for part in (0, count)]  # fmt: skip
    mask = ir.Constant(ir.VectorType(I32, DEPTH * count), [I32(at) for at in order])
    return f.ib.bitcast(f.ib.shuffle_vector(low, high, mask), ir.VectorType(I32, count))


def _joined(f: Frame, one: ir.Value, two: ir.Value) -> ir.Value:
    """The lanes of one vector, then those of another."""
    count = 2 * f.lanes
    mask = ir.Constant(ir.VectorType(I32, count), [I32(n) for n in range(count)])
    return f.ib.shuffle_vector(one, two, mask)


def _is_byte(f: Frame, expr: Expr) -> bool:
    types = {name: storage.buffer.dtype for name, storage in f.buffers.items()}
    return dtype_of(expr, types) in (i8, u8)


def _are_neighbours(f: Frame, buffer: str, indices: tuple[Expr, ...], var: str) -> bool:
    """Do the cells of the four iterations lie side by side?"""
    layout = f.buffers[buffer].buffer
    step = 0
    for index, stride in zip(indices, layout.strides, strict=True):
        if var not in indices_of(index):
            continue
        form = linear(index)
        if form is None or isinstance(stride, str) or layout.bytewise:
            return False
        if any(var in indices_of(atom) for atom in form.terms if atom is not Index(var)):
            return False
        step += form.terms.get(Index(var), 0) * stride
    return step == 1 and f.buffers[buffer].lanes == 1


def _signed(word: int) -> int:
    return (word + 2**31) % 2**32 - 2**31
