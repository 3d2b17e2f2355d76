"""What is left of a register tile at its end: computed as it stands, in lanes as wide as needed."""

from __future__ import annotations

import re
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen.host import machine

LANES = machine().lanes(4)
CONV = dt.op(
    "conv(x: [C, 18], w: [F, C, 3]) -> y:\n"
    "    y[f,q] = sum(x[c,q+s] * w[f,c,s]) where q in 0:16, s in 0:3"
)


def tiled() -> Any:
    """Sums of all positions for a block of features, stored across the block."""
    return (
        CONV.schedule()
        .split("f", 2 * LANES)
        .split("q", 16)
        .reorder("fo", "qo", "c", "s", "qi", "fi")
        .stage("y", at="qo", scope="register", layout=("q", "f"))
        .unroll("y.qi")
        .unroll("y.init.qi")
        .vectorize("y.fi")
        .vectorize("y.init.fi")
        .reorder("y.store.fi", "y.store.qi")
        .unroll("y.store.fi")
        .vectorize("y.store.qi")
        .stage("w", at="fo", scope="heap", layout=(f"f//{2 * LANES}", "c", "s", f"f%{2 * LANES}"))
    )


def source(features: int) -> str:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((8, 18), (features, 8, 3)))
    schedule = tiled()
    np.testing.assert_array_equal(schedule(x, w), dt.interpret(CONV, x, w))
    return str(schedule.source("llvm"))


@pytest.mark.skipif(LANES < 4, reason="needs vectors")
@pytest.mark.parametrize("rest", [1, 2, LANES // 2 - 1, LANES // 2])
def test_sums_of_a_narrow_tail_are_as_narrow(rest: int) -> None:
    """Columns are read from such rows without making whole registers of their sums."""
    wide = rf"phi <{LANES} x float>"
    assert len(re.findall(wide, source(2 * LANES + rest))) == len(
        re.findall(wide, source(2 * LANES))
    )


@pytest.mark.skipif(LANES < 4, reason="needs vectors")
def test_a_tail_of_single_cells_is_not_vectorized_along_the_sum() -> None:
    """LLVM would reduce a vector for each of the cells, in each turn."""
    text = source(2 * LANES + 1)
    assert len(re.findall(r"phi float", text)) >= 16
    assert "vector.reduce" not in text
