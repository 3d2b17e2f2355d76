"""Random choices for products of matrices of bytes that are taken by words."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from ..sched.loop.access import Group
from ..sched.loop.default_words import by_words
from ..sched.loop.machine import Machine
from ..sched.loop.sketch import Choice
from ..sched.loop.tensorize import ACCUMULATORS, SIDE

SQUARES = tuple(
    (rows, columns)
    for rows in range(1, ACCUMULATORS + 1)
    for columns in range(1, ACCUMULATORS // rows + 1)
)
HEIGHTS = (2, 3, 4, 5, 6, 8, 10, 12, 14)
PARTS = (1, 1, 2, 4)
"""Parts of the columns, copied one after the other, for each thread."""


def word_seeds(group: Group, machine: Machine) -> Iterator[Choice]:
    """The model's choice with other blocks, the largest first; nothing where it has none."""
    first = by_words(group, machine)
    if first is not None:
        for sides in sorted(_blocks(machine), key=lambda block: -block[0] * block[1])[:4]:
            yield _of(first, sides, machine)


def word_choice(group: Group, machine: Machine, rng: random.Random) -> Choice | None:
    """A random choice; None where the model has none."""
    first = by_words(group, machine)
    if first is None:
        return None
    choice = _of(first, rng.choice(_blocks(machine)), machine)
    outer = first.outer if rng.random() < 0.7 else rng.choice((None, *group.outs))
    assert choice.vector is not None
    wide = choice.vectors * machine.lanes(4)
    blocks = -(-group.extents[choice.vector] // wide)
    threads = machine.threads if outer == choice.vector else 1
    return replace(choice, outer=outer, chunk=wide * -(-blocks // (threads * rng.choice(PARTS))))


def _blocks(machine: Machine) -> list[tuple[int, int]]:
    """Rows of a block, and columns in vectors."""
    if machine.matrices:
        each = SIDE // machine.lanes(4) or 1
        return [(SIDE * rows, each * columns) for rows, columns in SQUARES]
    room = machine.registers - 4
    return [(high, wide) for wide in (1, 2, 3, 4) for high in HEIGHTS if high * wide <= room]


def _of(first: Choice, sides: tuple[int, int], machine: Machine) -> Choice:
    ((rows, _),) = first.tile
    return replace(first, tile=((rows, sides[0]),), vectors=sides[1])
