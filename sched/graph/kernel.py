"""kernel: the loop schedule of one kernel of a program."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...algo.errors import GraphError, ScheduleError
from ..loop.schedule import Schedule
from .primitive import Primitive
from .tasks import Tasks, select, with_tasks


@dataclass(frozen=True)
class Kernel(Primitive):
    """launch k   ==>   launch k under a loop schedule (the text of its primitives)

    The kernel is the one that fusion leaves; every launch of the same operator keeps its own.
    """

    selector: str
    schedule: str
    called: ClassVar[str] = "kernel"
    phase: ClassVar[int] = 5

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.selector, self.schedule), {}

    @property
    def who(self) -> str:
        return f"kernel({self.selector})"

    @property
    def kernels(self) -> tuple[str, ...]:
        return (self.selector,)

    def legal(self, tasks: Tasks) -> None:
        task = select(tasks, self.selector, self.who)
        assert task.op is not None
        try:
            Schedule.parse(task.op, self.schedule)
        except ScheduleError as error:
            raise GraphError(f"{self.who}: {error}") from error

    def apply(self, tasks: Tasks) -> Tasks:
        chosen = select(tasks, self.selector, self.who)
        return with_tasks(
            tasks,
            [
                replace(task, schedule=self.schedule) if task.id == chosen.id else task
                for task in tasks.tasks
            ],
        )
