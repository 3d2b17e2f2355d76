"""`diptych show` and `diptych verify`: what a schedule file holds, and whether it is legal.

A loop schedule file carries its operator's text, so it can be checked without the user's source.
"""

from __future__ import annotations

from pathlib import Path

from ..algo.errors import FileFormatError, OpError
from ..algo.tensor_expr.op import Op
from ..algo.tensor_expr.parse import parse
from ..sched.loop.schedule import Schedule

_INDENT = "#   "


def show(path: Path) -> str:
    """The file's text and, for a loop schedule, the loop nest that it makes."""
    text = _read(path)
    if _is_graph(text):
        return text
    return f"{text}\n{Schedule.load(operator(path), path)}"


def verify(path: Path) -> str:
    """A line that says all is well; raises what is wrong."""
    if _is_graph(_read(path)):
        raise FileFormatError(
            f"{path}: a graph schedule is checked against its program; load it there with "
            "program.with_schedule(file)"
        )
    op = operator(path)
    schedule = Schedule.load(op, path)
    count = len(schedule.primitives)
    return f"{path}: {count} primitive{'' if count == 1 else 's'} of {op.name}, all legal"


def operator(path: Path) -> Op:
    """The operator whose text stands in the header."""
    lines = _read(path).splitlines()
    body = [line.removeprefix(_INDENT) for line in lines if line.startswith(_INDENT)]
    if not body:
        raise FileFormatError(f"{path}: the header has no operator text, so nothing can be checked")
    try:
        return parse("\n".join(body))
    except OpError as error:
        raise FileFormatError(f"{path}: damaged: the operator in its header: {error}") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileFormatError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise FileFormatError(f"{path}: not a schedule file: it is not text") from None


def _is_graph(text: str) -> bool:
    return text.startswith("# diptych graph schedule")
