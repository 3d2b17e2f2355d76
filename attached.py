"""The schedules that plain calls of operators use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .algo.tensor_expr.op import Op

if TYPE_CHECKING:
    from .sched.loop.schedule import Schedule


class Attached:
    """The schedules that plain calls use, by operator. `changes` counts attaching and detaching:
    what was derived before the last change is derived again."""

    def __init__(self) -> None:
        self.by_op: dict[str, Schedule] = {}
        self.changes = 0

    def put(self, operator: Op, schedule: Schedule | None) -> None:
        """Attaches a schedule to an operator, or detaches what it has."""
        if schedule is None:
            self.by_op.pop(operator.fingerprint, None)
        else:
            self.by_op[operator.fingerprint] = schedule
        self.changes += 1

    def get(self, operator: Op) -> Schedule | None:
        """The schedule attached to an operator, if any."""
        return self.by_op.get(operator.fingerprint)


attached = Attached()
