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
from .fuse import fused
from .tasks import Tasks, sort, with_tasks

LARGEST = 6  # nodes in a kernel that default fusion makes; more would only cost registers


def fuse_by_default(tasks: Tasks, apart: Iterable[str] = ()) -> Tasks:
    """Fuses elementwise launches into the launches of what they read, in order.

    `apart` are ids of tasks that an explicit primitive speaks of; they stay as they are.
    """
    groups = _Groups(tasks, set(apart))
    for at, task in enumerate(tasks.tasks):
        reads = None if task.op is None else elementwise_reads(task.op)
        if reads is not None:
            groups.join(at, reads)
    return groups.tasks_after()


class _Groups:
    """Which tasks become one, as a partition of their positions; a group is named by its first."""

    def __init__(self, tasks: Tasks, apart: set[str]) -> None:
        self.tasks, self.apart = tasks, apart
        self.all = tasks.tasks
        self.maker = {name: at for at, task in enumerate(self.all) for name in task.results}
        self.group = list(range(len(self.all)))
        self.members = {at: [at] for at in self.group}
        self.readers: dict[int, set[int]] = {at: set() for at in self.group}
        for at, task in enumerate(self.all):
            for name in task.args:
                if name in self.maker:
                    self.readers[self.maker[name]].add(at)

    def join(self, at: int, reads: frozenset[str]) -> None:
        """Puts an elementwise task with the last of its producers that it can run with."""
        task = self.all[at]
        assert task.op is not None
        shape = self.tasks.types[task.results[0]].shape
        makers = {
            self.group[self.maker[name]]
            for param, name in zip(task.op.params, task.args, strict=True)
            if param.name in reads and name in self.maker and self.tasks.types[name].shape == shape
        }
        for group in sorted(makers, key=lambda g: -self.members[g][-1]):
            if self._fits(group, at):
                self.members[group].append(at)
                del self.members[at]
                self.group[at] = group
                return

    def tasks_after(self) -> Tasks:
        """The program with one launch a group."""
        out = []
        for at, task in enumerate(self.all):
            mine = self.members.get(self.group[at], [])
            if mine[-1] == at:
                chosen = [self.all[n] for n in mine]
                out.append(fused(self.tasks, chosen) if len(chosen) > 1 else task)
        return with_tasks(self.tasks, sort(out))

    def _fits(self, group: int, at: int) -> bool:
        task, chosen = self.all[at], [self.all[n] for n in self.members[group]]
        nodes = sum(len(each.nodes) for each in (*chosen, task))
        alike = all(t.kind == "launch" and t.device == task.device for t in chosen)
        ours = any(t.id in self.apart for t in (*chosen, task))
        if not alike or ours or nodes > LARGEST or task.again > chosen[0].again:
            return False
        if self._stands_between(group, at):
            return False
        try:
            fused(self.tasks, [*chosen, task])
        except OpError:  # their ranges cannot be proved together: two kernels, as written
            return False
        return True

    def _stands_between(self, group: int, at: int) -> bool:
        """Does some other group need this one, and the task need that one?"""
        seen: set[int] = set()
        waiting = list(self._readers(group) - {group, at})
        while waiting:
            other = waiting.pop()
            if other in seen or self.members[other][0] > at:
                continue  # a group that only holds later tasks is not needed by this one
            seen.add(other)
            after = self._readers(other)
            if at in after:
                return True
            waiting.extend(after - {group})
        return False

    def _readers(self, group: int) -> set[int]:
        """The groups that read something of a group."""
        return {self.group[r] for n in self.members[group] for r in self.readers[n]}


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
                bare = all(isinstance(index, Index) for index in item.indices)
                if not bare or item.boundary is not None:
                    return None
                if item.indices == eq.lhs:
                    whole.add(item.tensor)
    return frozenset(whole & {param.name for param in op.params})
