"""`docs/printed.md` is current."""

from __future__ import annotations

import runpy
from pathlib import Path

import diptych

DOCS = Path(diptych.__file__).parent / "docs"


def test_the_page_is_current() -> None:
    assert runpy.run_path(str(DOCS / "printed.py"))["page"]() == (DOCS / "printed.md").read_text()
