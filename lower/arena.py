"""Offsets for values that live at different times: a static arena.

Largest first, each into the smallest gap between the values it overlaps in time that holds it
("greedy by size"; Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference,
2020). Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """`size` bytes that are live from step `first` to step `last`, both included."""

    name: str
    size: int
    first: int
    last: int


def assign(blocks: Sequence[Block], align: int) -> tuple[dict[str, int], int]:
    """An offset for each block, a multiple of `align`, and the bytes of the whole arena."""
    order = sorted(blocks, key=lambda b: (-b.size, b.first, b.name))
    placed: list[tuple[int, Block]] = []
    offsets: dict[str, int] = {}
    total = 0
    for block in order:
        size = _up(block.size, align)
        busy = sorted(
            (at, at + _up(other.size, align))
            for at, other in placed
            if other.first <= block.last and block.first <= other.last
        )
        best, best_gap, end = None, 0, 0
        for start, stop in busy:
            gap = start - end
            if gap >= size and (best is None or gap < best_gap):
                best, best_gap = end, gap
            end = max(end, stop)
        at = end if best is None else best
        offsets[block.name] = at
        placed.append((at, block))
        total = max(total, at + size)
    return offsets, total


def _up(size: int, align: int) -> int:
    return max(align, -(-size // align) * align)
