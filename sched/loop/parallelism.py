"""Is a nest worth sharing out to threads, and which of its loops do they share?"""

from __future__ import annotations

from .access import Group
from .machine import Machine

WORTH_A_THREAD = 30e-6  # seconds of one thread; below, waking others costs more than it saves
ADDITIONS = 7e9  # a second and lane, roughly
FROM_CACHE, FROM_MEMORY = 40e9, 12e9  # bytes a second and thread


def worth_threads(group: Group, lanes: int, machine: Machine) -> bool:
    """Is there enough work in the nest to share it out? `lanes` is 1 where nothing is in lanes.

    Inside the loops of a recurrence it is shared out again in every iteration.
    """
    arithmetic = group.work * group.cost / (ADDITIONS * lanes)
    rate = FROM_CACHE if 2 * group.footprint <= machine.l3 else FROM_MEMORY
    seconds = max(arithmetic, group.footprint / rate)
    return machine.threads > 1 and seconds >= WORTH_A_THREAD * (1 if group.free else group.rounds)


def shared_loop(group: Group, vector: str | None, lanes: int, machine: Machine) -> str | None:
    """The loop that is given to threads: the outermost that has enough iterations."""
    if not worth_threads(group, lanes, machine):
        return None
    inner = [] if group.free else group.outs
    free = [i for i in (*group.free, *inner) if i != vector and i not in group.solved]
    wide = [i for i in free if group.extents[i] >= 2 * machine.threads]
    some = [i for i in free if group.extents[i] >= machine.threads]
    return next(iter(wide or some), None)


def chunk_of(extent: int, machine: Machine) -> int:
    """Iterations of a block, where one long loop is shared out."""
    return max(1024, -(-extent // (4 * machine.threads)))
