"""`diptych show` and `diptych verify`: what a schedule file holds, and whether it is legal.

A loop schedule file carries its operator's text, so it can be checked without the user's source.
"""

from __future__ import annotations

from pathlib import Path

from ..algo.contents import contents
from ..algo.errors import FileFormatError, OpError
from ..algo.graph.program import Program
from ..algo.tensor_expr.op import Op
from ..algo.tensor_expr.parse import parse
from ..sched.graph.schedule import GraphSchedule
from ..sched.loop.file import unreadable
from ..sched.loop.schedule import Schedule
from .tasks import ProgramTask, load, split_target

_INDENT = "#   "


def show(path: Path) -> str:
    """The file's text and, for a loop schedule, the loop nest that it makes."""
    text = _read(path)
    if _is_graph(text):
        return text
    return f"{text}\n{Schedule.load(operator(path), path)}"


def verify(path: Path, target: str | None = None, inputs: str | None = None) -> str:
    """A line that says all is well; raises what is wrong.

    `target` is `file.py:name` of the operator (by default that of the file's header) or program
    that the file is for, `inputs` that of the function that gives the program's arguments.
    """
    if _is_graph(_read(path)):
        if target is None or inputs is None:
            raise FileFormatError(
                f"{path}: a graph schedule is checked against its program; give both, as in "
                f"diptych verify {path} FILE.py:PROGRAM --inputs FILE.py:FUNCTION"
            )
        task = ProgramTask(*split_target(target), *split_target(inputs), threads=1)
        task.load()
        if not isinstance(task.program, Program):
            raise OpError(f"{target} is of type {type(task.program).__name__}, not a program")
        graph = task.program.graph(*task.inputs)
        made = GraphSchedule.load(graph, path)
        return _legal(path, len(made.primitives), graph.name)
    op = operator(path) if target is None else load(*split_target(target))
    if not isinstance(op, Op):
        raise OpError(f"{target} is of type {type(op).__name__}, not an operator")
    return _legal(path, len(Schedule.load(op, path).primitives), op.name)


def _legal(path: Path, count: int, name: str) -> str:
    return f"{path}: {count} primitive{'' if count == 1 else 's'} of {name}, all legal"


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
        return contents(path).decode()
    except FileNotFoundError:
        raise FileFormatError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise FileFormatError(f"{path}: not a schedule file: it is not text") from None
    except OSError as err:
        raise unreadable(path, err) from None


def _is_graph(text: str) -> bool:
    return text.startswith("# diptych graph schedule")
