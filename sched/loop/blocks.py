"""Buffers of which a GPU has several: one for each block of the grid, or for each thread.

Memory between loops over the grid is global only where it is an argument or lies around the whole
kernel. Any other buffer is a block's own (shared) or a thread's own (all others), and a loop bound
to an axis inside the buffer's loop divides it: what is written at one position on the axis is not
there at another. What stands under no loop over an axis runs at its first position, except that
lowering deals such stores out to the threads of a block as it can.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce

from ...algo.errors import ScheduleError
from ...algo.isl import raw
from ...algo.tensor_expr.build import const
from ...algo.tensor_expr.points import mapping
from .nest import Loop, Nest
from .storage import touching
from .tree import around_stmt, loops_to

BLOCK, THREAD = "block.", "thread."


def dividing(nest: Nest, buffers: Collection[str] | None = None) -> dict[str, tuple[str, ...]]:
    """The axes that divide each buffer (or each of `buffers`), of those that some axis divides."""
    users = touching(nest, buffers)
    found: dict[str, tuple[str, ...]] = {}
    for name in users:
        buffer = nest.buffers[name]
        if buffer.scope == "param" or (buffer.at is None and buffer.scope in ("heap", "stack")):
            continue
        # One on the heap or stack may be staged as shared yet; if not, lowering refuses it.
        levels = (BLOCK, THREAD) if buffer.scope in ("register", "local") else BLOCK
        outer = {loop.name for loop in loops_to(nest.tree, buffer.at)}
        axes = {
            loop.kind
            for stmt in users[name]
            for loop in around_stmt(nest.tree, stmt)
            if loop.name not in outer and loop.kind.startswith(levels)
        }
        if axes:
            found[name] = tuple(sorted(axes))
    return found


def position(nest: Nest, name: str, axis: str, sizes: Sequence[str], space: str) -> raw.Map | None:
    """{ space[dims] -> [position on the axis] } of a statement; None where lowering chooses it.

    It is the value of the loop over the axis, counted from the first one of the same iteration.
    """
    stmt = nest.stmts[name]
    around = around_stmt(nest.tree, name)
    loop = next((item for item in around if item.kind == axis), None)
    if loop is None:
        if axis.startswith(THREAD) and stmt.reducer is None:
            return None
        return mapping(stmt.dims, [const(0)], stmt.domain, sizes, (space, ""))
    outer = around[: around.index(loop)]
    values = [_values(nest, [*outer, loop], other, sizes, "").range() for other in loop.values]
    every = reduce(raw.Set.union, values)
    first = (
        raw.Map.from_range(every)
        .move_dims(raw.dim_type.in_, 0, raw.dim_type.out, 0, len(outer))
        .lexmin()
    )
    here = _values(nest, outer, name, sizes, space).apply_range(first)
    return _values(nest, [loop], name, sizes, space).sum(here.neg())


def _values(nest: Nest, chain: list[Loop], name: str, sizes: Sequence[str], space: str) -> raw.Map:
    stmt = nest.stmts[name]
    images = [loop.values[name] for loop in chain]
    return mapping(stmt.dims, images, stmt.domain, sizes, (space, ""))


def check_shared(nest: Nest, who: str) -> None:
    """Raises where a shared buffer lies in a loop over threads, where no other thread sees it."""
    for buffer in nest.buffers.values():
        if buffer.scope != "shared":
            continue
        for loop in loops_to(nest.tree, buffer.at):
            if loop.kind.startswith(THREAD):
                raise ScheduleError(
                    f"{who}: {buffer.tensor} is shared by the threads of a block, but lives in "
                    f"loop {buffer.at}, which one thread runs (loop {loop.name} is bound to "
                    f"{loop.kind}); stage it outside of that loop, or use scope register or local"
                )
