"""Schedule files of programs: the graph primitives, then one section a kernel.

    # diptych graph schedule, format 1
    # diptych: 0.1.0
    # program: step
    # graph: 59c1a0be4c7d27f0
    # ms: 1.9
    parallel_do(x=0, y=0, devices=2)
    fuse("dense[0]", "relu[0]")
    # kernel: dense[0]+relu[0]
    tile(i=8, j=48)
    vectorize("ji")
    # end

A section holds the primitives of the kernel's loop schedule, as a loop schedule file does. `graph`
is the fingerprint of the program (of its operators, connections and element types, not of sizes),
where it was known. Header lines that this version does not know are skipped; the last line shows
that nothing is missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...algo.contents import contents
from ...algo.errors import FileFormatError, GraphError, ScheduleError
from ...algo.graph.fingerprint import fingerprint
from ...algo.graph.graph import Graph
from ..loop.file import store, unreadable
from ..loop.text import calls
from .kernel import Kernel
from .primitive import call_text

if TYPE_CHECKING:
    from .schedule import GraphSchedule

FORMAT = 1
_FIRST = re.compile(r"# diptych graph schedule, format (\d+)")
_KERNEL = "# kernel: "
_GRAPH = "# graph: "
_END = "# end"


def text_of(schedule: GraphSchedule, figures: Mapping[str, object]) -> str:
    """The text of the file for a schedule."""
    lines = [f"# diptych graph schedule, format {FORMAT}"]
    lines.append(f"# diptych: {metadata.version('diptych')}")
    lines.append(f"# program: {schedule.program.name}")
    graph = schedule.graph
    mark = fingerprint(graph) if graph is not None else schedule.origin and schedule.origin[1]
    lines += [f"{_GRAPH}{mark}"] if mark else []
    lines += [f"# {name}: {' '.join(str(value).split())}" for name, value in figures.items()]
    kernels = [p for p in schedule.primitives if isinstance(p, Kernel)]
    lines += [p.text for p in schedule.primitives if not isinstance(p, Kernel)]
    for kernel in kernels:
        lines.append(f"{_KERNEL}{kernel.selector}")
        lines += [call_text(*call) for call in calls(kernel.schedule)]
    lines.append(_END)
    return "\n".join(lines) + "\n"


def write(schedule: GraphSchedule, path: Path, figures: Mapping[str, object]) -> None:
    """Writes a schedule file. Raises as `store`."""
    store(text_of(schedule, figures), path)


def is_file(text: str) -> bool:
    """Is this the text of a file, and not only calls?"""
    return text.lstrip().startswith("#")


def read(program: Any, path: Path) -> GraphSchedule:
    """The schedule in a file. Raises `FileFormatError` where the file is damaged, newer, or made
    for another program, and `GraphError` where a primitive is refused."""
    from .schedule import GraphSchedule

    try:
        text = contents(path).decode()
    except UnicodeDecodeError:
        raise FileFormatError(f"{path}: not a schedule file: it is not text") from None
    except OSError as err:
        raise unreadable(path, err) from None
    return replayed(GraphSchedule(program), text, str(path))


def replayed(schedule: GraphSchedule, text: str, where: str) -> GraphSchedule:
    """`schedule` with the primitives of a file's text after its own."""
    from .schedule import GraphSchedule

    lines = [line.strip() for line in text.strip().splitlines()]
    _check_header(schedule.program.name, where, lines)
    mark = next((x.removeprefix(_GRAPH) for x in lines if x.startswith(_GRAPH)), None)
    if mark is not None:
        schedule = GraphSchedule(schedule.program, schedule.primitives, (where, mark))
    section: str | None = None
    for number, line in enumerate(lines, 1):
        if line.startswith(_KERNEL):
            section = line.removeprefix(_KERNEL)
            body = _section(lines[number:])
            try:
                schedule = schedule.kernel(section, "".join(f".{each}" for each in body))
            except GraphError as error:
                raise GraphError(f"{where}:{number}: {error}") from None
        elif line and not line.startswith("#") and section is None:
            schedule = _with_line(schedule, line, f"{where}:{number}")
    return schedule


def check_origin(graph: Graph, where: str, mark: str) -> None:
    """Raises where a schedule file was made for a program with another fingerprint."""
    found = fingerprint(graph)
    if found != mark:
        raise FileFormatError(
            f"{where}: made for another program called {graph.name}: its operators, connections or "
            f"element types have the fingerprint {mark}, this program's {found}; make the file "
            f"anew, or delete its line '{_GRAPH}{mark}' to apply what fits"
        )


def _with_line(schedule: GraphSchedule, line: str, place: str) -> GraphSchedule:
    try:
        for name, args, keywords in calls(line):
            schedule = schedule.call(name, *args, **keywords)
    except ScheduleError as error:
        raise FileFormatError(f"{place}: {error}") from None
    except GraphError as error:
        raise GraphError(f"{place}: {error}") from None
    return schedule


def _section(lines: list[str]) -> list[str]:
    body = []
    for line in lines:
        if line.startswith((_KERNEL, _END)):
            break
        if line and not line.startswith("#"):
            body.append(line.removeprefix("."))
    return body


def _check_header(name: str, where: str, lines: list[str]) -> None:
    first = _FIRST.fullmatch(lines[0]) if lines else None
    if first is None:
        raise FileFormatError(
            f"{where}: not a schedule file of a program: its first line is not "
            f"'# diptych graph schedule, format {FORMAT}'"
        )
    if int(first[1]) > FORMAT:
        raise FileFormatError(
            f"{where}: written in format {first[1]}; this version reads format {FORMAT}; a newer "
            "Diptych reads it"
        )
    if lines[-1] != _END:
        raise FileFormatError(f"{where}: cut off: its last line is not '{_END}'")
    made_for = next(
        (x.removeprefix("# program: ") for x in lines if x.startswith("# program: ")), None
    )
    if made_for is None:
        raise FileFormatError(f"{where}: damaged: its header has no line '# program: ...'")
    if made_for != name:
        raise FileFormatError(f"{where}: made for the program {made_for}, not for {name}")
