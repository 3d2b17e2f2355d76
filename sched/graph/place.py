"""place: where a node runs; values that cross devices are copied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...algo.errors import GraphError
from ...algo.graph.graph import ArrayType
from .primitive import Primitive
from .tasks import Task, Tasks, select, with_tasks

_DEVICE = re.compile(r"cpu(:\d+)?")


@dataclass(frozen=True)
class Place(Primitive):
    """h = f(x) @cpu; y = g(h) @cpu   ==>   h = f(x) @cpu; h1 = copy h to cpu:1; y = g(h1) @cpu:1

    A device is "cpu" or "cpu:n", the n-th group of threads with memory of its own. Copies stand
    in the plan where the other device first needs the value.
    """

    selector: str
    device: str
    called: ClassVar[str] = "place"
    phase: ClassVar[int] = 2

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.selector, self.device), {}

    def legal(self, tasks: Tasks) -> None:
        select(tasks, self.selector, self.who)
        if not _DEVICE.fullmatch(self.device):
            raise GraphError(
                f"{self.who}: no device is called {self.device}; expected cpu or cpu:n, a group of "
                "threads"
            )
        if tasks.replicas > 1:
            raise GraphError(
                f"{self.who}: the program is split by {tasks.mesh}, whose replicas have a device "
                "each; use one of the two"
            )

    def apply(self, tasks: Tasks) -> Tasks:
        chosen = select(tasks, self.selector, self.who)
        return with_tasks(
            tasks,
            [replace(t, device=self.device) if t.id == chosen.id else t for t in tasks.tasks],
        )


def with_copies(tasks: Tasks) -> Tasks:
    """The program with a copy task wherever a value is read on another device than its own.

    Arguments and literals live on "cpu". Copied values are named "h@cpu:1".
    """
    home = {result: task.device for task in tasks.tasks for result in task.results}
    out: list[Task] = []
    types: dict[str, ArrayType] = {}
    for task in tasks.tasks:
        out += _copies(tasks, task.args, task.device, home, types)
        out.append(replace(task, args=tuple(_at(a, task.device, home) for a in task.args)))
    return with_tasks(tasks, out, types) if types else tasks


def _at(value: str, device: str, home: dict[str, str]) -> str:
    return value if home.get(value, "cpu") == device else f"{value}@{device}"


def _copies(
    tasks: Tasks,
    values: Sequence[str],
    device: str,
    home: dict[str, str],
    types: dict[str, ArrayType],
) -> list[Task]:
    made = []
    for value in dict.fromkeys(values):
        new = _at(value, device, home)
        if new != value and new not in types:
            types[new] = tasks.types[value]
            made.append(Task(f"copy {new}", "copy", (value,), (new,), device=device))
    return made
