"""The errors users meet. Each derives from `Error` and from the builtin that fits it.

A message says where, what was expected, what came, and what would help. A user's mistake and a
compiler's bug are different types: only `InternalError` means that Diptych itself is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def shortly(given: Any) -> str:
    """A value in the words of an error: as it is written, if that is short."""
    if isinstance(given, int) and given.bit_length() > 128:
        return f"an integer of {given.bit_length()} bits"
    text = repr(given)
    return text if len(text) < 40 else f"a {type(given).__name__}"


def counted(number: int, noun: str) -> str:
    """A number of things in words of a message: "1 array", "2 arrays"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Error(Exception):
    """The root of every error that Diptych raises on purpose."""


class OpError(Error, ValueError):
    """An operator that is ill-formed: its equations, indices, ranges or accesses."""


class NeedsSizes(OpError):
    """An operator that cannot be checked before some of its `sizes` are numbers.

    `extents` are those of its inputs' dimensions, by input and dimension.
    """

    def __init__(
        self, message: str, sizes: Sequence[str] = (), extents: Mapping[Any, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.sizes, self.extents = tuple(sizes), dict(extents or {})


class ParseError(OpError):
    """Operator text that does not parse; the message carries the line and a caret."""


class ShapeError(Error, ValueError):
    """Arrays whose ranks or sizes do not fit the operator."""


class DTypeError(Error, TypeError):
    """Arrays or expressions whose element types do not fit."""


class ScheduleError(Error, ValueError):
    """A primitive that is illegal (with a witness), meaningless, or names no known loop."""


class GraphError(Error, ValueError):
    """A program that cannot be traced, or a graph schedule that does not fit it."""


class GradientError(Error, ValueError):
    """A derivative that does not exist or that was asked for where none can be given."""


class FileFormatError(Error, ValueError):
    """A schedule file that is damaged, newer than this version, made for something else, or that
    the system does not read or write."""


class MissingFileError(Error, FileNotFoundError):
    """A schedule file, or the folder for one, that is not there."""


class EnvironmentValueError(Error, ValueError):
    """An environment variable whose value cannot be used."""


class DeviceError(Error, RuntimeError):
    """A device that is missing, or a limit of it that a program exceeds."""


class UnsupportedError(Error, NotImplementedError):
    """Something the language allows and this version cannot do yet. Nothing is done half."""


class InternalError(Error, RuntimeError):
    """A bug in Diptych. The message carries what is needed to reproduce it."""


def check_count(name: str, params: Sequence[str], given: int) -> None:
    """Raises `ShapeError` unless as many arrays are given as something of that name takes."""
    if given != len(params):
        names = ", ".join(params) or "none"
        raise ShapeError(f"{name} takes {counted(len(params), 'array')} ({names}), {given} given")
