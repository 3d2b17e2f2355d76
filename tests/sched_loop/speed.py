"""How fast this machine is at what checks do: fixed work for isl and Python, none of it ours.

Limits of time are meant for the machine that they were set on. Elsewhere, and while other work
shares its caches, they are in proportion to what the fixed work takes there at the same time.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence

from islpy import UnionAccessInfo, UnionMap

REFERENCE = 0.017
"""Processor seconds of the work where the limits were set: half of a two-core AVX-512 server."""

SOURCE = "[N, M] -> { %s[t,i,j] -> A[i%+d,j%+d] : 0 < t < M and 0 < i < N-1 and 0 < j < N-1 }"
ORDER = "{ W[t,i,j] -> [t, floor(i/8), floor(j/32), i, j, 1]; %s }"
READ = "%s[t,i,j] -> [t, floor(i/8), floor(j/32), i, j, 0]"


def work() -> int:
    """The value flow of a tiled stencil, and as much of tuples and dictionaries."""
    near = [(-1, 0), (0, -1), (0, 0), (0, 1), (1, 0)]
    names = [f"R{n}" for n in range(len(near))]
    reads = UnionMap("{ }")
    for name, (di, dj) in zip(names, near, strict=True):
        reads = reads.union(UnionMap(SOURCE % (name, di, dj)))
    order = UnionMap(ORDER % "; ".join(READ % name for name in names))
    access = UnionAccessInfo.from_sink(reads).set_must_source(UnionMap(SOURCE % ("W", 0, 0)))
    flow = access.set_schedule_map(order).compute_flow().get_must_dependence()
    known = {(n, n % 7, str(n)): n for n in range(4000)}
    return len(str(flow)) + sum(known.values())


def seconds(task: Callable[[], object]) -> float:
    """Processor time, which other processes do not spend, nor the collection of what the tests
    before it left."""
    gc.freeze()
    try:
        start = time.process_time()
        task()
        return time.process_time() - start
    finally:
        gc.unfreeze()


def slowness(spent: Sequence[float]) -> float:
    """By how much this machine is slower than where the limits were set, but at least 1, from the
    seconds of some runs of the work."""
    return max(1.0, statistics.median(spent) / REFERENCE)
