"""Timing beside a peer: medians of runs taken in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def interleaved(rounds: int, *runs: Callable[[], Any]) -> list[float]:
    """Median seconds of each, run in turn so that a noisy machine is noisy for all.

    Before a run is timed its own kind runs for 150 ms: so long do the idle threads of the library
    before it spin on the processors.
    """
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds + 1):
        for kept, run in zip(times, runs, strict=True):
            settle = time.perf_counter() + 0.15
            while time.perf_counter() < settle:
                run()
            start = time.perf_counter()
            run()
            kept.append(time.perf_counter() - start)
    return [statistics.median(kept[1:]) for kept in times]
