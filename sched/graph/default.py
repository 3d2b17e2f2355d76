"""The default graph schedule: elementwise operators join the kernel that makes what they read.

A training step has dozens of small elementwise nodes (biases, activations and their derivatives,
updates). Each that reads a value just as it was written, and in the same shape, runs in that
value's kernel, which then need not store the value first where nobody else reads it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...algo.errors import OpError
from ...algo.tensor_expr.expr import Access, Index, Reduce, walk
from ...algo.tensor_expr.op import Op
from .fuse import convex, merged
from .tasks import Task, Tasks

LARGEST = 6  # nodes in a kernel that default fusion makes; more would only cost registers


def fuse_by_default(tasks: Tasks, apart: Iterable[str] = ()) -> Tasks:
    """Fuses elementwise launches into the launches of what they read, in order.

    `apart` are ids of tasks that an explicit primitive speaks of; they stay as they are.
    """
    fixed = set(apart)
    for task in tasks.tasks:
        if task.kind != "launch" or task.id in fixed or task.op is None:
            continue
        reads = elementwise_reads(task.op)
        if reads is not None:
            tasks = _joined(tasks, task, reads, fixed)
    return tasks


def _joined(tasks: Tasks, task: Task, reads: frozenset[str], fixed: set[str]) -> Tasks:
    assert task.op is not None
    producers = tasks.producers()
    names = {
        arg
        for param, arg in zip(task.op.params, task.args, strict=True)
        if param.name in reads and tasks.types[arg].shape == tasks.types[task.results[0]].shape
    }
    candidates = [t for t in tasks.tasks if any(producers.get(name) is t for name in names)]
    for producer in reversed(candidates):
        if (
            producer.kind == "launch"
            and producer.id not in fixed
            and producer.device == task.device
            and (task.again <= producer.again)
            and len(producer.nodes) + len(task.nodes) <= LARGEST
            and convex(tasks, [producer, task])
        ):
            try:
                return merged(tasks, [producer, task])
            except OpError:  # their ranges cannot be proved together: two kernels, as written
                continue
    return tasks


def elementwise_reads(op: Op) -> frozenset[str] | None:
    """The parameters that an elementwise op reads exactly where it writes; None if it is not one.

    Elementwise: one result, every equation written at the same distinct bare indices, nothing
    reduced, and every access by some of these indices.
    """
    if len(op.returns) != 1:
        return None
    whole: set[str] = set()
    for eq in op.equations:
        names = [index.name for index in eq.lhs if isinstance(index, Index)]
        if len(set(names)) != len(eq.lhs) or eq.reducer is not None or eq.where is not None:
            return None
        if eq.ranges or len(eq.lhs) != len(op.equations[0].lhs):
            return None
        for item in walk(eq.rhs):
            if isinstance(item, Reduce):
                return None
            if isinstance(item, Access):
                if any(not isinstance(index, Index) for index in item.indices):
                    return None
                if item.indices == eq.lhs:
                    whole.add(item.tensor)
    return frozenset(whole & {param.name for param in op.params})
