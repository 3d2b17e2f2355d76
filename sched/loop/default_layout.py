"""How the default schedule lays out temporaries: along what is long enough for lanes.

    w[y,x,r,s] = f(g[y+r,x+s])  with 5 r and 5 s   ==>   w lies as [y, r, s, x]

Rows as short as a filter's taps fill no vector; neither the nest that writes them nor those that
read them would run well. What only the kernel sees may lie along any of its dimensions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...algo.tensor_expr.expr import Index
from .access import Group

VECTORS = 4
"""Vectors of a row along which a temporary is laid out, at least."""


def layouts(
    found: Sequence[Group], temps: Collection[str], lanes: Mapping[str, int]
) -> Mapping[str, tuple[int, ...]]:
    """The dimensions of temporaries that do not lie as they are written, innermost last."""
    writers = [group.main.tensor for group in found]
    laid = {}
    for group in found:
        tensor = group.main.tensor
        if tensor in temps and writers.count(tensor) == 1:
            order = _order(group, lanes[group.name])
            if order is not None:
                laid[tensor] = order
    return laid


def _order(group: Group, lanes: int) -> tuple[int, ...] | None:
    """The last dimension that is long and goes along the memory that the nest reads, innermost."""
    lhs, shape = group.main.lhs, group.shapes[group.main.tensor]
    plain = group.is_plain and not group.reds
    if not plain or len(shape) < 2 or shape[-1] >= lanes or len(set(lhs)) < len(lhs):
        return None
    for at in range(len(shape) - 2, -1, -1):
        part = lhs[at]
        if isinstance(part, Index) and shape[at] >= VECTORS * lanes:
            steps = [group.stride(read, part.name) for read in group.reads]
            if 1 in steps and all(step in (0, 1) for step in steps):
                return (*(n for n in range(len(shape)) if n != at), at)
    return None
