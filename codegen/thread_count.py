"""How many threads may run at once, unless the user says otherwise."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path, PurePosixPath

from ..algo.errors import EnvironmentValueError

MOST = (1 << 15) - 1
"""A region of the pool counts those that it wants in 15 bits (`pool_code.py`)."""


def default_threads() -> int:
    """DIPTYCH_NUM_THREADS, else OMP_NUM_THREADS if it is such a number, else what is available."""
    for name in ("DIPTYCH_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "").split(",")[0].strip()
        if not text:
            continue
        number = int(text) if re.fullmatch("[0-9]{1,9}", text) else 0
        if 1 <= number <= MOST:
            return number
        if name == "DIPTYCH_NUM_THREADS":
            raise EnvironmentValueError(
                f"DIPTYCH_NUM_THREADS is {text!r}; expected a number of threads from 1 to {MOST}"
            )
    return available()


def available() -> int:
    """The number of threads that affinity and cgroup quotas let run at once."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, math.ceil(min(count, cgroup_quota())))


def cgroup_quota(
    mounted: Path = Path("/sys/fs/cgroup"), ours: Path = Path("/proc/self/cgroup")
) -> float:
    """The number of processors that our control groups grant; infinity without a limit.

    Of our group and all around it the strictest counts. `ours` says which one it is, in each
    hierarchy; in a container that may be a name from outside, of which only the root is mounted.
    """
    try:
        lines = ours.read_text().splitlines()
    except OSError:
        lines = []
    # Version 2 has one hierarchy, version 1 one for some controllers, mounted by their names.
    groups = {mounted: "", mounted / "unified": "", mounted / "cpu": ""}
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if not controllers:
            groups[mounted] = groups[mounted / "unified"] = path
        elif "cpu" in controllers.split(","):
            groups[mounted / "cpu"] = groups[mounted / controllers] = path
    least = math.inf
    for root, path in groups.items():
        inner = PurePosixPath(path.lstrip("/"))
        for group in (inner, *inner.parents):
            least = min(least, _quota(root / group))
    return least


def _quota(group: Path) -> float:
    """What one group grants: version 2 in one file, version 1 in two."""
    try:
        try:
            quota, period = (group / "cpu.max").read_text().split()
        except OSError:
            quota = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
        return math.inf if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
