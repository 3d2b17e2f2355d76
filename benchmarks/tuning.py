"""Matmul 512: what 30 s of search find, beside the default and the hand-written schedule."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def main() -> None:
    sys.path.insert(0, str(EXAMPLES))
    import diptych as dt
    import numpy as np
    from diptych.autotune.tune import tune_op
    from matmul import matmul as op
    from measure import medians

    types = {"A": (dt.f32, (512, 512)), "B": (dt.f32, (512, 512))}
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, 512), np.float32) for _ in range(2))
    out = np.empty((512, 512), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tuned.sched"
        found = tune_op(op, types, output=file, seconds=30)
        tuned = op.with_schedule(file, strict=True)
        hand = op.with_schedule(EXAMPLES / "matmul.sched", strict=True)
        calls = {
            "tuned": lambda: tuned(a, b, out=out),
            "hand-written": lambda: hand(a, b, out=out),
            "default": lambda: op(a, b, out=out),
        }
        seconds = medians(calls, rounds=7, threads=dt.threads())
        print(f"matmul 512 after {found.trials} trials:")
        for name, time in seconds.items():
            print(f"{name:14s}{time * 1e3:8.3f} ms, {seconds['tuned'] / time:.2f} of the tuned")
        print(file.read_text())
