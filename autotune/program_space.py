"""The space of graph schedules of a program, and of its kernels' loop schedules with them.

A point is a set of fusions and recomputations, and for each kernel that is not left to the default
a point of its own loop space. So both levels are measured together, as they will run.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

from ..algo.errors import Error
from ..algo.graph.graph import Graph
from ..algo.graph.print import print_graph
from ..algo.graph.program import Program
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.sizes import bind_sizes
from ..sched.graph.file import text_of
from ..sched.graph.schedule import GraphSchedule
from ..sched.graph.tasks import Task
from ..sched.loop.machine import Machine
from .space import LoopSpace

Point = dict[str, Any]


class ProgramSpace:
    """Points: {"fuse": pairs of ids, "apart": ids, "recompute": ids, "loops": {kernel: point}}."""

    def __init__(self, program: Program, graph: Graph, machine: Machine, *, loops: bool) -> None:
        self.program, self.graph, self.machine, self.loops = program, graph, machine, loops
        plain = GraphSchedule(graph).fuse().tasks(graph).tasks
        launches = [task for task in plain if task.kind == "launch"]
        made = {name: task for task in launches for name in task.results}
        self.pairs = sorted(
            {(made[a].id, task.id) for task in launches for a in task.args if a in made}
        )
        self.kept = [task.id for task in launches if self._is_legal(("recompute", task.id))]
        self.names = sorted(task.id for task in launches)
        self._spaces: dict[str, LoopSpace] = {}

    def _is_legal(self, call: tuple[str, str]) -> bool:
        try:
            GraphSchedule(self.graph).call(*call).tasks(self.graph)
        except Error:
            return False
        return True

    @property
    def fingerprint(self) -> str:
        """A key of the graph at its types."""
        return hashlib.sha256(print_graph(self.graph).encode()).hexdigest()[:20]

    def default(self) -> Point:
        """Default fusion, nothing recomputed, default loops."""
        return {"fuse": (), "apart": (), "recompute": (), "loops": {}}

    def seeds(self) -> list[Point]:
        """Each recomputation by itself."""
        return [self.default() | {"recompute": (node,)} for node in self.kept]

    def sample(self, rng: random.Random) -> Point:
        """A few random steps from the default."""
        point = self.default()
        for _ in range(rng.randrange(1, 4)):
            point = self.mutate(point, rng)
        return point

    def mutate(self, point: Point, rng: random.Random) -> Point:
        """One fusion or recomputation more or less, or one kernel's loops changed."""
        kinds = ["fuse", "fuse", "apart", "recompute"] + ["loops"] * (6 if self.loops else 0)
        kind = rng.choice(kinds)
        if kind == "loops":
            return self._change_loops(point, rng)
        moves: dict[str, Any] = {"fuse": self.pairs, "apart": self.names, "recompute": self.kept}
        options = moves[kind]
        if not options:
            return point
        pick, old = rng.choice(options), tuple(point[kind])
        new = tuple(o for o in old if o != pick) if pick in old else (*old, pick)
        # Kernels are other kernels now; their loop schedules go with the fusion that named them.
        return point | {kind: new, "loops": {} if kind != "recompute" else point["loops"]}

    def text(self, point: Point) -> str | None:
        """The text of the schedule file for a point, None where it is not legal."""
        try:
            schedule = self._graph_schedule(point)
            for kernel, inner in point["loops"].items():
                text = self._space(schedule, kernel).text(inner)
                if text is None:
                    return None
                schedule = schedule.kernel(kernel, text)
            schedule.tasks(self.graph)
            return text_of(GraphSchedule(self.program, schedule.primitives), {})
        except Error:
            return None

    def features(self, point: Point) -> list[float]:
        """Which moves are made, and how many kernels have loops of their own."""
        return [
            *(float(pair in point["fuse"]) for pair in self.pairs),
            *(float(name in point["apart"]) for name in self.names),
            *(float(name in point["recompute"]) for name in self.kept),
            float(len(point["loops"])),
        ]

    def _graph_schedule(self, point: Point) -> GraphSchedule:
        schedule = GraphSchedule(self.graph)
        for node in point["recompute"]:
            schedule = schedule.recompute(node)
        for pair in point["fuse"]:
            schedule = schedule.fuse(*pair)
        for name in point["apart"]:
            schedule = schedule.fuse(name)
        return schedule

    def _change_loops(self, point: Point, rng: random.Random) -> Point:
        try:
            schedule = self._graph_schedule(point)
        except Error:
            return point
        tasks = [t for t in schedule.tasks(self.graph).tasks if t.kind == "launch" and t.op]
        if not tasks:
            return point
        kernel = rng.choice(tasks).id
        space = self._space(schedule, kernel)
        old = point["loops"].get(kernel, space.default())
        return point | {"loops": point["loops"] | {kernel: space.mutate(old, rng)}}

    def _space(self, schedule: GraphSchedule, kernel: str) -> LoopSpace:
        tasks = schedule.kernel(kernel, "").tasks(self.graph)  # as it is with a loop schedule
        task: Task = next(t for t in tasks.tasks if t.id == kernel and t.op is not None)
        assert task.op is not None
        key = f"{kernel} {task.op.fingerprint}"
        if key not in self._spaces:
            types = [tasks.types[a] for a in task.args]
            named = {p.name: t for p, t in zip(task.op.params, types, strict=True)}
            sizes = bind_sizes(check(task.op), {n: t.shape for n, t in named.items()})
            dtypes = {n: t.dtype for n, t in named.items()}
            self._spaces[key] = LoopSpace(task.op, dtypes, sizes, self.machine)
        return self._spaces[key]
