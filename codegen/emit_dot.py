"""Dot loops: products of four bytes, or of two bf16, are added to every lane at once.

For unsigned by signed bytes, and for bf16, there may be an instruction. Else a word's numbers are
made wider, those of even and those of odd places: bytes i16, of which x86 adds the products in
pairs, and bf16 f32.
The bytes, or bf16, of a lane are one word. Where they are neighbours in memory it is loaded as one;
else it is put together from them.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from ..algo.dtypes import DType, bf16, i8, i64, u8
from ..algo.tensor_expr.affine import linear
from ..algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, Index, indices_of
from ..algo.tensor_expr.types import dtype_of
from ..lower.ir import For, Update
from ..sched.loop.dot import factors, words
from . import elementary, emit_index, emit_memory
from .emit_address import is_vector_offset, offset_of
from .emit_expr import value
from .frame import Frame
from .values import F32, I16, I32, I64, Value, constant, is_vector, like


def dot(f: Frame, loop: For, lo: Value, hi: Value, serial: Callable[[], None]) -> None:
    """The loop by one instruction where it has all iterations of a word, else by `serial`.

    Of fewer iterations the rest of a word is left out, if it is there in the kernel's own buffers.
    A loop of another form than the instruction's, whose sums are no run of i32 or f32, is an
    ordinary one.
    """
    found = _operands(f, loop)
    count = emit_index.difference(f, hi, lo)
    if found is None:
        serial()
        return
    update, one, two, length = found
    kept = length if count.constant is None else count.constant
    whole = all(_is_whole(f, factor, loop.var, lo) for factor in (one, two))
    if not (kept == length or (whole and 0 < kept < length)):
        serial()
        return

    def at_once() -> None:
        with f.fresh_memo():
            at = tuple(value(f, i) for i in update.index)
            words = [_in_lanes(f, _word(f, operand, loop.var, lo)) for operand in (one, two)]
            if kept < length:
                words = [_first(f, word, kept, length) for word in words]
            old = emit_memory.load(f, update.buffer, at)
            kinds = _kinds(f, one, two)
            if _has_instruction(f, kinds):
                new = _instruction(f, f.vector(old), *words)
            else:
                new = _in_pairs(f, f.vector(old), *words, *kinds)
            emit_memory.store(f, update.buffer, at, Value(old.dtype, new))

    if count.constant is not None:
        at_once()
    else:
        full = f.ib.icmp_signed("==", f.scalar(count), I64(length))
        f.if_else(full, at_once, serial)


def _operands(f: Frame, loop: For) -> tuple[Update, Expr, Expr, int] | None:
    """The update of a dot loop, its factors, the unsigned byte first, and the length of a word."""
    update = loop.body
    if not isinstance(update, Update) or update.reducer != "sum" or update.atomic:
        return None
    if any(loop.var in indices_of(i) for i in update.index):
        return None
    types = {name: storage.buffer.dtype for name, storage in f.buffers.items()}
    found = factors(update.value, types)
    with f.fresh_memo():
        at = tuple(value(f, i) for i in update.index)
        offset = offset_of(f, f.buffers[update.buffer], at)
    if found is None or offset.step != 1 or is_vector_offset(offset):
        return None
    kinds = _kinds(f, *found)
    if kinds == (i8, u8):
        found, kinds = found[::-1], kinds[::-1]
    pairs = f.lanes in f.target.pairs
    return (update, *found, words(kinds[0])) if pairs or _has_instruction(f, kinds) else None


def _kinds(f: Frame, one: Expr, two: Expr) -> tuple[DType, DType]:
    types = {name: storage.buffer.dtype for name, storage in f.buffers.items()}
    return dtype_of(one, types), dtype_of(two, types)


def _has_instruction(f: Frame, kinds: tuple[DType, DType]) -> bool:
    if kinds == (bf16, bf16):
        return f.lanes in f.target.halves
    return kinds == (u8, i8) and f.lanes in f.target.dots


class _BFloat(ir.Type):  # type: ignore[misc]  # llvmlite has no types
    """LLVM's bfloat, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def _in_pairs(f: Frame, total: ir.Value, one: ir.Value, two: ir.Value, *kinds: DType) -> ir.Value:
    """The numbers made wider, the even ones and the odd ones, and the sums of their products."""
    if bf16 in kinds:
        for a, b in zip(*(_as_floats(f, word) for word in (one, two)), strict=True):
            if f.target.fma:
                total = elementary.intrinsic(f, "fma", a, b, total)
            else:
                total = f.ib.fadd(total, f.ib.fmul(a, b))
        return total
    shorts = ir.VectorType(I16, 2 * f.lanes)
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[f.lanes]
    add_pairs = f.unit.intrinsic(f"llvm.x86.{name}", total.type, [shorts, shorts])
    parts = []
    for word, dtype in zip((one, two), kinds, strict=True):
        both = f.ib.bitcast(word, shorts)
        shift = f.ib.ashr if dtype is i8 else f.ib.lshr
        eight = like(both, 8)
        parts.append((shift(f.ib.shl(both, eight), eight), shift(both, eight)))
    for a, b in zip(*parts, strict=True):
        total = f.ib.add(total, f.ib.call(add_pairs, [a, b]))
    return total


