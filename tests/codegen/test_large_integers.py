"""Integers that have more than 64 bits: none beside indices, and any in schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest

HUGE = 2**63


@pytest.mark.parametrize(
    "text",
    [
        f"y[i] = x[i + {HUGE}]",
        f"y[i] = x[{HUGE} * i]",
        f"y[i] = x[{HUGE}]",
        f"y[{HUGE}] = x[0]",
        f"y[i] = x[i] where i in 0:{HUGE}",
        f"y[i] = x[i] + (i - {HUGE})",
        f"y[] = sum(x[i], where=i < {HUGE})",
        f"y[i] = where(i < {HUGE}, x[i], 9) where i in 0:4",
    ],
)
def test_beside_indices(text: str) -> None:
    with pytest.raises(dt.OpError) as refused:
        dt.op(text)
    first = str(refused.value).splitlines()[0]
    assert first == f"{HUGE} does not fit i64, the type of indices and sizes"


def test_beside_floats() -> None:
    op, x = dt.op(f"y[i] = x[i] * {HUGE}"), np.arange(4.0)
    np.testing.assert_array_equal(op(x), x * 2.0**63)


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "vectorize": lambda s: s.vectorize("j", HUGE),
    "split": lambda s: s.split("j", HUGE).vectorize("ji"),
    "split twice": lambda s: s.split("j", HUGE).split("ji", 2**62).parallel("i"),
    "stage": lambda s: s.split("j", 10**23).stage("x", at="jo"),
    "fuse": lambda s: s.split("j", HUGE).fuse("jo", "ji"),
    "skew": lambda s: s.skew("j", "i", HUGE),
    "prefetch": lambda s: s.prefetch("x", "j", HUGE),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_in_schedules(name: str) -> None:
    op, x = dt.op("y[i,j] = x[i,j]"), np.arange(35.0).reshape(5, 7)
    np.testing.assert_array_equal(SCHEDULES[name](op.schedule())(x), x)
