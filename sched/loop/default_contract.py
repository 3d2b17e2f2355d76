"""The default schedule of contractions: sums of products in which operands are used again."""

from __future__ import annotations

from .access import Group
from .machine import Machine


def register_tile(
    group: Group, vector: str, lanes: int, machine: Machine
) -> tuple[tuple[tuple[str, int], ...], int]:
    """The tile kept in registers: blocks of other indices, and its width in vectors.

    An index is worth a block where a read does not move along it: what is loaded serves all of
    the block. Each cell of the tile is an accumulator.
    """
    extent = group.extents[vector]
    reuse = {i: sum(1 for a in group.reads if group.stride(a, i) == 0) for i in group.outs}
    useful = [i for i in group.outs if i != vector and group.extents[i] > 1 and reuse[i]]
    if not useful:
        return (), 0
    useful.sort(key=lambda i: (reuse[i], group.extents[i]), reverse=True)
    if vector in group.reds:
        tile = tuple((i, _divisor(group.extents[i], 4)) for i in useful[:2])
        return tile, 1 if extent > lanes else 0
    vectors = 2 if extent >= 2 * lanes else 1
    # A quarter of the registers is for what is loaded and broadcast.
    height = min(8, max(1, machine.registers * 3 // 4 // vectors))
    rows = useful[0]
    return ((rows, _divisor(group.extents[rows], height)),), vectors if extent > lanes else 0


def _divisor(extent: int, most: int) -> int:
    """The largest tile up to `most` that divides, unless that is under half of it."""
    most = min(extent, most)
    exact = next(n for n in range(most, 0, -1) if extent % n == 0)
    return exact if 2 * exact >= most else most
