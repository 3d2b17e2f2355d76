"""recompute: a value is computed a second time instead of being kept for the backward pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...algo.errors import GraphError
from .primitive import Primitive
from .tasks import Task, Tasks, read_args, select, with_tasks


@dataclass(frozen=True)
class Recompute(Primitive):
    """h = f(x); y = g(h); ... dx = g'(h)   ==>   h = f(x); y = g(h); ... h' = f(x); dx = g'(h')

    Every reader from the backward region on reads the repeated result. The copy is a task of its
    own and no graph node, so common subexpressions do not undo it. What f reads is kept instead,
    unless it is recomputed too.
    """

    selector: str
    called: ClassVar[str] = "recompute"
    phase: ClassVar[int] = 1

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.selector,), {}

    def legal(self, tasks: Tasks) -> None:
        task = select(tasks, self.selector, self.who)
        if task.region != "forward":
            raise GraphError(
                f"{self.who}: {task.id} is not in the forward part, so nothing would be saved"
            )
        if any(each.id == f"{task.id}'" for each in tasks.tasks):
            raise GraphError(f"{self.who}: {task.id} is computed again already")
        if not _late_readers(tasks, task):
            raise GraphError(
                f"{self.who}: nothing in the backward part reads {task.id}, so it is not kept as "
                "it is"
            )

    def rank(self, tasks: Tasks) -> int:
        """Later nodes first, so that what their copies read can be recomputed in turn."""
        return -tasks.tasks.index(select(tasks, self.selector, self.who))

    def apply(self, tasks: Tasks) -> Tasks:
        task = select(tasks, self.selector, self.who)
        late = {reader.id for reader in _late_readers(tasks, task)}
        names = {result: f"{result}'" for result in task.results}
        again = replace(
            task,
            id=f"{task.id}'",
            results=tuple(names.values()),
            region="backward",
            again=True,
        )
        out: list[Task] = []
        for each in tasks.tasks:
            if each.id in late:
                if again not in out:
                    out.append(again)
                each = replace(each, args=tuple(names.get(arg, arg) for arg in each.args))
            out.append(each)
        return with_tasks(tasks, out, {new: tasks.types[old] for old, new in names.items()})


def _late_readers(tasks: Tasks, task: Task) -> list[Task]:
    return [
        each
        for each in tasks.tasks
        if each.region != "forward" and read_args(each) & set(task.results)
    ]
