"""Double buffers: the tile of the next iteration is copied in while that of this one is used."""

from __future__ import annotations

from dataclasses import replace

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.build import const, sub
from .fold import live_window
from .names import where
from .nest import Loop, Nest, Tree
from .relations import symbols
from .tree import around_loop, edit, loop_named


def doubled(nest: Nest, at_loop: str, tile: str, who: str) -> Nest:
    """The nest with the copies into a tile at a loop one iteration earlier, and room for two tiles.

        for ko: { pack(ko); use(ko) }   ==>   for ko in -1:n: { pack(ko + 1); use(ko) }

    The tile lives outside the loop and folds to what is needed at once: two tiles alternate.
    """
    loop, buffer = loop_named(nest.tree, at_loop), nest.buffers[tile]
    copies = {name for name in loop.values if nest.stmts[name].buffer == tile}
    if buffer.scope not in ("stack", "heap"):
        raise ScheduleError(
            f"{who}: double buffers are for scope stack or heap, not {buffer.scope}"
        )
    if loop.kind != "serial":
        raise ScheduleError(
            f"{who}: loop {loop.name}{where(nest, loop)} is {loop.kind}, so no iteration is the "
            "next one; stage before marking loops"
        )

    def earlier(item: Loop) -> Tree:
        values = {
            name: sub(value, const(1)) if name in copies else value
            for name, value in item.values.items()
        }
        return replace(item, values=values, extent=None, tail="guard")

    nest = replace(nest, tree=edit(nest.tree, {loop.name: earlier}))
    outer = around_loop(nest.tree, loop.name)
    buffer = replace(buffer, at=outer[-1].name if outer else None)
    buffer = replace(buffer, fold=live_window(nest, buffer, rounded=False))
    if not buffer.fold and symbols(*(nest.stmts[name] for name in loop.values)):
        raise ScheduleError(
            f"{who}: the tiles of two iterations of loop {loop.name} are no constant distance "
            f"apart in any dimension of {buffer.tensor}, so they cannot alternate"
        )
    return replace(nest, buffers={**nest.buffers, tile: buffer})
