"""parallel_do: the program on several replicas, each with its part of the split arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ...algo.errors import GraphError
from ...algo.graph.graph import ArrayType
from .primitive import Primitive
from .sharding import SAME, Partial, Split, State, localise
from .tasks import Argument, Output, Task, Tasks, sort


@dataclass(frozen=True)
class ParallelDo(Primitive):
    """y = f(x, w)   ==>   on each of n replicas r: y_r = f'(x_r, w), and collectives between

    `axes` says along which axis each argument is split; a name of a declared size in `sizes`
    splits every argument dimension of that name. What becomes of every other value follows from
    the operators (`sharding.py`). All replicas run one body. Extents must divide by `devices`.
    """

    axes: tuple[tuple[str, int], ...]
    sizes: tuple[str, ...]
    devices: int
    called: ClassVar[str] = "parallel_do"
    phase: ClassVar[int] = 0

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        paths = {name: axis for name, axis in self.axes if not name.isidentifier()}
        plain = {name: axis for name, axis in self.axes if name.isidentifier()}
        return (*self.sizes, *([paths] if paths else [])), {**plain, "devices": self.devices}

    def legal(self, tasks: Tasks) -> None:
        if tasks.replicas > 1:
            raise GraphError(f"{self.who}: the program is split already by {tasks.mesh}")
        if type(self.devices) is not int or self.devices < 1:
            raise GraphError(
                f"{self.who}: expected a number of devices of at least 1, got {self.devices!r}"
            )
        for name, along in self.axes:
            if type(along) is not int:
                raise GraphError(
                    f"{self.who}: expected the axis along which {name} is split, 0 for its first, "
                    f"got {along!r}"
                )
        if not self.axes and not self.sizes:
            raise GraphError(
                f"{self.who}: nothing is split; say which argument along which axis (x=0), or name "
                "a declared size"
            )
        roots = list(dict.fromkeys(_root(a.name) for a in tasks.arguments))
        for name, _ in self.axes:
            if name not in roots and name not in {a.name for a in tasks.arguments}:
                raise GraphError(
                    f"{self.who}: {tasks.name} has no argument {name}; it has {', '.join(roots)}"
                )
        for size in self.sizes:
            declared = {d for a in tasks.arguments for d in a.dims or () if d is not None}
            if size not in declared:
                known = ", ".join(sorted(declared)) or "none"
                raise GraphError(
                    f"{self.who}: no argument of {tasks.name} declares a size {size} (declared: "
                    f'{known}); annotate one, x: f32["{size}", ...], or give an axis'
                )
        for argument in tasks.arguments:
            axis = self._axis(argument)
            if axis is None:
                continue
            shape = argument.type.shape
            if not 0 <= axis < len(shape):
                raise GraphError(
                    f"{self.who}: {argument.name} is {argument.type} and has no axis {axis}"
                )
            if shape[axis] % self.devices:
                raise GraphError(
                    f"{self.who}: axis {axis} of {argument.name} has extent {shape[axis]}, which "
                    f"{self.devices} devices do not divide; give a multiple of {self.devices} "
                    "(drop or pad the rest)"
                )

    def apply(self, tasks: Tasks) -> Tasks:
        if self.devices == 1:
            return tasks
        return _Rewriter(tasks, self).run()

    def _axis(self, argument: Argument) -> int | None:
        for name, axis in self.axes:
            if name in (argument.name, _root(argument.name)):
                return axis
        for size in self.sizes:
            if size in (argument.dims or ()):
                return (argument.dims or ()).index(size)
        return None


def _root(name: str) -> str:
    return name.split(".")[0]


@dataclass(slots=True)
class _Rewriter:
    """Goes through the tasks in order, knowing what replicas hold of every value."""

    tasks: Tasks
    how: ParallelDo
    state: dict[str, State] = field(default_factory=dict)
    types: dict[str, ArrayType] = field(default_factory=dict)
    out: list[Task] = field(default_factory=list)
    made: dict[tuple[str, State], str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def run(self) -> Tasks:
        """The program of one replica."""
        arguments = []
        for argument in self.tasks.arguments:
            axis = self.how._axis(argument)
            self._hold(argument.name, SAME if axis is None else Split(axis), argument.type)
            arguments.append(replace(argument, split=axis))
        for name in self.tasks.literals:
            self._hold(name, SAME, self.tasks.types[name])
        for task in self.tasks.tasks:
            self._launch(task)
        outputs = []
        for output in self.tasks.outputs:
            value = output.value
            if isinstance(self.state[value], Partial):
                value = self._as(value, SAME, self.tasks.tasks[-1])
            held = self.state[value]
            dim = held.dim if isinstance(held, Split) else None
            outputs.append(Output(output.name, value, output.type, dim))
        return replace(
            self.tasks,
            arguments=tuple(arguments),
            tasks=batched(self.out, self.types),
            outputs=tuple(outputs),
            types=self.types,
            replicas=self.how.devices,
            mesh=self.how.who,
        )

    def _hold(self, name: str, state: State, whole: ArrayType) -> None:
        shape = list(whole.shape)
        if isinstance(state, Split):
            shape[state.dim] //= self.how.devices
        self.state[name] = state
        self.types[name] = ArrayType(tuple(shape), whole.dtype)

    def _launch(self, task: Task) -> None:
        assert task.op is not None
        whole = [self.tasks.types[arg].shape for arg in task.args]
        local = localise(task.op, [self.state[arg] for arg in task.args], whole)
        args = tuple(
            self._as(arg, state, task, local.reason)
            for arg, state in zip(task.args, local.args, strict=True)
        )
        for name, state in zip(task.results, local.results, strict=True):
            self._hold(name, state, self.tasks.types[name])
        self.out.append(replace(task, op=local.op, args=args))

    def _as(self, name: str, wanted: State, before: Task, reason: str = "") -> str:
        """The name of the value in another state, converted just before the task that needs it."""
        held = self.state[name]
        if held == wanted:
            return name
        if (name, wanted) in self.made:
            return self.made[name, wanted]
        whole = self.tasks.types.get(name, self.types[name])
        match held, wanted:
            case Partial(reducer), Split():
                new = self._as(self._as(name, SAME, before), wanted, before)
            case Split(), Split():
                new = self._as(self._as(name, SAME, before, reason), wanted, before)
            case Partial(reducer), _:
                new = self._add("all_reduce", name, f"{name}.all", before, reducer=reducer)
                self._hold(new, SAME, whole)
            case Split(dim), _:
                new = self._add("all_gather", name, f"{name}.all", before, dim=dim, reason=reason)
                self._hold(new, SAME, whole)
            case _, Split(dim):
                new = self._add("slice", name, f"{name}.part{dim}", before, dim=dim)
                self._hold(new, wanted, whole)
            case _:
                raise AssertionError(f"{held} is never asked for as {wanted}")
        self.made[name, wanted] = new
        return new

    def _add(self, kind: str, name: str, new: str, before: Task, **more: Any) -> str:
        count = self.counts.get(kind, 0)
        self.counts[kind] = count + 1
        label = f"{kind}[{count}]"
        self.out.append(Task(label, kind, (name,), (new,), region=before.region, **more))
        return new


def batched(tasks: Sequence[Task], types: Mapping[str, ArrayType]) -> tuple[Task, ...]:
    """all_reduce[a] .. all_reduce[b]   ==>   all_reduce[a, b], where neither needs the other

    One collective for many small sums costs one meeting of the replicas instead of many. What
    reads the first value waits until the second is there too.
    """
    groups: list[list[Task]] = []
    place: dict[str, int] = {}
    needs = _needs(tasks)
    for task in (each for each in tasks if each.kind == "all_reduce"):
        # In a group after those of all that it needs, so groups never wait for each other.
        first = 1 + max((place[each] for each in needs[task.id] if each in place), default=-1)
        fitting = (n for n in range(first, len(groups)) if _alike(groups[n][0], task, types))
        number = next(fitting, len(groups))
        if number == len(groups):
            groups.append([])
        groups[number].append(task)
        place[task.id] = number
    joined: dict[str, Task] = {}
    for number, group in enumerate(groups):
        args = tuple(task.args[0] for task in group)
        results = tuple(task.results[0] for task in group)
        one = replace(group[0], id=f"all_reduce[{number}]", args=args, results=results)
        joined.update({task.id: one for task in group})
    return sort(list(dict.fromkeys(joined.get(task.id, task) for task in tasks)))


def _alike(a: Task, b: Task, types: Mapping[str, ArrayType]) -> bool:
    return a.reducer == b.reducer and types[a.args[0]].dtype is types[b.args[0]].dtype


def _needs(tasks: Sequence[Task]) -> dict[str, set[str]]:
    """The ids of the tasks that each task depends on."""
    makers = {result: task.id for task in tasks for result in task.results}
    needs: dict[str, set[str]] = {}
    for task in tasks:
        before = {makers[arg] for arg in task.args if arg in makers}
        needs[task.id] = before.union(*(needs[each] for each in before))
    return needs
