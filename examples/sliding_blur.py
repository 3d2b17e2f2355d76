"""A separable 5 x 5 blur with every trade of recomputation, locality and parallelism that there is.

`sliding_blur.sched`: strips of rows run in parallel; within a strip each row of `rows` is computed
once, right before the first row of `out` that needs it, and eight of them are kept.
`overlapped_blur.sched`: tiles run in parallel, each computing the rows it needs, so that those at
the border of two tiles are computed twice.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import diptych as dt
import numpy as np
from timing import interleaved

blur = dt.op(
    """
    blur(image: f32[H, W], w: f32[5]) -> out:
        rows[y,x] = sum(image[y,x+k] * w[k])
        out[y,x]  = sum(rows[y+k,x] * w[k])
    """
)

SLIDING = (
    blur.schedule()
    .split("out.y", 64)
    .compute_at("rows", "out.yi")
    .store_at("rows", "out.yo")
    .vectorize("rows.x", 16)
    .vectorize("out.x", 16)
    .parallel("out.yo")
)

OVERLAPPED = (
    blur.schedule()
    .tile({"out.y": 32, "out.x": 128})
    .compute_at("rows", "out.xo")
    .vectorize("rows.x", 16)
    .vectorize("out.xi", 16)
    .parallel("out.yo")
)


def main(height: int = 1080, width: int = 1920) -> None:
    image = np.random.default_rng(0).random((height, width), np.float32)
    w = np.array([1, 4, 6, 4, 1], np.float32) / 16
    here = Path(__file__)
    files = {name: here.with_name(f"{name}_blur.sched") for name in ("sliding", "overlapped")}
    runs = {name: blur.with_schedule(path, strict=True) for name, path in files.items()}
    across = sum(w[k] * image[:, k : width - 4 + k].astype(np.float64) for k in range(5))
    want = sum(w[k] * across[k : height - 4 + k] for k in range(5))
    for name, run in runs.items():
        print(f"== {name}\n{run.schedule}\n")
        np.testing.assert_allclose(run(image, w), want, rtol=1e-5)
    times = interleaved(5, *(lambda run=run: run(image, w) for run in (*runs.values(), blur)))
    for name, seconds in zip((*runs, "unscheduled"), times, strict=True):
        print(f"{name}: {seconds * 1e3:.2f} ms for {height} x {width}")


if __name__ == "__main__":
    main()
