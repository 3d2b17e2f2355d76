"""Reductions over vector lanes keep one partial result a lane, combined once at the end.

    for k.strip in 0 .. n:                     alloc s.lanes: register f32[1, 64]:
        for k in 0 .. 64 vector:                   for v in 0 .. 64 vector: s.lanes[0, v] = 0
            s[i] sum= x[k.strip*64 + k]  ==>       for k.strip in 0 .. n:
                                                       for k in 0 .. 64 vector:
                                                           s.lanes[0, k] sum= x[k.strip*64 + k]
                                                   for v in 0 .. 16 vector: s[i] sum= ...

The partial results live around the outermost loops that only accumulate into the cell. Four
vectors of them are four independent sums, which hides the latency of the additions. Several cells
have a row each, and their lanes are combined together (`combine.py`).
"""

from __future__ import annotations

from ...algo.tensor_expr.build import const
from ...algo.tensor_expr.expr import Const, Index
from ...algo.tensor_expr.reducers import REDUCERS
from ...sched.loop.machine import Machine
from ..cells import Buffers, Known, Partial, Partials, Use
from ..combine import Cell, Combine, each
from ..ir import Buffer, Function, Stmt, Store, Update, contiguous


def accumulate(function: Function, machine: Machine) -> Function:
    """The function with partial results a lane; expects vector loops that start at 0."""
    return _Accumulating(machine).function(function)


class _Accumulating(Partials):
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.counts: dict[str, int] = {}

    def partial(
        self, parts: list[Stmt], uses: list[Use], buffer: str, buffers: Buffers, known: Known
    ) -> Partial | None:
        """Lanes of its own for each shared cell."""
        target = buffers[buffer]
        native = self.machine.lanes(target.dtype.itemsize)
        if not _pays(uses, native):
            return None
        reducer = next(use.reducer for use in uses if use.reducer is not None)
        way = Combine(target, reducer, any(use.atomic for use in uses), native)
        identity = Const(REDUCERS[reducer].identity(target.dtype), target.dtype)
        made: list[Buffer] = []
        before: list[Stmt] = []
        after: list[Stmt] = []
        places: dict[Cell, tuple[str, int]] = {}
        for width, cells in _widths(uses, native).items():
            lanes = self.register(target, "lanes", (len(cells), width))
            made.append(lanes)
            row = 0
            for runs in way.groups(cells, width):
                own = [cell for run in runs for cell in run]
                for n, cell in enumerate(own, row):
                    places[cell] = lanes.name, n
                    at = const(n), Index(f"{lanes.name}.v")
                    before.append(each(lanes, width, Store(lanes.name, at, identity)))
                    after += way.whole_vectors(lanes, n)
                if len(own) == 1:
                    after.append(way.one(lanes, row, own[0]))
                else:
                    totals = self.register(target, "totals", (len(own),))
                    made.append(totals)
                    after += way.several(lanes, row, runs, totals)
                row += len(own)

        def update(stmt: Update, vector: str | None) -> Stmt:
            if vector is None or stmt.index not in places:
                return stmt
            name, n = places[stmt.index]
            return Update(name, (const(n), Index(vector)), stmt.reducer, stmt.value)

        return Partial(made, before, after, update)

    def register(self, target: Buffer, what: str, shape: tuple[int, ...]) -> Buffer:
        """A register buffer of the type of another, named after it."""
        name = f"{target.name}.{what}"
        count = self.counts[name] = self.counts.get(name, -1) + 1
        name += str(count) if count else ""
        return Buffer(name, target.dtype, shape, contiguous(shape), "register", 64)


def _widths(uses: list[Use], native: int) -> dict[int, list[Cell]]:
    """The cells that have so many partial results each."""
    most: dict[Cell, int] = {}
    for use in uses:
        for cell, width in use.cells.items():
            most[cell] = max(most.get(cell, 0), width)
    found: dict[int, list[Cell]] = {}
    for cell, width in most.items():
        size = -(-width // native) * native if width > native else 1 << (width - 1).bit_length()
        found.setdefault(size, []).append(cell)
    return found


def _pays(uses: list[Use], native: int) -> bool:
    """One update of a cell by one vector, in no loop, is better combined where it stands."""
    wide = any(width > native for use in uses for width in use.cells.values())
    cells = {cell for use in uses for cell in use.cells}
    many = sum(use.updates for use in uses) > len(cells)
    return many or wide or any(use.looped for use in uses)
