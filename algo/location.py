"""Where in the user's source something was written."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True, slots=True)
class Loc:
    """A line of a file, or of operator text; `column` counts from 0."""

    file: str
    line: int
    column: int | None = None
    text: str | None = None

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"

    def caret(self) -> str:
        """The source line with a caret under the column, or nothing if the line is unknown."""
        if self.text is None or not self.text.strip():
            return ""
        line = self.text.rstrip("\n")
        return f"    {line}" + ("" if self.column is None else f"\n    {' ' * self.column}^")


def caller() -> Loc:
    """The innermost frame outside the package (its own tests and examples count as outside)."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        inside = file.startswith(_PACKAGE) and not _is_user_code(file)
        if not inside:
            line = linecache.getline(file, frame.f_lineno)
            return Loc(file, frame.f_lineno, None, line.strip() or None)
        frame = frame.f_back  # type: ignore[assignment]
    return Loc("<unknown>", 0)


def _is_user_code(file: str) -> bool:
    rest = file[len(_PACKAGE) + 1 :]
    return rest.startswith(("tests", "examples", ".venv", "benchmarks"))
