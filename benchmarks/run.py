"""Ours beside the peers, in one process run: `make bench`, or one part of it by name.

    python -P benchmarks/run.py [matmul] [calls] [defaults] [tuning]

Times are medians of interleaved runs; ratios are the peer's time over ours, so above 1 is faster
than the peer. NumPy runs without settings that slow its kernels. torch is used where installed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(variable, None)

import diptych as dt
import numpy as np
from threadpoolctl import threadpool_limits

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))

from timing import interleaved

rng = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def matmul() -> None:
    """The scheduled matmul against numpy, and against the machine's peak."""
    from matmul import matmul as op

    for size in (512, 1024):
        a, b = floats(size, size), floats(size, size)
        for threads in (1, 2):
            dt.threads(threads)
            run = op.with_schedule(EXAMPLES / "matmul.sched", strict=True)
            out = np.empty((size, size), np.float32)
            with threadpool_limits(threads):
                ours, default, peer = interleaved(
                    25,
                    lambda run=run, a=a, b=b, out=out: run(a, b, out=out),
                    lambda a=a, b=b, out=out: op(a, b, out=out),
                    lambda a=a, b=b: a @ b,
                )
            rate = 2e-9 * size**3
            print(
                f"matmul {size}^3, {threads} thread(s): scheduled {ours * 1e3:7.2f} ms "
                f"({rate / ours:5.0f} GF/s), default {default * 1e3:7.2f} ms, "
                f"numpy {peer * 1e3:7.2f} ms; ratios {peer / ours:.2f}, {peer / default:.2f}"
            )


def calls() -> None:
    """First calls with an empty cache, later calls of a tiny operator, import."""
    code = (
        "import os, time; start = time.perf_counter(); import numpy as np, diptych as dt\n"
        "print('import %.0f ms' % (1e3 * (time.perf_counter() - start)))\n"
        "import sys; sys.path.insert(0, os.environ['EXAMPLES']); from matmul import matmul\n"
        "a = np.ones((1024, 1024), np.float32)\n"
        "run = matmul.with_schedule(os.environ['EXAMPLES'] + '/matmul.sched', strict=True)\n"
        "for name, f in (('scheduled', run), ('default', matmul)):\n"
        "    start = time.perf_counter(); f(a, a)\n"
        "    print('first call, %s matmul 1024: %.2f s' % (name, time.perf_counter() - start))\n"
    )
    for label in ("empty cache", "from the disk cache"):
        with_cache = tempfile.gettempdir() + "/diptych-bench-cache"
        if label == "empty cache":
            subprocess.run(["rm", "-rf", with_cache], check=True)
        env = os.environ | {"DIPTYCH_CACHE_DIR": with_cache, "EXAMPLES": str(EXAMPLES)}
        print(f"-- {label}")
        subprocess.run([sys.executable, "-P", "-c", code], check=True, env=env)
    add = dt.op("y[i] = a[i] + b[i]")
    a, b = floats(16), floats(16)
    out = np.empty(16, np.float32)

    def many(call: Callable[[], Any]) -> float:
        start = time.perf_counter()
        for _ in range(10_000):
            call()
        return (time.perf_counter() - start) / 10_000

    add(a, b)
    ours = statistics.median(many(lambda: add(a, b)) for _ in range(7))
    into = statistics.median(many(lambda: add(a, b, out=out)) for _ in range(7))
    peer = statistics.median(many(lambda: a + b) for _ in range(7))
    print(
        f"16-element add: {ours * 1e6:.2f} us a call, {into * 1e6:.2f} us with out=, "
        f"numpy {peer * 1e6:.2f} us"
    )


DEFAULTS: dict[str, tuple[str, Callable[[], tuple[Any, ...]], Callable[..., Any]]] = {
    "A B^T 512": (
        "c[i,j] = sum(a[i,k] * b[j,k])",
        lambda: (floats(512, 512), floats(512, 512)),
        lambda a, b: a @ b.T,
    ),
    "bias + relu 2048x1024": (
        "y[i,j] = max(x[i,j] + b[j], 0)",
        lambda: (floats(2048, 1024), floats(1024)),
        lambda x, b: np.maximum(x + b, 0),
    ),
    "softmax 2048x1024": (
        "m[i] = max(x[i,j])\ne[i,j] = exp(x[i,j] - m[i])\ny[i,j] = e[i,j] / sum(e[i,l])",
        lambda: (floats(2048, 1024),),
        lambda x: _softmax(x),
    ),
    "layernorm 2048x1024": (
        "layernorm(x: [M, N]) -> y:\n  mu[i] = sum(x[i,j]) / N\n"
        "  v[i] = sum((x[i,j] - mu[i]) ** 2) / N\n  y[i,j] = (x[i,j] - mu[i]) * rsqrt(v[i] + 1e-5)",
        lambda: (floats(2048, 1024),),
        lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5),
    ),
    "row sums 4096x1024": (
        "y[i] = sum(x[i,j])",
        lambda: (floats(4096, 1024),),
        lambda x: x.sum(1),
    ),
    "cumsum rows 1024x1024": (
        "scan(x: [B, N]) -> c:\n  c[b,0] = x[b,0]\n  c[b,i] = c[b,i-1] + x[b,i] where i in 1:N",
        lambda: (floats(1024, 1024),),
        lambda x: np.cumsum(x, axis=1),
    ),
    "embedding 4096 of 10000x64": (
        "y[n,d] = w[at[n],d]",
        lambda: (floats(10_000, 64), rng.integers(0, 10_000, 4096)),
        lambda w, at: w[at],
    ),
}


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def defaults() -> None:
    """Unscheduled operators against numpy, two threads."""
    dt.threads(2)
    for name, (text, make, peer) in DEFAULTS.items():
        op = dt.op(text, returns=None if text.count("\n") == 0 or "->" in text else "y")
        arrays = make()  # in the order of the operator's inputs
        result, want = op(*arrays), peer(*arrays)
        assert np.allclose(result, want, rtol=1e-3, atol=1e-3), name
        ours, theirs = interleaved(
            15, lambda op=op, a=arrays: op(*a), lambda peer=peer, a=arrays: peer(*a)
        )
        print(
            f"{name:28s} default {ours * 1e3:8.3f} ms, numpy {theirs * 1e3:8.3f} ms; "
            f"ratio {theirs / ours:.2f}"
        )


def tuning() -> None:
    """Matmul 512: what 30 s of search find, beside the default and the hand-written schedule."""
    from diptych.autotune.tune import tune_op
    from matmul import matmul as op

    types = {"A": (dt.f32, (512, 512)), "B": (dt.f32, (512, 512))}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tuned.sched"
        found = tune_op(op, types, output=file, seconds=30)
        tuned = op.with_schedule(file, strict=True)
        hand = op.with_schedule(EXAMPLES / "matmul.sched", strict=True)
        a, b, out = floats(512, 512), floats(512, 512), np.empty((512, 512), np.float32)
        best, written, default = interleaved(
            41,
            lambda: tuned(a, b, out=out),
            lambda: hand(a, b, out=out),
            lambda: op(a, b, out=out),
        )
        print(
            f"tuned {best * 1e3:.3f} ms after {found.trials} trials, hand-written "
            f"{written * 1e3:.3f} ms, default {default * 1e3:.3f} ms: "
            f"{written / best:.2f} of the hand-written, {default / best:.2f} of the default"
        )
        print(file.read_text())


PARTS = {"matmul": matmul, "calls": calls, "defaults": defaults, "tuning": tuning}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
