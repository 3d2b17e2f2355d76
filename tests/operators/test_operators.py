"""The table of common layers and kernels: each entry agrees with NumPy or SciPy."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import diptych as dt
import numpy as np
import pytest

DOCS = Path(dt.__file__).parent / "docs"
MAKE = runpy.run_path(str(DOCS / "operators.py"))
ENTRIES = MAKE["entries"]()


def agree(entry: Any, run: Any, dtype: str) -> None:
    """The results have the reference's values, within what the type resolves; inputs are read."""
    arrays = entry.arrays(dtype)
    names = [p.name for p in entry.op().params]
    found = run(*(arrays[name] for name in names))
    found = found if isinstance(found, tuple) else (found,)
    for name, array in entry.arrays(dtype).items():
        np.testing.assert_array_equal(arrays[name], array)
    expected = entry.expected(arrays)
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        want = np.asarray(want)
        assert got.shape == want.shape
        if got.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
            continue
        assert np.isfinite(want).all() and want.any(), "the reference says nothing"
        eps = max(np.finfo(got.dtype).eps, np.finfo(dtype).eps)
        allowed = entry.within * float(eps)
        np.testing.assert_allclose(got, want, allowed, allowed * np.abs(want).max())


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_by_its_default_schedule(entry: Any) -> None:
    agree(entry, entry.op(), "float32")


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_by_another_schedule(entry: Any) -> None:
    """By the one that the table names, else as it is written; in float64, if no type is said."""
    op = entry.op()
    schedule = dt.Schedule.parse(op, entry.schedule)
    declared = {p.type.dtype for p in op.params} & {dt.f32}
    agree(entry, op.with_schedule(schedule, strict=True), "float32" if declared else "float64")


def test_the_page_is_current() -> None:
    assert MAKE["page"]() == (DOCS / "operators.md").read_text(), "run `make docs`"


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_its_text_parses_back(entry: Any) -> None:
    assert dt.op(entry.op().text) == entry.op()


def test_there_are_enough_of_them() -> None:
    titles = [entry.title for entry in ENTRIES]
    assert len(set(titles)) == len(titles) >= 60
