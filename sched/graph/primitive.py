"""What a graph primitive is: a small immutable class with `legal` and `apply`.

`legal(tasks)` raises a `GraphError` that names the primitive and what would help; `apply(tasks)`
builds the new program and checks nothing. Primitives commute as far as users can see: a schedule
applies them in the order of their `phase`, so that what is split over devices is split before it
is fused, whatever the order of the calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .tasks import Tasks


@dataclass(frozen=True)
class Primitive(ABC):
    """One step of a graph schedule. `called` is the method of `GraphSchedule` that makes it."""

    called: ClassVar[str]
    phase: ClassVar[int]

    @abstractmethod
    def legal(self, tasks: Tasks) -> None:
        """Raises `GraphError` where the primitive means nothing or would change a result."""

    @abstractmethod
    def apply(self, tasks: Tasks) -> Tasks:
        """The program afterwards."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Selectors of the nodes about whose kernels this primitive decides."""
        return ()

    def rank(self, tasks: Tasks) -> int:
        """The order among primitives of one phase, where it is not that of the calls."""
        return 0

    def step(self, tasks: Tasks) -> Tasks:
        """Checks and applies."""
        self.legal(tasks)
        return self.apply(tasks)

    @abstractmethod
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call that makes it: positional arguments, then keywords."""

    @property
    def text(self) -> str:
        """The call as users write it: `fuse("dense[0]", "relu[0]")`."""
        positional, keywords = self.arguments()
        return call_text(self.called, positional, keywords)

    @property
    def who(self) -> str:
        """How messages name it: `fuse(dense[0], relu[0])`, without quotes."""
        return self.text.replace('"', "")


def call_text(name: str, positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> str:
    """A call with literal arguments, as text that `sched.loop.text.calls` reads."""
    parts = [literal_text(value) for value in positional]
    parts += [f"{key}={literal_text(value)}" for key, value in keywords.items()]
    return f"{name}({', '.join(parts)})"


def literal_text(value: Any) -> str:
    """A string in double quotes, a number, or a tuple or dict of such."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        inner = ", ".join(map(literal_text, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        items = (f"{literal_text(k)}: {literal_text(v)}" for k, v in value.items())
        return "{" + ", ".join(items) + "}"
    return repr(value)
