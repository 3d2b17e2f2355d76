"""Neighbouring axes that are indexed by the quotient and the rest of one number become one axis.

    y[f // 3, f % 3] = x[f // 3 + 1, f % 3]   ==>   y[f] = x[f + 3]

where the axes lie next to each other in memory. So a fused loop that walks through memory has
contiguous vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...algo.tensor_expr.affine import normalize
from ...algo.tensor_expr.build import add, const, mul
from ...algo.tensor_expr.expr import Access, Call, Expr, transform, walk
from ..ir import (
    Alloc,
    Buffer,
    Function,
    Stmt,
    Store,
    Update,
    allocated,
    expressions,
    rebuild,
    with_,
)
from ..ir import walk as statements

Index = tuple[Expr, ...]


def flatten(function: Function) -> Function:
    """The function with axes merged where that takes divisions out of an index."""
    for _ in range(max((len(b.shape) for b in _buffers(function)), default=0)):
        merges = _merges(function)
        if not merges:
            break
        function = _merged(function, merges)
    return function


def _buffers(function: Function) -> Iterator[Buffer]:
    yield from function.params
    yield from allocated(function.body)


def _indices(function: Function) -> Iterator[tuple[str, Index]]:
    """Every access: which buffer, and where."""
    seen: set[Expr] = set()
    for stmt in statements(function.body):
        if isinstance(stmt, (Store, Update)):
            yield stmt.buffer, stmt.index
        for expr in expressions(stmt):
            if expr in seen:
                continue
            for item in walk(expr):
                if isinstance(item, Access) and item not in seen:
                    yield item.tensor, item.indices
                seen.add(item)


def _merges(function: Function) -> dict[str, tuple[int, int]]:
    """For each buffer that gains by it, the first of two axes to merge, and the second's extent."""
    found: dict[str, tuple[int, int]] = {}
    kept: set[tuple[str, int]] = set()
    shapes: dict[str, Buffer] = {}
    for buffer in _buffers(function):
        if shapes.setdefault(buffer.name, buffer).shape != buffer.shape:
            kept |= {(buffer.name, axis) for axis in range(len(buffer.shape))}
    for name, index in _indices(function):
        shape, strides = shapes[name].shape, shapes[name].strides
        for axis in range(len(index) - 1):
            a, b = index[axis], index[axis + 1]
            if any(isinstance(item, Access) for e in (a, b) for item in walk(e)):
                kept.add((name, axis))  # checked at run time, axis by axis
            elif _neighbours(strides[axis], strides[axis + 1], shape[axis + 1]):
                one = _one(a, b, shape[axis + 1])
                if _divisions(one) < max(_divisions(a), _divisions(b)):
                    found.setdefault(name, (axis, shape[axis + 1]))
    return {name: merge for name, merge in found.items() if (name, merge[0]) not in kept}


def _neighbours(outer: int | str, inner: int | str, extent: int) -> bool:
    """Does one step of the outer axis lead behind the last element of the inner one?"""
    return isinstance(inner, int) and outer == inner * extent


def _one(a: Expr, b: Expr, extent: int) -> Expr:
    return normalize(add(mul(a, const(extent)), b))


def _divisions(expr: Expr) -> int:
    return sum(isinstance(item, Call) and item.op in ("floordiv", "mod") for item in walk(expr))


def _merged(function: Function, merges: Mapping[str, tuple[int, int]]) -> Function:
    def buffer(old: Buffer) -> Buffer:
        if old.name not in merges:
            return old
        axis, extent = merges[old.name]
        shape = (*old.shape[:axis], old.shape[axis] * extent, *old.shape[axis + 2 :])
        strides = (*old.strides[:axis], *old.strides[axis + 1 :])
        extents = old.extents
        if extents:  # no index into this axis is read from memory, so the most will do
            extents = (*extents[:axis], shape[axis], *extents[axis + 2 :])
        return with_(old, shape=shape, strides=strides, extents=extents)

    def index(name: str, old: Index) -> Index:
        if name not in merges:
            return old
        axis, extent = merges[name]
        one = _one(old[axis], old[axis + 1], extent)
        return (*old[:axis], one, *old[axis + 2 :])

    def access(item: Expr) -> Expr:
        if isinstance(item, Access):
            return Access(item.tensor, index(item.tensor, item.indices))
        return item

    def stmt(item: Stmt) -> Stmt:
        item = rebuild(item, stmt, lambda expr: transform(expr, access))
        match item:
            case Store(name, at, value):
                return Store(name, index(name, at), value)
            case Update(name, at, reducer, value, atomic):
                return Update(name, index(name, at), reducer, value, atomic)
            case Alloc(old, body):
                return Alloc(tuple(map(buffer, old)), body)
        return item

    params = tuple(buffer(param) for param in function.params)
    return Function(function.name, params, stmt(function.body))
