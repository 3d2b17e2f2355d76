"""Default schedules bring rows near that are found by data."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from diptych.sched.loop.default import default
from diptych.sched.loop.machine import Machine

BAG = dt.op("y[b,d] = sum(w[at[b,t],d])")
PLAIN = '.reorder("b", "t", "d").stage("y", at="b", scope="register").vectorize("d")'


@pytest.mark.parametrize(("rows", "ahead"), [(100_000, '.prefetch("w", "t", 8)'), (1000, "")])
def test_rows_of_a_large_table(rows: int, ahead: str) -> None:
    """A table that a core's caches hold is near already."""
    sizes = {"w_0": rows, "B": 30, "T": 50, "D": 64}
    made = default(BAG, {"w": dt.f32, "at": dt.i64}, sizes, Machine(l2=1 << 20))
    assert made.text == PLAIN + ahead


def test_rows_that_follow_each_other() -> None:
    op = dt.op("y[d] = sum(w[t,d])")
    made = default(op, {"w": dt.f32}, {"T": 100_000, "D": 64}, Machine(l2=1 << 20))
    assert "prefetch" not in made.text


@pytest.mark.parametrize("steps", [1, 7, 8, 9, 50])
def test_bags_of_all_lengths(steps: int) -> None:
    rng = np.random.default_rng(0)
    w = rng.integers(-9, 10, (100_000, 5)).astype(np.float32)
    at = rng.integers(0, 100_000, (4, steps))
    np.testing.assert_array_equal(BAG(w, at), w[at].sum(1))
