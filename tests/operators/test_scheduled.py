"""The table of common layers and kernels again, by hand-written schedules."""

from __future__ import annotations

from typing import Any

import diptych as dt
import pytest
from operators.table import ENTRIES, agree


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_by_another_schedule(entry: Any) -> None:
    """By the one that the table names, else as it is written; in float64, if no type is said."""
    op = entry.op()
    schedule = dt.Schedule.parse(op, entry.schedule)
    declared = {p.type.dtype for p in op.params} & {dt.f32}
    agree(entry, op.with_schedule(schedule, strict=True), "float32" if declared else "float64")
