"""fuse: several nodes as one kernel, by hand or by the default rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

from ...algo.errors import GraphError, OpError
from ...algo.tensor_expr.compose import Composed, Part, compose
from .primitive import Primitive
from .tasks import Task, Tasks, select, sort, with_tasks


@dataclass(frozen=True)
class Fuse(Primitive):
    """h = f(x); y = g(h)   ==>   y = fg(x), one kernel with the equations of both

    Values that nothing else reads become temporaries of the kernel. The nodes must be on one
    device, and no other task may stand between them. One node alone is kept apart from default
    fusion; no node at all switches default fusion off.
    """

    selectors: tuple[str, ...]
    called: ClassVar[str] = "fuse"
    phase: ClassVar[int] = 3

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.selectors, {}

    @property
    def kernels(self) -> tuple[str, ...]:
        return self.selectors

    def legal(self, tasks: Tasks) -> None:
        chosen = [select(tasks, selector, self.who) for selector in self.selectors]
        ids = [task.id for task in chosen]
        twice = [label for label in ids if ids.count(label) > 1]
        if twice:
            raise GraphError(f"{self.who}: {twice[0]} is named twice")
        if len(chosen) < 2:
            return
        devices = sorted({task.device for task in chosen})
        if len(devices) > 1:
            raise GraphError(
                f"{self.who}: the nodes are on {' and '.join(devices)}; place them on one device"
            )
        between = _between(tasks, chosen)
        if between:
            first, task = between
            raise GraphError(
                f"{self.who}: {task.id} stands between: it needs {first.id} and the fused kernel "
                f"needs it; fuse {task.id} too, or leave one out"
                if task.kind == "launch"
                else f"{self.who}: {task.id} stands between: {first.id} is summed or gathered over "
                "all replicas before its next reader; leave one out"
            )
        try:
            fused(tasks, chosen)
        except OpError as error:
            raise GraphError(f"{self.who}: the nodes do not make one operator: {error}") from error

    def apply(self, tasks: Tasks) -> Tasks:
        chosen = [select(tasks, selector, self.who) for selector in self.selectors]
        return merged(tasks, chosen) if len(chosen) > 1 else tasks


def fused(tasks: Tasks, chosen: Sequence[Task]) -> Task:
    """One launch for several, in the order of the program. Raises `OpError` where they do not
    compose."""
    ids = {task.id for task in chosen}
    parts = [task for task in tasks.tasks if task.id in ids]
    inner = {result for task in parts for result in task.results}
    needed = {output.value for output in tasks.outputs}
    for task in tasks.tasks:
        if task.id not in ids:
            needed.update(task.args)
    returns = [result for task in parts for result in task.results if result in needed & inner]
    if not returns:  # nothing reads the kernel at all: dead, but what it made last is its result
        returns = list(parts[-1].results)
    composed = _composed(tasks, parts, returns)
    return replace(
        parts[-1],
        id="+".join(task.id for task in parts),
        args=composed.args,
        results=composed.results,
        op=composed.op,
        nodes=tuple(node for task in parts for node in task.nodes),
        region=parts[0].region,
        again=all(task.again for task in parts),
    )


def _composed(tasks: Tasks, parts: Sequence[Task], returns: Sequence[str]) -> Composed:
    """For all sizes where that can be proved, else for the sizes at hand.

    Values are numbered, so that all layers of a network ask for one composition.
    """
    names = list(dict.fromkeys(name for task in parts for name in (*task.args, *task.results)))
    number = {name: f"v{at}" for at, name in enumerate(names)}
    places = tuple(
        Part(task.op, tuple(number[a] for a in task.args), tuple(number[r] for r in task.results))
        for task in parts
        if task.op is not None
    )
    shapes = tuple((number[name], tasks.types[name].shape) for name in names)
    found = _composition(places, tuple(number[name] for name in returns), shapes)
    if isinstance(found, OpError):
        raise found
    back = dict(zip(number.values(), names, strict=True))
    return Composed(
        found.op,
        tuple(back[name] for name in found.args),
        tuple(back[name] for name in found.results),
    )


@lru_cache(maxsize=1024)
def _composition(
    places: tuple[Part, ...], returns: tuple[str, ...], shapes: tuple[tuple[str, Any], ...]
) -> Composed | OpError:
    """Remembered, because every schedule of a program asks for much the same kernels."""
    try:
        return compose(places, returns)
    except OpError:
        try:
            return compose(places, returns, dict(shapes))
        except OpError as error:
            return error


def merged(tasks: Tasks, chosen: Sequence[Task]) -> Tasks:
    """The program with one launch in the place of several."""
    one = fused(tasks, chosen)
    ids = {task.id for task in chosen}
    last = max(at for at, task in enumerate(tasks.tasks) if task.id in ids)
    out = [
        one if at == last else task
        for at, task in enumerate(tasks.tasks)
        if task.id not in ids or at == last
    ]
    return with_tasks(tasks, sort(out))


def _between(tasks: Tasks, chosen: Sequence[Task]) -> tuple[Task, Task] | None:
    """A task outside that needs one of `chosen` and that another of them needs, with the first."""
    ids = {task.id for task in chosen}
    below: dict[str, Task] = {}  # values that depend on a chosen task through one outside
    direct = {result: task for task in chosen for result in task.results}
    via: dict[str, Task] = {}
    for task in tasks.tasks:
        if task.id in ids:
            for arg in task.args:
                if arg in below:
                    return below[arg], via[arg]
            continue
        source = next((direct[a] for a in task.args if a in direct), None) or next(
            (below[a] for a in task.args if a in below), None
        )
        if source is not None:
            for result in task.results:
                below[result], via[result] = source, task
    return None