def _as_floats(f: Frame, word: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The two bf16 of a word as f32."""
    both = f.ib.shl(word, like(word, 16)), f.ib.and_(word, like(word, _signed(0xFFFF0000)))
    low, high = (f.ib.bitcast(part, ir.VectorType(F32, f.lanes)) for part in both)
    return low, high


def _instruction(f: Frame, total: ir.Value, one: ir.Value, two: ir.Value) -> ir.Value:
    bits = 32 * f.lanes
    if total.type.element == F32:
        halves = ir.VectorType(_BFloat(), 2 * f.lanes)
        name, kinds = f"llvm.x86.avx512bf16.dpbf16ps.{bits}", [total.type, halves, halves]
        one, two = (f.ib.bitcast(word, halves) for word in (one, two))
    else:
        name, kinds = f"llvm.x86.avx512.vpdpbusd.{bits}", [total.type] * 3
    return f.ib.call(f.unit.intrinsic(name, total.type, kinds), [total, one, two])


def _first(f: Frame, word: ir.Value, count: int, length: int) -> ir.Value:
    """The first elements of a word, and zeros."""
    return f.ib.and_(word, like(word, (1 << count * 32 // length) - 1))


def _is_whole(f: Frame, expr: Expr, var: str, lo: Value) -> bool:
    """Is memory of the kernel's own read by words, none of which reaches beyond an axis?"""
    match expr:
        case Const(_, dtype):
            return dtype is not bf16
        case Cast(_, arg) | Call("add", (arg, Const())):
            return _is_byte(f, arg) and _is_whole(f, arg, var, lo)
        case Access(buffer, indices) if _are_neighbours(f, buffer, indices, var):
            layout = f.buffers[buffer].buffer
            length = words(layout.dtype)
            at, extent = next(
                pair
                for pair in zip(indices, layout.shape, strict=True)
                if var in indices_of(pair[0])
            )
            form = linear(at)
            assert form is not None
            steps = [step for atom, step in form.terms.items() if atom is not Index(var)]
            own = layout.scope != "param" and lo.constant == 0
            return own and not any(n % length for n in (extent, form.const, *steps))
    return False


def _in_lanes(f: Frame, word: ir.Value) -> ir.Value:
    return word if is_vector(word) else f.splat(word)


def _word(f: Frame, expr: Expr, var: str, lo: Value) -> ir.Value:
    """The values of a word, the first lowest: one word, or one a lane where lanes differ."""
    match expr:
        case Const(number, dtype) if dtype is not bf16:
            return constant(I32, _signed(int(number) % 256 * 0x01010101), f.lanes)
        case Cast(_, arg) if _is_byte(f, arg):
            return _word(f, arg, var, lo)
        case Call("add", (arg, Const(number))) if int(number) % 256 == 128:
            word = _word(f, arg, var, lo)
            return f.ib.xor(word, like(word, _signed(0x80808080)))
        case Access(buffer, indices) if _are_neighbours(f, buffer, indices, var):
            with f.fresh_memo(), f.bound(var, lo):
                return emit_memory.load_words(f, buffer, tuple(value(f, i) for i in indices))
    return _put_together(f, expr, var, lo)


def _put_together(f: Frame, expr: Expr, var: str, lo: Value) -> ir.Value:
    types = {name: storage.buffer.dtype for name, storage in f.buffers.items()}
    length = words(dtype_of(expr, types))
    parts = []
    for n in range(length):
        here = Value(i64, lo.llvm, lo.bias + n)
        with f.fresh_memo(), f.bound(var, here):
            parts.append(f.vector(value(f, expr)))
    if length == 2:
        return _from_halves(f, *parts)
    low, high = (_joined(f, parts[n], parts[n + 1]) for n in (0, 2))
    count = f.lanes
    order = [start + part for n in range(count) for start in (n, 2 * count + n)
             for part in (0, count)]  # fmt: skip
    mask = ir.Constant(ir.VectorType(I32, length * count), [I32(at) for at in order])
    return f.ib.bitcast(f.ib.shuffle_vector(low, high, mask), ir.VectorType(I32, count))


def _from_halves(f: Frame, first: ir.Value, second: ir.Value) -> ir.Value:
    """The word of two bf16, which are held as f32."""
    whole = ir.VectorType(I32, f.lanes)
    low, high = (f.ib.bitcast(part, whole) for part in (first, second))
    kept = f.ib.and_(high, like(high, _signed(0xFFFF0000)))
    return f.ib.or_(f.ib.lshr(low, like(low, 16)), kept)


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
