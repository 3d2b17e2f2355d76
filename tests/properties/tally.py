"""Counts of trials that run in chunks, in any order and in any worker of a test run.

Each chunk leaves its counts in a folder that the workers share. Whoever leaves the last finds all
there, and can say whether the trials together were varied enough to mean something.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest


def chunks(trials: int, size: int) -> list[object]:
    """The parameters of a test that runs so many trials; `conftest.py` knows chunks by the name."""
    return [pytest.param(n, id=f"chunk{n}") for n in range(trials // size)]


def together(
    temporary: pytest.TempPathFactory, test: str, chunk: int, counts: Counter[str], of: int
) -> Counter[str] | None:
    """The sum of all counts of a test, if this chunk is the last `of` so many; else None."""
    run = temporary.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent  # a worker's own folder is in that of the run
    folder: Path = run / f"tally-{test}"
    folder.mkdir(exist_ok=True)
    fresh = folder / f"{chunk}.{os.getpid()}"
    fresh.write_text(json.dumps(counts))
    fresh.rename(folder / f"{chunk}.json")  # at once, so that nobody reads half of it
    left = list(folder.glob("*.json"))
    if len(left) < of:
        return None
    return sum((Counter(json.loads(path.read_text())) for path in left), Counter())
