"""The order found for tensors that need each other is right, or none is: random systems.

Elements by demand (`cycles.py`) are the second opinion. What has an order must give their values,
interpreted and compiled, at all sizes; an element that is said to need itself must do so.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.check import check
from properties.cycles import SIZES, System, draw, solvable, solve
from properties.tally import chunks, together

MODE = os.environ.get("DIPTYCH_TEST", "sample")
TRIALS = {"sample": 40, "full": 1000, "fuzz": 10**5}[MODE]
CHUNK = 20
COMPILED = 4  # one of so many is compiled too
SEED = int(os.environ.get("DIPTYCH_SEED", "0"))


@pytest.mark.parametrize("chunk", chunks(TRIALS, CHUNK))
def test_orders_of_cycles(chunk: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    counts: Counter[str] = Counter()
    for n in range(CHUNK):
        seed = SEED * 10_000_019 + chunk * CHUNK + n
        system = draw(random.Random(seed))
        found = verdict(system)
        counts[found] += 1
        if found == "ordered" and n % COMPILED == 0:
            counts[compiled(system)] += 1
    total = together(tmp_path_factory, "cycles", chunk, counts, TRIALS // CHUNK)
    if total is not None:
        assert total["ordered"] >= 0.6 * TRIALS
        assert total["circular"] >= 0.03 * TRIALS
        assert total["no order found"] <= 0.25 * TRIALS
        assert total["not lowered"] <= 0.1 * total["compiled"]


def verdict(system: System) -> str:
    """What became of a system, which must be right."""
    circular = {n for n in SIZES if not solvable(system, n)}
    try:
        op = dt.op(system.text)
        check(op)
    except dt.OpError as error:
        said = re.search(r"needs itself|, which needs", str(error))
        at = re.search(r"at N=(\d+)", str(error))
        if said and at:
            assert not solvable(system, int(at[1])), f"{error}\n{system.text}"
        else:
            assert circular or "no affine order" in str(error), f"{error}\n{system.text}"
        return "circular" if circular or said else "no order found"
    assert not circular, f"an order is found at N={circular} too\n{system.text}"
    _assert_right(system, lambda x: dt.interpret(op, x))
    return "ordered"


def compiled(system: System) -> str:
    """Whether a system was compiled, whose results are right then."""
    try:
        _assert_right(system, dt.op(system.text))
    except dt.ScheduleError:  # isl cannot generate some skewed loops
        return "not lowered"
    return "compiled"


def _assert_right(system: System, work: Callable[[np.ndarray], Sequence[np.ndarray]]) -> None:
    for n in SIZES:
        x = np.arange(2, 2 + n)
        wanted = solve(system, x.tolist())
        for (name, want), value in zip(wanted.items(), work(x), strict=True):
            np.testing.assert_array_equal(value, want, f"{name} at N={n}\n{system.text}")
