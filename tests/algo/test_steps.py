"""Recursion on a stack of its own."""

from __future__ import annotations

import pytest
from diptych.algo.steps import Steps, finish


def countdown(n: int, caught_at: int | None = None) -> Steps:
    if n == 0:
        raise ValueError("the bottom")
    try:
        return 1 + (yield countdown(n - 1, caught_at))
    except ValueError:
        if n != caught_at:
            raise
        return 0


def test_errors_reach_whoever_waits_for_the_result() -> None:
    assert finish(countdown(5000, caught_at=3)) == 4997
    with pytest.raises(ValueError, match="the bottom"):
        finish(countdown(5000))
