"""The tuner's choices for products of matrices of bytes."""

from __future__ import annotations

import random
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.dtypes import i8, u8
from diptych.autotune.space import LoopSpace
from diptych.sched.loop.machine import Machine

MACHINES = [
    Machine(vector_bytes=64, registers=32, dots=(4,), matrices=True, threads=2),
    Machine(vector_bytes=64, registers=32, dots=(4,), threads=2),
]
MATMUL = dt.op("C[i,j] = sum(A[i,k] * B[k,j])")


@pytest.mark.parametrize("machine", MACHINES)
def test_choices_are_legal_exact_and_mostly_by_words(machine: Machine) -> None:
    sizes = {"I": 50, "J": 70, "K": 90}
    space = LoopSpace(MATMUL, {"A": i8, "B": u8}, sizes, machine)
    draw, rng = random.Random(1), np.random.default_rng(1)
    a = rng.integers(-128, 128, (50, 90), np.int8)
    b = rng.integers(0, 256, (90, 70), np.uint8)
    want = a.astype(np.int64) @ b
    points: list[Any] = [space.default(), *space.seeds()]
    texts = [space.text(point) for point in points]
    assert all(text is not None and "tensorize" in text for text in texts)
    drawn = [space.sample(draw) for _ in range(12)]
    drawn += [space.mutate(point, draw) for point in drawn]
    more = [space.text(point) for point in drawn]
    assert sum("tensorize" in (text or "") for text in more) >= len(more) // 2
    assert len({len(space.features(point)) for point in [*points, *drawn]}) == 1
    for text in dict.fromkeys([*texts, *more[:8]]):
        made = dt.Schedule.parse(MATMUL, text or "")
        np.testing.assert_array_equal(made(a, b), want, err_msg=made.text)
