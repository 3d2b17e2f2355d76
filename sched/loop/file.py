"""Schedule files: a header that people can read, then one primitive a line.

    # diptych loop schedule, format 1
    # diptych: 0.1.0
    # op: 0f3c7a...
    #   matmul(A: f32[M, K], B: f32[K, N]) -> C:
    #       C[i,j] = sum(A[i,k] * B[k,j])
    # sizes: M=1024, N=1024, K=1024
    # gflops: 108
    tile(i=8, j=48)
    reorder("io", "jo", "k", "ii", "ji")
    # end

The operator is known by its fingerprint; other header lines are for readers, and those that this
version does not know are skipped. The last line shows that nothing is missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ...algo.contents import contents
from ...algo.errors import FileFormatError, MissingFileError, ScheduleError
from ...algo.tensor_expr.op import Op
from .primitive import Primitive
from .text import calls

if TYPE_CHECKING:
    from .schedule import Schedule

FORMAT = 1
_FIRST = re.compile(r"# diptych loop schedule, format (\d+)")
_END = "# end"


def write(
    op: Op,
    primitives: tuple[Primitive, ...],
    path: Path,
    sizes: Mapping[str, int],
    figures: Mapping[str, object],
) -> None:
    """Writes a schedule file: the header, then `primitives`. Raises as `store`."""
    lines = [f"# diptych loop schedule, format {FORMAT}"]
    lines.append(f"# diptych: {metadata.version('diptych')}")
    lines.append(f"# op: {op.fingerprint}")
    lines += [f"#   {line}" for line in op.text.splitlines()]
    if sizes:
        lines.append(f"# sizes: {', '.join(f'{name}={n}' for name, n in sizes.items())}")
    lines += [f"# {name}: {' '.join(str(value).split())}" for name, value in figures.items()]
    lines += [primitive.text for primitive in primitives]
    lines.append(_END)
    store("\n".join(lines) + "\n", path)


def store(text: str, path: Path) -> None:
    """Writes a schedule file in one step: a reader sees the old one or the new one.

    Raises `MissingFileError` where there is no such folder, `FileFormatError` where the system
    does not take the file.
    """
    if os.path.isdir(path):  # of any name, where Path.is_dir raises
        raise FileFormatError(f"{path} is a folder; expected the name of a schedule file to save")
    if not os.path.isdir(path.parent):
        raise MissingFileError(
            f"cannot save the schedule file {path}: there is no folder {path.parent}"
        )
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            new.write_text(text, encoding="utf-8")
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as err:
        raise FileFormatError(f"cannot save the schedule file {path}: {err.strerror}") from None


def read(op: Op, path: Path) -> Schedule:
    """The schedule in a file, every primitive checked.

    Raises `FileFormatError` where the file is damaged, newer, or made for another operator, and
    `ScheduleError`, with the line, where a primitive is refused.
    """
    from .schedule import PRIMITIVES, Schedule

    lines = _lines(path)
    _check_header(op, path, lines)
    schedule = Schedule(op)
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        try:
            found = calls(line)
        except ScheduleError as err:
            raise FileFormatError(f"{path}:{number}: {err}") from None
        for name, args, keywords in found:
            if name not in PRIMITIVES:
                known = ", ".join(sorted(PRIMITIVES))
                raise FileFormatError(
                    f"{path}:{number}: there is no primitive {name}; this version has {known}"
                )
            try:
                schedule = schedule.call(name, *args, **keywords)
            except ScheduleError as err:
                raise ScheduleError(f"{path}:{number}: {err}") from None
    return schedule


def _lines(path: Path) -> list[str]:
    try:
        return contents(path).decode().splitlines()
    except UnicodeDecodeError:
        raise FileFormatError(f"{path}: not a schedule file: it is not text") from None
    except OSError as err:
        raise unreadable(path, err) from None


def unreadable(path: Path, err: OSError) -> FileFormatError | MissingFileError:
    """What is said of a schedule file that the system does not give."""
    if isinstance(err, FileNotFoundError):
        return MissingFileError(f"there is no schedule file {path}")
    return FileFormatError(f"{path}: not a schedule file that can be read: {err.strerror}")


def _check_header(op: Op, path: Path, lines: list[str]) -> None:
    first = _FIRST.fullmatch(lines[0].strip()) if lines else None
    if first is None:
        raise FileFormatError(
            f"{path}: not a schedule file: its first line is not "
            f"'# diptych loop schedule, format {FORMAT}'"
        )
    if int(first[1]) > FORMAT:
        maker = _field(lines, "diptych")
        by = f" by diptych {maker}" if maker else ""
        raise FileFormatError(
            f"{path}: written in format {first[1]}{by}; this version reads format {FORMAT}; "
            "a newer Diptych reads it"
        )
    if lines[-1].strip() != _END:
        raise FileFormatError(f"{path}: cut off: its last line is not '{_END}'")
    fingerprint = _field(lines, "op")
    if fingerprint is None:
        raise FileFormatError(f"{path}: damaged: its header has no line '# op: ...'")
    if fingerprint != op.fingerprint:
        made_for = "\n".join(line[4:] for line in lines if line.startswith("#   "))
        if made_for == op.text:
            raise FileFormatError(
                f"{path}: damaged: the line '# op: {fingerprint}' is not the fingerprint of the "
                "operator under it"
            )
        raise FileFormatError(f"{path}: made for another operator:\n{made_for}\nnot for\n{op.text}")


def _field(lines: list[str], name: str) -> str | None:
    start = f"# {name}: "
    return next((line[len(start) :].strip() for line in lines if line.startswith(start)), None)
