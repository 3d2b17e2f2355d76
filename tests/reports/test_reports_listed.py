"""Every row of the user reports that operators and loop schedules answer for has its test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
FOUND = {
    int(number)
    for file in TESTS.rglob("test_*.py")
    for number in re.findall(r"^def test_r(\d\d)_", file.read_text(), re.MULTILINE)
}
# Wrong results, crashes, messages, features, legality, element types, shapes.
ROWS = [1, 2, 3, 4, 6, 8, 9, 10, 13, 17, 18, 19, 24, 25, 27, 38, 39, 40, 43, 44, 52, 54, 56, 57, 58]
ROWS += [59, 62, 63]


@pytest.mark.parametrize("row", ROWS, ids="R{:02}".format)
def test_a_row_has_a_test_with_its_number(row: int) -> None:
    assert row in FOUND
