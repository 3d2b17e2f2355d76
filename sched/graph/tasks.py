"""The state of a graph schedule: a straight-line program of tasks over named values.

It starts as one launch a node and is what primitives map to each other: a fusion merges launches,
a recomputation repeats one, a split over devices makes every type local to a replica and adds
collectives. Names are assigned once; the order of the tasks is an order in which they can run.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...algo.errors import GraphError
from ...algo.graph.build import results_of
from ...algo.graph.elementwise import is_stop, unstopped
from ...algo.graph.graph import Apply, ArrayType, Graph, Literal, Value
from ...algo.graph.print import regions_of, value_name
from ...algo.graph.trace import leaf_names
from ...algo.tensor_expr.expr import accesses
from ...algo.tensor_expr.op import Op


@dataclass(frozen=True, slots=True)
class Task:
    """One step. `kind` is

    launch      results = op(args), under `schedule` (text of loop primitives; None: the default)
    slice       the replica's part of a value that all replicas hold, along `dim`
    all_reduce  the sum (`reducer`) over all replicas, for several values at once
    all_gather  the whole of a value of which each replica has its part along `dim`
    copy        the value on another device

    `nodes` are the ids of the graph nodes it does the work of. `again` marks a recomputation.
    `region` is forward, backward (a gradient), or update (what comes after gradients).
    """

    id: str
    kind: str
    args: tuple[str, ...]
    results: tuple[str, ...]
    op: Op | None = None
    nodes: tuple[str, ...] = ()
    device: str = "cpu"
    region: str = "forward"
    again: bool = False
    dim: int = 0
    reducer: str = ""
    schedule: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Argument:
    """An input of the program; `split` is the axis along which replicas share it out."""

    name: str
    type: ArrayType
    split: int | None = None
    dims: tuple[str | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """A result of the program: which value it is, and the axis along which replicas hold parts."""

    name: str
    value: str
    type: ArrayType
    split: int | None = None


@dataclass(frozen=True, slots=True)
class Tasks:
    """A scheduled program. `types` are those that one replica sees."""

    name: str
    arguments: tuple[Argument, ...]
    literals: Mapping[str, Literal]
    tasks: tuple[Task, ...]
    outputs: tuple[Output, ...]
    types: Mapping[str, ArrayType]
    replicas: int = 1
    mesh: str = ""
    structure: Any = None

    def producers(self) -> dict[str, Task]:
        """The task that makes each value that is no argument or literal."""
        return {result: task for task in self.tasks for result in task.results}

    def readers(self) -> dict[str, list[Task]]:
        """The tasks that read each value."""
        found: dict[str, list[Task]] = {}
        for task in self.tasks:
            for arg in dict.fromkeys(task.args):
                found.setdefault(arg, []).append(task)
        return found


def read_args(task: Task) -> frozenset[str]:
    """The arguments whose elements the task reads; others of a launch only say a size."""
    if task.op is None:
        return frozenset(task.args)
    read = read_params(task.op)
    return frozenset(a for p, a in zip(task.op.params, task.args, strict=True) if p.name in read)


def read_params(op: Op) -> frozenset[str]:
    """The parameters that some equation accesses."""

    def find() -> frozenset[str]:
        every = (root for eq in op.equations for root in eq.roots)
        return frozenset(access.tensor for root in every for access in accesses(root))

    found: frozenset[str] = op.memo("read params", find)
    return found


def tasks_of(graph: Graph) -> Tasks:
    """One launch a node that computes something, in the order of the graph."""
    literals: dict[str, Literal] = {}
    by_literal: dict[Literal, str] = {}
    types: dict[str, ArrayType] = {}

    def name(value: Value) -> str:
        value = unstopped(value)
        if isinstance(value, Literal):
            if value not in by_literal:
                by_literal[value] = f"const[{len(literals)}]"
                literals[by_literal[value]] = value
                types[by_literal[value]] = value.type
            return by_literal[value]
        return value_name(graph, value)

    dims = graph.notes.get("dims", {})
    arguments = tuple(Argument(v.name, v.type, None, dims.get(v.name)) for v in graph.inputs)
    types.update({value.name: value.type for value in graph.inputs})
    regions = regions_of(graph)
    tasks = []
    for node in graph.nodes:
        if is_stop(node.op):  # derivatives are taken; now it is its argument
            continue
        label = graph.ids[node]
        results = tuple(_results(graph, node, types))
        args = tuple(map(name, node.args))
        tasks.append(Task(label, "launch", args, results, node.op, (label,), region=regions[node]))
    outputs = tuple(
        Output(label, name(value), value.type)
        for label, value in zip(leaf_names(graph), graph.outputs, strict=True)
    )
    return Tasks(
        graph.name,
        arguments,
        literals,
        tuple(tasks),
        outputs,
        types,
        structure=graph.structure,
    )


def _results(graph: Graph, node: Apply, types: dict[str, ArrayType]) -> list[str]:
    names = []
    for value in results_of(node):
        names.append(value_name(graph, value))
        types[names[-1]] = value.type
    return names


def select(tasks: Tasks, selector: str, who: str) -> Task:
    """The launch that a selector means: its id, the id of a node it holds, or the name of its
    operator where that is unique. Raises `GraphError` with the matches otherwise."""
    launches = [task for task in tasks.tasks if task.kind == "launch"]
    for exact in (
        [task for task in launches if task.id == selector],
        [task for task in launches if selector in task.nodes and not task.again],
    ):
        if len(exact) == 1:
            return exact[0]
    named = [t for t in launches if any(n.split("[")[0] == selector for n in t.nodes)]
    if len(named) == 1:
        return named[0]
    ids = ", ".join(task.id for task in (named or launches))
    if named:
        raise GraphError(f"{who}: {selector} is ambiguous; it matches {ids}")
    raise GraphError(f"{who}: no node is called {selector}; there are {ids}")


def sort(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The tasks in an order in which they can run, as near to the given one as possible.

    There is one: callers merge only tasks with nothing between them.
    """
    makers = {result: at for at, task in enumerate(tasks) for result in task.results}
    waits = [{makers[arg] for arg in task.args if arg in makers} for task in tasks]
    wakes: list[list[int]] = [[] for _ in tasks]
    for at, needed in enumerate(waits):
        for other in needed:
            wakes[other].append(at)
    missing = [len(needed) for needed in waits]
    ready = [at for at, count in enumerate(missing) if not count]
    order: list[Task] = []
    while ready:
        at = heapq.heappop(ready)
        order.append(tasks[at])
        for other in wakes[at]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, other)
    assert len(order) == len(tasks), "tasks wait for each other"
    return tuple(order)


def with_tasks(tasks: Tasks, new: Sequence[Task], types: Mapping[str, ArrayType] = {}) -> Tasks:
    """The program with other tasks, and the types of the values that they add."""
    return replace(tasks, tasks=tuple(new), types={**tasks.types, **types})
