"""The schedules that plain calls of operators use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .algo.tensor_expr.op import Op

if TYPE_CHECKING:
    from .sched.loop.schedule import Schedule


State = tuple[int, int | None]
"""How often schedules were attached and detached, and the number of threads that the user set."""


class Attached:
    """The schedules that plain calls use, by operator, and `state`: what was derived from them, or
    for a number of threads, holds in the state in which it was derived. Every change makes another
    object of it, so calls compare by identity."""

    def __init__(self) -> None:
        self.by_op: dict[str, Schedule] = {}
        self.state: State = (0, None)

    def put(self, operator: Op, schedule: Schedule | None) -> None:
        """Attaches a schedule to an operator, or detaches what it has."""
        if schedule is None:
            self.by_op.pop(operator.fingerprint, None)
        else:
            self.by_op[operator.fingerprint] = schedule
        self.state = (self.state[0] + 1, self.state[1])

    def resize(self, threads: int) -> None:
        """Default schedules are for another number of threads from now on."""
        self.state = (self.state[0], threads)

    def get(self, operator: Op) -> Schedule | None:
        """The schedule attached to an operator, if any."""
        return self.by_op.get(operator.fingerprint)


attached = Attached()
