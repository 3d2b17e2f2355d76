"""Is a buffer of a loop still in one piece?

Where an iteration's statements can be put apart without changing their order (the last iteration
of some of them after all others), isl makes several pieces of a loop, and a buffer that lives in
an iteration would be several. What one piece writes, another does not find.
"""

from __future__ import annotations

from ..algo.tensor_expr.expr import accesses
from . import ir


def torn(body: ir.Stmt) -> str | None:
    """A buffer that is allocated at several places, at one of which it is read, not written."""
    found: dict[str, list[ir.Alloc]] = {}
    for stmt in ir.walk(body):
        if isinstance(stmt, ir.Alloc):
            found.setdefault(stmt.buffer.name, []).append(stmt)
    for name, places in found.items():
        if len(places) > 1 and any(_reads_only(place.body, name) for place in places):
            return name
    return None


def _reads_only(body: ir.Stmt, name: str) -> bool:
    every = list(ir.walk(body))
    written = any(isinstance(s, ir.Store | ir.Update) and s.buffer == name for s in every)
    return not written and any(
        access.tensor == name for s in every for e in ir.expressions(s) for access in accesses(e)
    )
