"""Heat in a plate over time, as one operator, and a schedule that tiles time.

The operator is a recurrence: each step reads the one before. Step by step, the whole plate goes
through the caches once a step. Skewed by one cell a step, every dependence runs forwards in all
three loops, so blocks of steps and of cells may be tiled together: a tile stays in the cache for
all of its steps. The schedule stands in `time_skewed_stencil.sched`.

    python examples/time_skewed_stencil.py
"""

from __future__ import annotations

from pathlib import Path

import diptych as dt
import numpy as np

STEPS = 32

heat = dt.op(
    f"""
    heat(plate: f32[H, W]) -> u:
        u[0,i,j] = plate[i,j]
        u[t,i,j] = 0.5 * u[t-1,i,j] + 0.125 * (u.edge[t-1,i-1,j] + u.edge[t-1,i+1,j]
                 + u.edge[t-1,i,j-1] + u.edge[t-1,i,j+1]) where t in 1:{STEPS}
    """
)

schedule = (
    heat.schedule()
    .skew("u.1.i", "u.1.t")
    .skew("u.1.j", "u.1.t")
    .tile(**{"u.1.t": 8, "u.1.i": 32, "u.1.j": 128})
    .vectorize("u.1.ji")
)

FILE = Path(__file__).with_suffix(".sched")


def plain(plate: np.ndarray) -> np.ndarray:
    """The same by NumPy, one step after the other."""
    steps = [plate]
    for _ in range(1, STEPS):
        p = np.pad(steps[-1], 1, mode="edge")
        sides = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        steps.append(np.float32(0.5) * steps[-1] + np.float32(0.125) * sides)
    return np.stack(steps)


def main() -> None:
    plate = np.random.default_rng(0).random((300, 500), np.float32)
    tiled = heat.with_schedule(str(FILE), strict=True)
    difference = np.abs(tiled(plate) - plain(plate)).max()
    print(schedule)
    print(f"largest difference from NumPy: {difference:.1e}")
    assert difference < 1e-6


if __name__ == "__main__":
    main()
