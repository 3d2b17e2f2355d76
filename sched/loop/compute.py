"""`compute_at`: a stage computed where its values are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from ...algo.errors import ScheduleError
from .carried import check_dependence
from .copies import own_dims
from .dependences import dependences
from .moments import Tie
from .names import find_loop, index_of, suggest_from, unlike
from .nest import Loop, Nest, Seq, Stmt, Tree, leaves, loops
from .placing import Placed, group_of, needed, once, runs_once
from .primitive import Primitive
from .relations import from_data
from .storage import reads
from .tree import edit, loops_to, remove, seq
from .validate import check_storage
from .witness import at


@dataclass(frozen=True)
class ComputeAt(Primitive):
    """Computes, in every iteration of a loop, the elements of a tensor that it needs.

        for x: T[x] = f(x)            ==>   for y: for x in needed(y): T[x] = f(x)
        for y: Y[y] = g(T[y], T[y+1])              Y[y] = g(T[y], T[y+1])

    All stages of the tensor move (init, update and final), with the loops they have. isl computes
    the region; elements that several iterations need are computed again in each. The tensor then
    lives under the loop. Value flow is checked.

    A tensor that is returned, and a recurrence, whose elements need each other, are computed once:
    each element in the first iteration that needs it. They stay stored as a whole. So is a single
    stage of a reduction: `C.init` runs in the first iteration that updates an element, `C.final`
    right after the last one; and an equation that reads what the loop gives, if it is returned.
    """

    called: ClassVar[str] = "compute_at"
    stage: str
    loop: str

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.stage, self.loop), {}

    def legal(self, nest: Nest) -> None:
        loop = find_loop(nest, self.loop, self.who)
        group = self._group(nest)
        for stmt in group:
            if stmt.name in loop.values:
                raise ScheduleError(
                    f"{self.who}: {self.stage} is computed under loop {loop.name} already"
                )
            if any(map(from_data, stmt.lhs)) and not self._is_single(nest, loop):
                raise ScheduleError(
                    f"{self.who}: elements of {self.stage} are chosen by data when it is written"
                    f"{at(stmt)}; which of them are needed is not known"
                )
        if not self._is_single(nest, loop):
            self._check_users(nest, group, loop)
        check_moved(nest, self.after(nest), {stmt.name for stmt in group}, self.who)

    def _check_users(self, nest: Nest, group: Sequence[Stmt], loop: Loop) -> None:
        users = users_of(nest, group)
        if not any(user.name in loop.values for user in users):
            readers = ", ".join(user.name for user in users)
            raise ScheduleError(
                f"{self.who}: nothing under loop {loop.name} reads {self.stage}; "
                + (f"it is read by {readers}" if users else "nothing else reads it")
            )
        outside = next((user for user in users if user.name not in loop.values), None)
        if outside is not None and not self._whole(nest, group):
            raise ScheduleError(
                f"{self.who}: {outside.name}{at(outside)} also reads {self.stage}, outside loop "
                f"{loop.name}; compute it there first, or choose a loop around both"
            )

    def _whole(self, nest: Nest, group: Sequence[Stmt]) -> bool:
        """Must every element be computed, and only once?"""
        returned = nest.kernel.tensors[nest.buffers[self.stage].tensor].role == "output"
        return returned or any(map(is_recurrence, group))

    def _is_single(self, nest: Nest, loop: Loop) -> bool:
        """Is it one stage of several, or one that the loop's iterations lead to?"""
        if self.stage not in nest.buffers:
            return True
        group = self._group(nest)
        if len(group) > 1 or not self._whole(nest, group):
            return False
        return not any(user.name in loop.values for user in users_of(nest, group))

    def _group(self, nest: Nest) -> list[Stmt]:
        """The statements that compute the tensor and its accumulator, in program order."""
        if self.stage not in nest.buffers and self.stage in nest.stmts:
            return [nest.stmts[self.stage]]
        if self.stage not in nest.buffers:
            known = sorted({b.tensor for b in nest.buffers.values() if b.scope != "param"})
            raise ScheduleError(
                f"{self.who}: there is no stage {self.stage} between inputs and results"
                f"{suggest_from(self.stage, known)}"
            )
        group = group_of(nest, self.stage, self.who)
        if not group:
            raise ScheduleError(f"{self.who}: {self.stage} is an input; stage a copy of it instead")
        return group

    def apply(self, nest: Nest) -> Nest:
        group = self._group(nest)
        loop = find_loop(nest, self.loop, self.who)
        around = loops_to(nest.tree, loop.name)
        used = {dim for stmt in group for dim in stmt.dims}
        used |= {f"d{n}" for stmt in group for n in range(len(stmt.lhs))}
        dims = own_dims(around, used)
        if self._is_single(nest, loop):
            return self._beside(nest, group[0], around)
        whole = self._whole(nest, group)
        kept = {item.name for item in around} if whole else set()
        placed = needed(nest, group, around, dims, kept, self.who, whole=whole)
        own = {stmt.buffer for stmt in group}
        nest = moved(nest, placed, self.stage, lambda stmt: reads_any(stmt, own))
        if whole:
            return nest
        buffer = replace(nest.buffers[self.stage], at=loop.name, pinned=True)
        return replace(nest, buffers={**nest.buffers, self.stage: buffer})

    def _beside(self, nest: Nest, stmt: Stmt, around: Sequence[Loop]) -> Nest:
        """Before the first of the iterations that use the stage, or after those that it uses."""
        inside = around[-1].values
        later: dict[Tie, None] = {}
        earlier: dict[Tie, None] = {}
        for dep in dependences(nest.kernel, [stmt.name]):
            if dep.src == stmt.name and dep.dst in inside:
                later[Tie(dep.written, nest.stmts[dep.dst], dep.touched)] = None
            if dep.dst == stmt.name and dep.src in inside:
                earlier[Tie(dep.touched, nest.stmts[dep.src], dep.written)] = None
        ties = list(later or earlier)
        if not ties:
            raise ScheduleError(
                f"{self.who}: nothing under loop {around[-1].name} gives what {stmt.name} reads, "
                "or reads what it gives"
            )
        placed = once(nest, stmt, ties, around, self.who, last=not later)
        partners = {tie.other for tie in ties}
        return moved(nest, placed, self.stage, partners.__contains__, after=not later)


