"""What a graph primitive is: a small immutable class with `legal` and `apply`.

`legal(tasks)` raises a `GraphError` that names the primitive and what would help; `apply(tasks)`
builds the new program and checks nothing. Primitives commute as far as users can see: a schedule
applies them in the order of their `phase`, so that what is split over devices is split before it
is fused, whatever the order of the calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
        return self._call(_literal)

    @property
    def who(self) -> str:
        """How messages name it: `fuse(dense[0], relu[0])`, without quotes."""
        return self._call(lambda value: _literal(value).replace('"', ""))

    def _call(self, show: Any) -> str:
        positional, keywords = self.arguments()
        parts = [show(value) for value in positional]
        parts += [f"{key}={show(value)}" for key, value in keywords.items()]
        return f"{self.called}({', '.join(parts)})"


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)
