"""Several rows of results at once, with the rows of temporaries that they need in registers.

    for yo: for xo:                                     h, a row more for each one that slides in,
        for y in 0:10 unroll: h[y] = f(g[8*yo + y,xo])  is in no memory, and rows come and go side
        for y in 0:8 unroll:  b[y] = h[y] + h[y+2]      by side, which memory gives faster

Where a row is computed after the other, what slides along them is stored, and is loaded again once
for each row that reads it. Here it is computed again for the first rows of a block, which is less
where it is cheap. Rows of an argument that neighbours read too are loaded once for a block.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...algo.tensor_expr.affine import linear, normalize
from ...algo.tensor_expr.build import add, conjuncts, const, sub
from ...algo.tensor_expr.expr import Index, indices_of, substitute
from .access import Group
from .default_joins import in_its_lanes, reads_of
from .machine import Machine
from .sketch import Choice

ROWS = 8
"""Rows of a block, at most: as many streams as memory serves at once."""
LEAST = 4
AGAIN = 4.0
"""Additions an element of the results, at most, that are made again."""
LIGHT = 40.0
"""Additions an element, at most, beside which loads count."""
STREAMS = 20
"""Rows that are read and written side by side, at most."""
LINE = 64
"""Bytes of a cache line, which a strip of each row fills."""


def windows(
    found: Sequence[Group], sliding: Collection[str], host: Choice, machine: Machine
) -> Mapping[str, Choice] | None:
    """Choices for the last nest, and for the temporaries that slide along its rows, instead of
    `host`, by which it has a row after the other; None where that is better."""
    last, vector = found[-1], host.vector
    made = [group for group in found if group.name in sliding]
    if vector is None or not all(in_its_lanes(group, last, vector) for group in made):
        return None
    lanes = machine.lanes(max(group.widest for group in (*made, last)))
    vectors = max(1, LINE // machine.vector_bytes)
    room = machine.registers * 3 // (4 * vectors * len(made))
    more = {group.name: _spread(group, last) for group in made}
    index = last.outs[0]
    most = min(ROWS, room - max(more.values()), last.extents[index])
    rows = 1 << most.bit_length() - 1 if most > 0 else 0
    again = sum(group.cost * more[group.name] for group in made)
    if rows < LEAST or again > AGAIN * rows or last.extents[vector] < vectors * lanes:
        return None
    chosen = {
        group.name: Choice(vector=group.outs[-1], join=(last.name, vector), slides=True)
        for group in made
    }
    shared = index if host.outer is not None else None
    chosen[last.name] = Choice(vector=vector, vectors=vectors, tile=((index, rows),), outer=shared)
    return chosen


def neighbours(group: Group, vector: str, machine: Machine) -> Choice | None:
    """Some rows at once of a nest whose neighbouring rows read the same; None if it is none."""
    plain = group.is_plain and not group.reds and not conjuncts(group.main.where)
    if not plain or group.outs[-1:] != (vector,) or group.cost > LIGHT:
        return None
    vectors = max(1, LINE // machine.vector_bytes)
    if group.extents[vector] < vectors * machine.lanes(group.widest):
        return None
    for index in reversed(group.outs[:-1]):
        tensors = {a.tensor for a in group.reads if group.stride(a, index) != 0}
        for rows in (ROWS, LEAST):
            apart, read = (_rows(group, index, vector, n) for n in (1, rows))
            # Of one window a row: those of other planes come and go anew.
            window = read < apart * rows and read <= len(tensors) * rows + apart
            if window and rows + read <= STREAMS and rows <= group.extents[index]:
                return Choice(vector=vector, vectors=vectors, tile=((index, rows),))
    return None


def _rows(group: Group, index: str, vector: str, count: int) -> int:
    """How many rows are read, beside those that are the same for all, for so many of results."""
    row = Index(index)
    moving = [a for a in group.reads if group.stride(a, index) != 0]
    rows = {(a.tensor, tuple(i for i in a.indices if vector not in indices_of(i))) for a in moving}
    return len(
        {
            (tensor, *(normalize(substitute(i, {row: add(row, const(n))})) for i in places))
            for n in range(count)
            for tensor, places in rows
        }
    )


def _spread(producer: Group, consumer: Group) -> int:
    """Rows of a temporary that one row of results needs, but for one."""
    row = Index(consumer.outs[0])
    forms = [
        linear(sub(read.indices[0], row))
        for read in reads_of(consumer)
        if read.tensor == producer.name
    ]
    offsets = [form.const for form in forms if form is not None]
    return max(offsets) - min(offsets)
