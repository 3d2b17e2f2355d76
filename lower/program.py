"""From a graph and its graph schedule to an execution plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..algo.graph.graph import ArrayType, Graph
from ..algo.tensor_expr.op import Op
from ..sched.graph.schedule import GraphSchedule
from ..sched.graph.tasks import Task, Tasks, read_params
from .arena import Block, assign
from .plan import (
    ALIGN,
    AllGather,
    AllReduce,
    Copy,
    KernelSpec,
    Launch,
    Plan,
    PlanInput,
    PlanOutput,
    Slice,
    Slot,
    Step,
)


def plan(graph: Graph, schedule: GraphSchedule | None = None) -> Plan:
    """The plan of a graph under a schedule; without one, under the default (`sched.graph.default`).

    Nodes that share a kernel became one task in the schedule; here values get their places.
    Raises `GraphError` where a primitive does not fit the graph.
    """
    given = GraphSchedule(graph) if schedule is None else schedule
    return _Planner(given.tasks(graph)).run()


def nbytes(type_: ArrayType) -> int:
    """Bytes of an array."""
    return math.prod(type_.shape) * type_.dtype.itemsize


@dataclass(slots=True)
class _Planner:
    tasks: Tasks
    steps: list[Step] = field(default_factory=list)
    types: dict[str, ArrayType] = field(default_factory=dict)
    device: dict[str, str] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)  # values that share another's place
    buckets: list[tuple[str, ...]] = field(default_factory=list)
    ops: dict[str, Op] = field(default_factory=dict)

    def run(self) -> Plan:
        """Steps first, then the places of their values."""
        tasks = self.tasks
        self.types.update(tasks.types)
        readers = tasks.readers()
        for task in tasks.tasks:
            self._emit(task, readers)
        slots, arenas = self._places()
        kernels = {
            task.id: KernelSpec(
                task.id, task.op, tuple(tasks.types[a] for a in task.args), task.schedule
            )
            for task in tasks.tasks
            if task.op is not None
        }
        return Plan(
            tasks.name,
            tasks.replicas,
            tasks.mesh,
            arenas,
            tuple(PlanInput(a.name, a.type, a.split) for a in tasks.arguments),
            tuple(tasks.literals.values()),
            tuple(PlanOutput(o.name, self._root(o.value), o.type, o.split) for o in tasks.outputs),
            slots,
            kernels,
            tuple(self._located(step, slots) for step in self.steps),
            tasks.structure,
        )

    def _root(self, value: str) -> str:
        while value in self.same:
            value = self.same[value]
        return value

    def _emit(self, task: Task, readers: dict[str, list[Task]]) -> None:
        args = tuple(map(self._root, task.args))
        for result in task.results:
            self.device[result] = task.device
        match task.kind:
            case "launch":
                assert task.op is not None
                self.ops[task.id] = task.op
                self.steps.append(
                    Launch(task.id, args, task.results, task.device, task.again, task.region)
                )
            case "copy":
                self.steps.append(Copy(args[0], task.results[0], task.device))
            case "slice":
                self.steps.append(Slice(args[0], task.results[0], task.dim))
            case "all_gather":
                self.steps.append(AllGather(args[0], task.results[0], task.dim, task.reason))
            case "all_reduce":
                self._all_reduce(task, args, readers)

    def _all_reduce(self, task: Task, args: Sequence[str], readers: dict[str, list[Task]]) -> None:
        """In place where nothing else reads the partial values, else on a copy of them."""
        values = []
        for given, arg, result in zip(task.args, args, task.results, strict=True):
            if len(readers[given]) > 1:
                self.steps.append(Copy(arg, result, task.device))
                values.append(result)
            else:
                self.same[result] = arg
                values.append(arg)
        self.buckets.append(tuple(values))
        self.steps.append(AllReduce(tuple(values), task.reducer, 0, 0))

    def _places(self) -> tuple[dict[str, Slot], dict[str, int]]:
        tasks = self.tasks
        slots: dict[str, Slot] = {}
        for index, argument in enumerate(tasks.arguments):
            slots[argument.name] = Slot(argument.name, self.types[argument.name], "input", index)
        for index, name in enumerate(tasks.literals):
            slots[name] = Slot(name, self.types[name], "const", index)
        pooled = {value for bucket in self.buckets for value in bucket}
        last: dict[str, int] = {}
        first: dict[str, int] = {}
        for at, step in enumerate(self.steps):
            for value in self._reads(step):
                last[value] = at
            for value in _writes(step):
                first.setdefault(value, at)
                last[value] = max(last.get(value, at), at)
        end = len(self.steps)
        for index, output in enumerate(tasks.outputs):
            value = self._root(output.value)
            if value in slots:
                continue
            direct = value not in pooled and output.split in (None, 0)
            if direct and self.device[value] == "cpu":
                slots[value] = Slot(value, self.types[value], "output", index)
            else:
                last[value] = end
        devices = dict.fromkeys(["cpu", *self.device.values()])
        arenas: dict[str, int] = {}
        for device in devices:
            here = [value for value in first if value not in slots and self.device[value] == device]
            offsets, arenas[device] = self._offsets(here, first, last)
            for value in here:
                slots[value] = Slot(
                    value, self.types[value], "arena", offset=offsets[value], device=device
                )
        return slots, arenas

    def _reads(self, step: Step) -> tuple[str, ...]:
        """The values that must be there: not those that only say a size."""
        match step:
            case Launch():
                op = self.ops[step.kernel]
                read, pairs = read_params(op), zip(op.params, step.args, strict=True)
                return tuple(arg for param, arg in pairs if param.name in read)
            case AllReduce():
                return step.values
            case _:
                return (step.source,)

    def _offsets(
        self, values: Sequence[str], first: dict[str, int], last: dict[str, int]
    ) -> tuple[dict[str, int], int]:
        """Values of one all_reduce lie side by side; every other value is a block of its own."""
        within: dict[str, tuple[str, int]] = {}
        blocks = []
        for number, bucket in enumerate(self.buckets):
            members = [value for value in bucket if value in set(values)]
            size = 0
            for value in members:
                within[value] = (f"bucket {number}", size)
                size += -(-max(1, nbytes(self.types[value])) // ALIGN) * ALIGN
            if members:
                start, stop = min(first[v] for v in members), max(last[v] for v in members)
                blocks.append(Block(f"bucket {number}", size, start, stop))
        for value in values:
            if value not in within:
                blocks.append(Block(value, nbytes(self.types[value]), first[value], last[value]))
        at, total = assign(blocks, ALIGN)
        offsets = {}
        for value in values:
            block, inner = within.get(value, (value, 0))
            offsets[value] = at[block] + inner
        return offsets, total

    def _located(self, step: Step, slots: dict[str, Slot]) -> Step:
        if not isinstance(step, AllReduce):
            return step
        first, final = slots[step.values[0]], slots[step.values[-1]]
        stop = final.offset + nbytes(final.type)
        length = (stop - first.offset) // first.type.dtype.itemsize
        return AllReduce(step.values, step.reducer, first.offset, length)


def _writes(step: Step) -> tuple[str, ...]:
    match step:
        case Launch():
            return step.results
        case AllReduce():
            return step.values
        case _:
            return (step.target,)
