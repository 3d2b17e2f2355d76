"""Makes `docs/printed.md`: small pieces of a user's code, each with what its last line prints.

Chapters and cases are written as those of the errors (`docs/errors.py`), in `docs/printed/`.
"""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parent
CASES = runpy.run_path(str(DOCS / "errors.py"))
HEAD = """# Printed forms

What operators, schedules, loops, plans and gradients look like when they are printed. Under each
piece of code stands what `print` of its last line gives. Before it come the same lines as on the
page of errors. Made by `make docs`, and checked by the tests.
"""


def page() -> str:
    """The whole page."""
    made: str = CASES["page"](HEAD, "printed", CASES["value"])
    return made


if __name__ == "__main__":
    (DOCS / "printed.md").write_text(page())
