"""What starting costs a process: importing, a first call, and one of what is on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import time
start = time.process_time()
import numpy as np
import diptych as dt
imported = time.process_time()
a = np.ones((64, 64), np.float32)
c = dt.op("C[i,j] = sum(A[i,k] * B[k,j])")(a, a)
called = time.process_time()
assert (c == 64).all()
print(imported - start, called - imported, *dt.cache_info()[:2])
"""


def test_a_process_starts_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processor seconds, with room for slow machines: on a fast one 0.22 s, 0.2 s and 0.04 s."""
    monkeypatch.setenv("DIPTYCH_CACHE_DIR", str(tmp_path))
    found = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-P", "-c", SCRIPT], capture_output=True, text=True, check=True
        )
        found.append([float(word) for word in run.stdout.split()])
    (importing, cold, *first), (_, warm, *second) = found
    assert first == [1, 0] and second == [0, 1]
    assert importing < 1.5 and cold < 3 and warm < 0.5
    assert warm < cold
