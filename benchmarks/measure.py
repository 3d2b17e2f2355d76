"""Times of several calls, taken in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

from peers import Call

SAMPLE = 50e-6  # seconds: shorter calls are timed several together
BLOCK = 30e-3  # seconds that one call is timed for before it is the next one's turn


def medians(calls: Mapping[str, Call], rounds: int, threads: int) -> dict[str, float]:
    """Median seconds of each call.

    The calls take turns, so that noise of the machine is noise for all. Before a call is timed it
    runs for a while: threads of the library before it may still spin on the processors.
    """
    settle = 0.15 if threads > 1 else 0.02
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name] += _block(call, settle)
    return {name: statistics.median(found) for name, found in times.items()}


def _block(call: Call, settle: float) -> list[float]:
    """Seconds of a call, of as many runs as a block has time for; at least one."""
    start, runs = time.perf_counter(), 0
    while runs == 0 or time.perf_counter() - start < settle:
        call()
        runs += 1
    together = max(1, round(SAMPLE * runs / (time.perf_counter() - start)))
    samples = []
    end = time.perf_counter() + BLOCK
    while not samples or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(together):
            call()
        samples.append((time.perf_counter() - start) / together)
    return samples
