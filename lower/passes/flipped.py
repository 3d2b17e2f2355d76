"""Bytes with their highest bit flipped, as the other type of byte: 128 more, or 128 less."""

from __future__ import annotations

from ...algo.dtypes import DType, i8, u8
from ...algo.tensor_expr.expr import (
    Access,
    Call,
    Cast,
    Const,
    Expr,
    accesses,
    substitute,
    walk,
)
from ..ir import Alloc, Buffer, Function, Stmt, Store, Update, expressions, rebuild, with_
from ..ir import walk as statements


def flip(expr: Expr, dtype: DType) -> Expr:
    """A value of i8 plus 128 as u8, or of u8 minus 128 as i8."""
    other, offset = (u8, 128) if dtype is i8 else (i8, -128)
    return Call("add", (Cast(other, expr), Const(offset, other)))


def store_flipped(function: Function) -> Function:
    """The function with buffers stored flipped if they are flipped whenever they are read."""
    found = _buffers(function)
    if not found:
        return function
    return Function(function.name, function.params, _stmt(function.body, found))


def _buffers(function: Function) -> dict[str, Buffer]:
    """The buffers that are only stored, and whose every read is flipped."""
    wanted: set[str] = set()
    barred = {param.name for param in function.params}
    own: dict[str, Buffer] = {}
    for stmt in statements(function.body):
        match stmt:
            case Alloc(buffers):
                for buffer in buffers:
                    if own.setdefault(buffer.name, buffer).dtype is not buffer.dtype:
                        barred.add(buffer.name)
            case Update(buffer):
                barred.add(buffer)
        for expr in expressions(stmt):
            flips = [item for item in walk(expr) if _flipped(item) is not None]
            wanted |= {name for item in flips if (name := _flipped(item)) is not None}
            rest = substitute(expr, {item: Const(0, i8) for item in flips})
            barred |= {cell.tensor for cell in accesses(rest)}
    return {name: own[name] for name in wanted - barred if own[name].dtype in (i8, u8)}


def _flipped(expr: Expr) -> str | None:
    """The buffer of which an expression is a cell, flipped."""
    match expr:
        case Call("add", (Cast(dtype, Access(name)), Const(number, same))) if dtype is same and (
            dtype,
            number,
        ) in ((u8, 128), (i8, -128)):
            return name
    return None


def _stmt(stmt: Stmt, found: dict[str, Buffer]) -> Stmt:
    def read(expr: Expr) -> Expr:
        cells: dict[Expr, Expr] = {
            item: item.args[0].arg
            for item in walk(expr)
            if isinstance(item, Call) and _flipped(item) in found and isinstance(item.args[0], Cast)
        }
        return substitute(expr, cells) if cells else expr

    stmt = rebuild(stmt, lambda inner: _stmt(inner, found), read)
    match stmt:
        case Alloc(buffers, body):
            return Alloc(tuple(_turned(b) if b.name in found else b for b in buffers), body)
        case Store(name, index, value) if name in found:
            return Store(name, index, flip(value, found[name].dtype))
    return stmt


def _turned(buffer: Buffer) -> Buffer:
    return with_(buffer, dtype=u8 if buffer.dtype is i8 else i8)
