"""Where in the user's source something was written."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy

from .errors import Error

_PACKAGE = str(Path(__file__).resolve().parent.parent)
_NUMPY = str(Path(numpy.__file__).parent)
_WIDEST = 120  # columns of a source line that a message shows
_OUTSIDE = ("tests", "examples", ".venv", "benchmarks")


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
        line, column = self.text.rstrip("\n"), self.column
        if len(line) > _WIDEST:
            start = max(0, min((column or 0) - _WIDEST // 2, len(line) - _WIDEST))
            before, after = "..." * (start > 0), "..." * (start + _WIDEST < len(line))
            line = before + line[start : start + _WIDEST] + after
            column = None if column is None else column - start + len(before)
        return f"    {line}" + ("" if column is None else f"\n    {' ' * column}^")


def caller() -> Loc:
    """The innermost frame outside the package (its own tests and examples count as outside)."""
    frame = sys._getframe(1)
    while frame is not None:
        if _is_user_code(frame.f_code.co_filename):
            return _line(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return Loc("<unknown>", 0)


@contextmanager
def located(*kinds: type[Error]) -> Iterator[None]:
    """Says in errors of these kinds where the user's code was, within the block, that met them.

    The line goes before the message, as in errors of operators.
    """
    try:
        yield
    except kinds as error:
        trace, places = error.__traceback__, []
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if _is_user_code(file):
                places.append(_line(file, trace.tb_lineno))
            trace = trace.tb_next
        if places:
            error.args = (f"{places[-1]}: {error}" + f"\n{places[-1].caret()}".rstrip(),)
        raise


def _line(file: str, number: int) -> Loc:
    return Loc(file, number, None, linecache.getline(file, number).strip() or None)


def _is_user_code(file: str) -> bool:
    inside = file[len(_PACKAGE) + 1 :] if file.startswith(_PACKAGE) else None
    return not file.startswith(_NUMPY) and (inside is None or inside.startswith(_OUTSIDE))
