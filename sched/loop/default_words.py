"""The default schedule of sums of products of bytes, where a machine adds them up by words.

The factors of a word lie side by side once they are copied so (`sketch_words.py`). Products of
bf16 are left alone: the instructions for those take subnormal numbers as 0.
"""

from __future__ import annotations

from .access import Group
from .machine import Machine
from .parallelism import worth_threads
from .sketch import Choice
from .tensorize import ACCUMULATORS, SIDE
from .words import Words, words_of

FEWEST, LITTLE = 4, 1 << 15
"""Rows for which columns are worth copying, and products that take as long without (measured)."""
SPARE = 6
"""Registers beside the sums: operands, and what adds up the columns of bytes of one sign."""


def by_words(group: Group, machine: Machine) -> Choice | None:
    """What is chosen for such a nest on a machine that has an instruction for it."""
    found = words_of(group)
    if found is None or not (machine.matrices or 4 in machine.dots):
        return None
    rows, columns = (group.extents[i] for i in (found.rows, found.columns))
    if rows < FEWEST or group.work <= LITTLE:
        return None
    if machine.matrices:
        high, wide = block_of(rows, columns)
    else:
        lanes = machine.lanes(4)
        if columns < lanes:
            return None
        vectors = 2 if columns > lanes else 1
        high, wide = min(rows, (machine.registers - SPARE) // vectors), vectors * lanes
    outer, chunk = _shared(group, found, wide, machine)
    return Choice(
        vector=found.columns,
        tile=((found.rows, high),),
        vectors=-(-wide // machine.lanes(4)),
        outer=outer,
        chunk=chunk,
        words=True,
    )


def block_of(rows: int, columns: int) -> tuple[int, int]:
    """The sides of a block of squares: two by two, or a row of them where there is but one."""
    high, wide = min(2, -(-rows // SIDE)), min(2, -(-columns // SIDE))
    if high == 1:
        wide = min(ACCUMULATORS, -(-columns // SIDE))
    elif wide == 1:
        high = min(ACCUMULATORS, -(-rows // SIDE))
    return SIDE * high, SIDE * wide


def _shared(group: Group, found: Words, wide: int, machine: Machine) -> tuple[str | None, int]:
    """The index that threads share, and how many columns a thread has."""
    columns = group.extents[found.columns]
    # An instruction does the work of many lanes; what is copied first is a matter of bytes.
    if not worth_threads(group, 16 * machine.lanes(4), machine):
        return None, columns
    others = [i for i in group.outs if i not in (found.rows, found.columns)]
    long = [i for i in others if group.extents[i] >= machine.threads]
    if long:
        return long[0], columns
    tiles = -(-columns // wide)
    if tiles >= machine.threads:
        return found.columns, wide * -(-tiles // machine.threads)
    rows = group.extents[found.rows]
    return (found.rows if rows >= 2 * machine.threads else None), columns
