"""The first few cells of a run, on machines without masked loads and stores of such elements.

LLVM would test the mask lane by lane. A run of n cells of a vector of 32 is made of its powers of
two instead, of 16, 8, 4, 2 and 1 cells: at most five tests, and none where n is known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import llvmlite.ir as ir

from .emit_stream import size_of
from .frame import Frame
from .values import I32, I64, lanes_of, shaped

Access = Callable[[ir.Instruction], ir.Value]
"""Marks a load or a store of some of the cells."""


def load_first(
    f: Frame, first: ir.Value, count: ir.Value, vec: ir.VectorType, align: int, mark: Access
) -> ir.Value:
    """`count` cells from the address `first` on, in a vector whose other lanes are undefined."""
    n = vec.count

    def piece(size: int, at: ir.Value, total: ir.Value) -> ir.Value:
        """`size` cells in front of what there is."""
        part = f.ib.load(
            _cell(f, first, at, vec),
            typ=shaped(vec.element, size),
            align=_aligned(align, vec, size),
        )
        part = widened(f, mark(part), n)
        return _shuffled(f, part, total, [*range(size), *range(n, 2 * n - size)])

    def pieces() -> ir.Value:
        total = vec(ir.Undefined)
        for size in _powers(n):
            at = f.ib.and_(count, I64(-2 * size))  # larger pieces lie before
            total = _where_bit(f, count, size, total, partial(piece, size, at))
        return total

    if isinstance(count, ir.Constant):
        return pieces()
    whole, some, after = (f.block(name) for name in ("whole", "some", "loaded"))
    f.ib.cbranch(f.ib.icmp_signed(">=", count, I64(n)), whole, some)
    f.ib.position_at_end(whole)
    full = mark(f.ib.load(first, typ=vec, align=align))
    f.ib.branch(after)
    f.ib.position_at_end(some)
    part = pieces()
    ended = f.ib.block
    f.ib.branch(after)
    f.ib.position_at_end(after)
    result = f.ib.phi(vec)
    result.add_incoming(full, whole)
    result.add_incoming(part, ended)
    return result


def widened(f: Frame, part: ir.Value, lanes: int) -> ir.Value:
    """A cell, or a short vector, as the first lanes of a longer one."""
    size = lanes_of(part)
    if size == 1:
        vec = ir.VectorType(part.type, lanes)
        return f.ib.insert_element(vec(ir.Undefined), part, I32(0))
    return _shuffled(f, part, part, [*range(size), *[0] * (lanes - size)])


def store_first(
    f: Frame, first: ir.Value, count: ir.Value, raw: ir.Value, align: int, mark: Access
) -> None:
    """The first `count` lanes of `raw` into as many cells from the address `first` on."""
    vec = raw.type
    n = vec.count

    def piece(size: int, at: ir.Value, left: ir.Value) -> ir.Value:
        """Stores the first lanes of what is left, and gives the others."""
        if size == 1:
            part = f.ib.extract_element(left, I32(0))
        else:
            part = f.ib.shuffle_vector(
                left, left, ir.VectorType(I32, size)([I32(i) for i in range(size)])
            )
        mark(f.ib.store(part, _cell(f, first, at, vec), align=_aligned(align, vec, size)))
        return _shuffled(f, left, left, [*range(size, n), *[0] * size])

    def pieces() -> None:
        left = raw
        for size in reversed(_powers(n)):
            at = f.ib.and_(count, I64(-2 * size))
            left = _where_bit(f, count, size, left, partial(piece, size, at))

    def whole() -> None:
        mark(f.ib.store(raw, first, align=align))

    if isinstance(count, ir.Constant):
        pieces()
    else:
        f.if_else(f.ib.icmp_signed(">=", count, I64(n)), whole, pieces)


def _powers(n: int) -> list[int]:
    """1, 2, 4 .. below n."""
    return [1 << k for k in range(n.bit_length() - 1)]


def _where_bit(
    f: Frame, count: ir.Value, bit: int, old: ir.Value, new: Callable[[ir.Value], ir.Value]
) -> ir.Value:
    """new(old) where the number has the bit, else old."""
    if isinstance(count, ir.Constant):
        return new(old) if count.constant & bit else old
    before, then, after = f.ib.block, f.block("piece"), f.block("pieced")
    f.ib.cbranch(f.ib.icmp_unsigned("!=", f.ib.and_(count, I64(bit)), I64(0)), then, after)
    f.ib.position_at_end(then)
    made = new(old)
    f.ib.branch(after)
    f.ib.position_at_end(after)
    result = f.ib.phi(old.type)
    result.add_incoming(old, before)
    result.add_incoming(made, then)
    return result


def _cell(f: Frame, first: ir.Value, at: ir.Value, vec: ir.VectorType) -> ir.Value:
    return f.ib.gep(first, [at], source_etype=vec.element)


def _aligned(align: int, vec: ir.VectorType, size: int) -> int:
    """The alignment of a piece of a run: before it lies a multiple of twice as many cells."""
    return min(align, 2 * size * size_of(vec(ir.Undefined)) // vec.count)


def _shuffled(f: Frame, a: ir.Value, b: ir.Value, lanes: list[int]) -> ir.Value:
    return f.ib.shuffle_vector(a, b, ir.VectorType(I32, len(lanes))([I32(i) for i in lanes]))