def users_of(nest: Nest, group: Sequence[Stmt]) -> list[Stmt]:
    """The other statements that read what a group computes."""
    own, names = {stmt.buffer for stmt in group}, {stmt.name for stmt in group}
    return [s for s in nest.stmts.values() if s.name not in names and reads_any(s, own)]


def reads_any(stmt: Stmt, buffers: Collection[str]) -> bool:
    return any(read.tensor in buffers for read in reads(stmt))


def is_recurrence(stmt: Stmt) -> bool:
    return any(r.tensor == stmt.buffer and r.indices != stmt.lhs for r in reads(stmt))


def check_moved(before: Nest, nest: Nest, names: Collection[str], who: str) -> None:
    """Raises unless statements that have moved run at the right time, and values are found."""
    for dep in dependences(nest.kernel, names):
        check_dependence(nest, dep, who)
    check_storage(nest, who, before)


def moved(
    nest: Nest, placed: Placed, stage: str, beside: Callable[[Stmt], bool], *, after: bool = False
) -> Nest:
    """The nest with statements at their place: right before the first part of the body of the
    last loop around that has a statement `beside` them, or right `after` the last such part."""
    names = set(placed.stmts)
    alone = remove(nest.tree, set(leaves(nest.tree)) - names)
    rest = remove(nest.tree, names)
    assert alone is not None and rest is not None
    alone = _apart(alone, rest, placed.around, stage)

    def enter(item: Loop, level: Loop) -> Tree:
        body = item.body
        if level is placed.around[-1]:
            parts = list(body.parts) if isinstance(body, Seq) else [body]
            found = [
                n
                for n, part in enumerate(parts)
                if any(beside(nest.stmts[s]) for s in leaves(part))
            ]
            cut = found[-1] + 1 if after else found[0]
            body = seq([*parts[:cut], alone, *parts[cut:]])
        return replace(level, body=body)

    tree = edit(rest, {level.name: partial(enter, level=level) for level in placed.around})
    return replace(nest, stmts={**nest.stmts, **placed.stmts}, tree=tree)


def _apart(alone: Tree, rest: Tree, around: Sequence[Loop], stage: str) -> Tree:
    """The moved part without loops that a loop around it already is, shared ones renamed."""
    taken = {item.name for item in loops(rest)}
    names = {item.name for item in loops(alone)}

    def change(item: Loop) -> Tree:
        if any(item.name == level.name for level in around) or runs_once(item, around):
            return item.body
        if item.name not in taken:
            return item
        name = unlike(f"{stage}.{index_of(item.name)}", taken | names)
        names.add(name)
        return replace(item, name=name)

    return edit(alone, dict.fromkeys(names, change))
