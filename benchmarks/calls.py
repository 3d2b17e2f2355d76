"""First calls with an empty cache, later calls of a tiny operator, import."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent / "examples"
FIRST = """
import os, time; start = time.perf_counter(); import numpy as np, diptych as dt
print('import %.0f ms' % (1e3 * (time.perf_counter() - start)))
import sys; sys.path.insert(0, os.environ['EXAMPLES']); from matmul import matmul
a = np.ones((1024, 1024), np.float32)
run = matmul.with_schedule(os.environ['EXAMPLES'] + '/matmul.sched', strict=True)
for name, f in (('scheduled', run), ('default', matmul)):
    start = time.perf_counter(); f(a, a)
    print('first call, %s matmul 1024: %.3f s' % (name, time.perf_counter() - start))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        env = os.environ | {"DIPTYCH_CACHE_DIR": str(cache), "EXAMPLES": str(EXAMPLES)}
        for label in ("empty cache", "from the disk cache"):
            print(f"-- {label}", flush=True)
            subprocess.run([sys.executable, "-P", "-c", FIRST], check=True, env=env)
        shutil.rmtree(cache)
    _later()


def _later() -> None:
    import diptych as dt
    import numpy as np

    add = dt.op("y[i] = a[i] + b[i]")
    a, b, out = (np.ones(16, np.float32) for _ in range(3))
    add(a, b)
    ours, into, peer = (_many(f) for f in (lambda: add(a, b), lambda: add(a, b, out=out),
                                           lambda: a + b))  # fmt: skip
    print(
        f"16-element add: {ours * 1e6:.2f} us a call, {into * 1e6:.2f} us with out=, "
        f"numpy {peer * 1e6:.2f} us"
    )


def _many(call: Callable[[], Any]) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(10_000):
            call()
        times.append((time.perf_counter() - start) / 10_000)
    return statistics.median(times)
