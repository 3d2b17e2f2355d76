"""The table of common layers and kernels: each agrees with NumPy or SciPy, unscheduled."""

from __future__ import annotations

from typing import Any

import diptych as dt
import pytest
from diptych.codegen import jit
from diptych.codegen.symbols import ALLOWED, undefined_symbols
from operators.table import DOCS, ENTRIES, MAKE, agree


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_by_its_default_schedule(entry: Any) -> None:
    """And its object asks for nothing foreign."""
    op = entry.op()
    agree(entry, op, "float32")
    if jit.triple().endswith("linux-gnu"):  # where objects are such as `symbols.py` reads
        compiled = op._memo["runner"][1].last
        assert undefined_symbols(compiled.last.code.loaded.data) <= ALLOWED


def test_the_page_is_current() -> None:
    assert MAKE["page"]() == (DOCS / "operators.md").read_text(), "run `make docs`"


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_its_text_parses_back(entry: Any) -> None:
    assert dt.op(entry.op().text) == entry.op()


def test_there_are_enough_of_them() -> None:
    titles = [entry.title for entry in ENTRIES]
    assert len(set(titles)) == len(titles) >= 60
