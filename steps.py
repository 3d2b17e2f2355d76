"""Running programs: one plan and one executor a signature and schedule. Imported at the first call
or plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .algo.graph.graph import Graph
from .algo.graph.trace import Arguments
from .algo.graph.tree import unflatten
from .attached import attached
from .codegen.executor import Executor
from .lower.plan import Plan
from .lower.program import plan as make_plan

if TYPE_CHECKING:
    from .sched.graph.schedule import GraphSchedule


class Step:
    """A program under one graph schedule, planned and compiled once a signature."""

    def __init__(self, schedule: GraphSchedule) -> None:
        self.schedule = schedule
        self._ready: dict[Any, Executor] = {}
        self.last: Executor | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self.schedule.program.arguments(*args, **kwargs)
        executor = self.executor(given)
        outputs = executor(*given.arrays)
        structure = self.schedule.program.graph_for(given).structure
        return unflatten(structure, outputs)

    def executor(self, given: Arguments) -> Executor:
        """The executor for arguments of these types."""
        key = (given.key, attached.state)
        ready = self._ready.get(key)
        if ready is None:
            ready = self._ready[key] = Executor(self.plan(self.schedule.program.graph_for(given)))
        self.last = ready
        return ready

    def plan(self, graph: Graph) -> Plan:
        """The plan; operators with an attached schedule are kernels of their own under it."""
        schedule = self.schedule.attached(graph, attached.get)
        return make_plan(graph, schedule)
