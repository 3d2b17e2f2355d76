"""`docs/errors.md` is current, so the whole text of every error in it is asserted."""

from __future__ import annotations

import runpy
from pathlib import Path

import diptych
import pytest

DOCS = Path(diptych.__file__).parent / "docs"
MAKE = runpy.run_path(str(DOCS / "errors.py"))
PAGE = (DOCS / "errors.md").read_text()


@pytest.mark.parametrize("case", MAKE["cases"](), ids=str)
def test_error(case: object) -> None:
    code, text = case.code, case.run()  # type: ignore[attr-defined]
    assert f"**{case.title}**\n\n```python\n{code}```\n```text\n{text}\n```\n" in PAGE  # type: ignore[attr-defined]


def test_the_page_has_these_cases_only() -> None:
    titles = [case.title for case in MAKE["cases"]()]
    assert len(set(titles)) == len(titles), "two cases have one title"
    assert PAGE.count("\n```text\n") == len(titles)
