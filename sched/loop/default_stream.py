"""Which results the default schedule stores past the caches.

A store to a line that no cache holds brings the line from memory first, only to overwrite it; a
streamed one does not, which is a third of what `z = x + y` moves. It pays for a large result
of a kernel that touches more than the last cache holds. A result that is small stays there
for what reads it next, as it does where the whole kernel's tensors stay.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from .access import Group
from .machine import Machine
from .sketch import Choice

LARGE = 4
"""A result of more than so many second-level caches may be stored past them."""
PASSING = 3 / 4
"""How much of the last cache a kernel's tensors fill before they push each other out of it."""


def large(group: Group, machine: Machine) -> bool:
    """Is a nest's result too large to be found in a cache by what reads it?"""
    return group.cells * group.sizes[group.main.tensor] > LARGE * machine.l2


def streamed(
    found: Sequence[Group],
    temps: Collection[str],
    choices: Mapping[str, Choice],
    machine: Machine,
) -> frozenset[str]:
    """The nests whose results are stored past the caches."""
    inside = {group.main.tensor for group in found if choices[group.name].join is not None}
    read = {a.tensor for group in found for a in group.reads}
    kept = {*read, *(group.main.tensor for group in found)} - (inside & set(temps))
    moved = sum(math.prod(found[0].shapes[t]) * found[0].sizes[t] for t in kept)
    if moved < PASSING * machine.l3:
        return frozenset()
    writers = [group.main.tensor for group in found]
    return frozenset(
        group.name
        for group in found
        if group.main.tensor not in temps
        and group.main.tensor not in read
        and writers.count(group.main.tensor) == 1
        and large(group, machine)
        and _in_whole_vectors(group, choices[group.name], machine)
    )


def _in_whole_vectors(group: Group, choice: Choice, machine: Machine) -> bool:
    """Is each element stored once, in vectors that start where those in memory do?"""
    plain = group.is_plain and not group.reds
    along = choice.merge or (choice.vector,)
    if not plain or choice.turned is not None or along[-1] not in group.outs:
        return False
    whole = machine.lanes(group.sizes[group.main.tensor])
    steps = [group.store_stride(index) for index in group.outs if index not in along]
    together = group.store_stride(str(along[-1])) == 1
    return together and all(step is not None and step % whole == 0 for step in steps)
