"""When an output may be the memory of an input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..algo.tensor_expr.expr import Index, accesses

if TYPE_CHECKING:
    from ..sched.loop.nest import Nest


def may_write_over(nest: Nest, source: str, target: str) -> bool:
    """Is every element of `source` read only to compute the same element of `target`?

    Both must be the same memory. It takes one statement that writes `target`, each element once,
    reads `source` at that element alone, and is the only one to touch either.
    """
    touching = []
    for stmt in nest.stmts.values():
        read = {item.tensor for expr in (stmt.value, *stmt.lhs) for item in accesses(expr)}
        if stmt.buffer in (source, target) or read & {source, target}:
            touching.append(stmt)
    if len(touching) != 1:
        return False
    (stmt,) = touching
    indices = [item.name for item in stmt.lhs if isinstance(item, Index)]
    once = len(indices) == len(stmt.lhs) and sorted(indices) == sorted(stmt.dims)
    return (
        stmt.buffer == target
        and stmt.reducer is None
        and once
        and all(item.indices == stmt.lhs for item in accesses(stmt.value) if item.tensor == source)
        and all(item.tensor != target for item in accesses(stmt.value))
    )
