"""How many threads may run at once, unless the user says otherwise."""

from __future__ import annotations

import math
import os
from pathlib import Path

from ..algo.errors import EnvironmentValueError


def default_threads() -> int:
    """DIPTYCH_NUM_THREADS, else OMP_NUM_THREADS, else what is available."""
    for name in ("DIPTYCH_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "").split(",")[0].strip()
        if not text:
            continue
        if text.isdigit() and int(text) > 0:
            return int(text)
        if name == "DIPTYCH_NUM_THREADS":
            raise EnvironmentValueError(
                f"DIPTYCH_NUM_THREADS is {text!r}; expected a number of threads, at least 1"
            )
    return available()


def available() -> int:
    """The number of threads that affinity and cgroup quota let run at once."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, math.ceil(min(count, cgroup_quota(Path("/sys/fs/cgroup")))))


def cgroup_quota(root: Path) -> float:
    """The number of processors that the control group grants; infinity without a limit."""
    try:  # version 2
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:  # version 1
            quota = (root / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return math.inf
    if quota in ("max", "-1"):
        return math.inf
    return int(quota) / int(period)
