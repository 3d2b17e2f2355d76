"""Reductions over vector lanes keep one partial result a lane, combined once at the end.

    for k.strip in 0 .. n:                          alloc s.lanes: register f32[64]:
        for k in 0 .. 64 vector:                        for v in 0 .. 64 vector: s.lanes[v] = 0
            s[i] sum= x[k.strip*64 + k]     ==>         for k.strip in 0 .. n:
                                                            for k in 0 .. 64 vector:
                                                                s.lanes[k] sum= x[k.strip*64 + k]
                                                        for v in 0 .. 16 vector: s[i] sum= ...

The partial results live around the outermost loops that only accumulate into the cell. Four
vectors of them are four independent sums, which hides the latency of the additions.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.tensor_expr.affine import bounds
from ...algo.tensor_expr.build import add, const
from ...algo.tensor_expr.expr import Access, Const, Expr, Index
from ...algo.tensor_expr.reducers import REDUCERS
from ...sched.loop.machine import Machine
from ..cells import Known, Use, candidates, run_of, use_of
from ..ir import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    Let,
    Stmt,
    Store,
    Update,
    allocate,
    block,
    contiguous,
    rebuild,
)
from ..ranges import values_of


def accumulate(function: Function, machine: Machine) -> Function:
    """The function with partial results a lane; expects vector loops that start at 0."""
    buffers = {param.name: param for param in function.params}
    body = _Accumulating(machine).body(function.body, buffers, {})
    return Function(function.name, function.params, body)


class _Accumulating:
    def __init__(self, machine: Machine) -> None:
        self.machine, self.count = machine, 0

    def body(self, stmt: Stmt, buffers: Mapping[str, Buffer], known: Known) -> Stmt:
        """A body, in which runs of statements that accumulate into a cell get partial results."""
        parts = list(stmt.stmts) if isinstance(stmt, Block) else [stmt]
        for name in candidates(parts, buffers):
            uses = [use_of(part, buffers[name], known) for part in parts]
            run = run_of(uses)
            if run is None or not self.pays(uses[run[0] : run[1]], buffers[name]):
                continue
            start, stop = run
            inside = self.partial(parts[start:stop], buffers[name], uses[start:stop])
            return self.body(block(*parts[:start], inside, *parts[stop:]), buffers, known)
        return block(*(self.inner(part, buffers, known) for part in parts))

    def inner(self, stmt: Stmt, buffers: Mapping[str, Buffer], known: Known) -> Stmt:
        match stmt:
            case For(var=var):
                known = {**known, var: values_of(stmt, known)}
            case Let(var, value, _):
                known = {**known, var: bounds(value, known)}
            case Alloc(own, _):
                buffers = {**buffers, **{buffer.name: buffer for buffer in own}}
        return rebuild(stmt, lambda item: self.body(item, buffers, known))

    def native(self, buffer: Buffer) -> int:
        return self.machine.lanes(buffer.dtype.itemsize)

    def pays(self, uses: list[Use], buffer: Buffer) -> bool:
        """One update of a cell by one vector, in no loop, is better combined where it stands."""
        wide = any(width > self.native(buffer) for use in uses for width in use.cells.values())
        cells = {cell for use in uses for cell in use.cells}
        many = sum(use.updates for use in uses) > len(cells)
        return many or wide or any(use.looped for use in uses)

    def partial(self, parts: list[Stmt], buffer: Buffer, uses: list[Use]) -> Stmt:
        """The statements with each shared cell's updates going to lanes of its own."""
        reducer = next(use.reducer for use in uses if use.reducer is not None)
        native = self.native(buffer)
        widths: dict[tuple[Expr, ...], int] = {}
        for use in uses:
            for cell, width in use.cells.items():
                widths[cell] = max(widths.get(cell, 0), width)
        lanes: dict[tuple[Expr, ...], Buffer] = {}
        for cell, width in widths.items():
            size = -(-width // native) * native if width > native else 1 << (width - 1).bit_length()
            name = f"{buffer.name}.lanes" + (str(self.count) if self.count else "")
            self.count += 1
            shape = (size,)
            lanes[cell] = Buffer(name, buffer.dtype, shape, contiguous(shape), "register", 64)
        atomic = any(use.atomic for use in uses)
        identity = Const(REDUCERS[reducer].identity(buffer.dtype), buffer.dtype)
        before = [
            _each(b.name, b.shape[0], Store(b.name, (_lane(b),), identity)) for b in lanes.values()
        ]
        after = [
            _combine(b, min(native, b.shape[0]), buffer.name, cell, reducer, atomic)
            for cell, b in lanes.items()
        ]
        middle = [_redirect(part, buffer.name, lanes, None) for part in parts]
        return allocate(lanes.values(), block(*before, *middle, *after))


def _lane(buffer: Buffer) -> Expr:
    return Index(f"{buffer.name}.v")


def _each(name: str, count: int, body: Stmt) -> Stmt:
    return For(f"{name}.v", const(0), const(count), body, "vector")


def _combine(
    lanes: Buffer,
    native: int,
    target: str,
    cell: tuple[Expr, ...],
    reducer: str,
    atomic: bool,
) -> Stmt:
    """All lanes' values into the cell: vectors first, then across the lanes of one."""
    lane = _lane(lanes)
    parts = [
        _each(
            lanes.name,
            native,
            Update(lanes.name, (lane,), reducer, Access(lanes.name, (add(lane, const(start)),))),
        )
        for start in range(native, lanes.shape[0], native)
    ]
    value = Access(lanes.name, (lane,))
    return block(*parts, _each(lanes.name, native, Update(target, cell, reducer, value, atomic)))


def _redirect(
    stmt: Stmt, name: str, lanes: Mapping[tuple[Expr, ...], Buffer], vector: str | None
) -> Stmt:
    match stmt:
        case For(var=var, kind="vector"):
            vector = var
        case Update(buffer, index, reducer, value, _) if (
            buffer == name and vector is not None and index in lanes
        ):
            return Update(lanes[index].name, (Index(vector),), reducer, value)
    return rebuild(stmt, lambda inner: _redirect(inner, name, lanes, vector))
