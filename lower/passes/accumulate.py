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

from ...algo.tensor_expr.build import add, const
from ...algo.tensor_expr.expr import Access, Const, Expr, Index
from ...algo.tensor_expr.reducers import REDUCERS
from ...sched.loop.machine import Machine
from ..cells import Buffers, Known, Partial, Partials, Use
from ..ir import Buffer, For, Function, Stmt, Store, Update, block, contiguous


def accumulate(function: Function, machine: Machine) -> Function:
    """The function with partial results a lane; expects vector loops that start at 0."""
    return _Accumulating(machine).function(function)


class _Accumulating(Partials):
    def __init__(self, machine: Machine) -> None:
        self.machine, self.count = machine, 0

    def partial(
        self, parts: list[Stmt], uses: list[Use], buffer: str, buffers: Buffers, known: Known
    ) -> Partial | None:
        """Lanes of its own for each shared cell."""
        target = buffers[buffer]
        native = self.machine.lanes(target.dtype.itemsize)
        if not _pays(uses, native):
            return None
        reducer = next(use.reducer for use in uses if use.reducer is not None)
        atomic = any(use.atomic for use in uses)
        lanes = self.lanes(uses, target, native)
        identity = Const(REDUCERS[reducer].identity(target.dtype), target.dtype)
        before = [
            _each(b.name, b.shape[0], Store(b.name, (_lane(b),), identity)) for b in lanes.values()
        ]
        after = [
            _combine(b, min(native, b.shape[0]), buffer, cell, reducer, atomic)
            for cell, b in lanes.items()
        ]

        def update(stmt: Update, vector: str | None) -> Stmt:
            if vector is None or stmt.index not in lanes:
                return stmt
            return Update(lanes[stmt.index].name, (Index(vector),), stmt.reducer, stmt.value)

        return Partial(lanes.values(), before, after, update)

    def lanes(self, uses: list[Use], buffer: Buffer, native: int) -> dict[tuple[Expr, ...], Buffer]:
        """The partial results of each cell."""
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
        return lanes


def _pays(uses: list[Use], native: int) -> bool:
    """One update of a cell by one vector, in no loop, is better combined where it stands."""
    wide = any(width > native for use in uses for width in use.cells.values())
    cells = {cell for use in uses for cell in use.cells}
    many = sum(use.updates for use in uses) > len(cells)
    return many or wide or any(use.looped for use in uses)


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
