"""`compute_at` and `compute_with`: a stage computed where its values are needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.expr import Expr, Index, substitute
from .carried import check_dependence
from .copies import own_dims
from .dependences import dependences
from .names import find_loop, index_of, suggest_from
from .nest import Leaf, Loop, Nest, Seq, Stmt, Tree, leaves, loops
from .primitive import Primitive
from .regions import region
from .relations import from_data
from .storage import cells, family, reads
from .tree import around_loop, edit, remove, seq, steps_to, with_tree
from .validate import check_change, check_storage
from .witness import at


@dataclass(frozen=True)
class ComputeAt(Primitive):
    """Computes, in every iteration of a loop, the elements of a tensor that it needs.

        for x: T[x] = f(x)            ==>   for y: for x in needed(y): T[x] = f(x)
        for y: Y[y] = g(T[y], T[y+1])              Y[y] = g(T[y], T[y+1])

    All stages of the tensor move (init, update and final), with the loops they have. isl computes
    the region; elements that several iterations need are computed again in each. The tensor then
    lives under the loop. Value flow is checked.
    """

    called: ClassVar[str] = "compute_at"
    stage: str
    loop: str

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.stage, self.loop), {}

    def legal(self, nest: Nest) -> None:
        group = self._group(nest)
        tensor = nest.buffers[self.stage].tensor
        loop = find_loop(nest, self.loop, self.who)
        if nest.kernel.tensors[tensor].role != "temp":
            raise ScheduleError(
                f"{self.who}: {tensor} is returned, so all of it is needed, not what one iteration "
                f"of {loop.name} reads"
            )
        names = {stmt.name for stmt in group}
        if set(leaves(loop)) & names:
            raise ScheduleError(f"{self.who}: {tensor} is computed under loop {loop.name} already")
        for stmt in group:
            if any(map(from_data, stmt.lhs)):
                raise ScheduleError(
                    f"{self.who}: elements of {tensor} are chosen by data when it is written"
                    f"{at(stmt)}; which of them are needed is not known"
                )
            if any(r.tensor == stmt.buffer and r.indices != stmt.lhs for r in reads(stmt)):
                raise ScheduleError(
                    f"{self.who}: {tensor} is a recurrence{at(stmt)}, whose elements need each "
                    "other; it is computed as a whole"
                )
        own = {stmt.buffer for stmt in group}
        users = [s for s in nest.stmts.values() if s.name not in names and _reads_any(s, own)]
        inside = set(leaves(loop))
        if not any(user.name in inside for user in users):
            raise ScheduleError(
                f"{self.who}: nothing under loop {loop.name} reads {tensor}; it is read by "
                f"{', '.join(user.name for user in users)}"
            )
        outside = next((user for user in users if user.name not in inside), None)
        if outside is not None:
            raise ScheduleError(
                f"{self.who}: {outside.name}{at(outside)} also reads {tensor}, outside loop "
                f"{loop.name}; compute it there first, or choose a loop around both"
            )
        after = self.after(nest)
        for dep in dependences(nest.kernel.stages):
            if names & {dep.src, dep.dst}:
                check_dependence(after, dep, self.who)
        check_storage(after, self.who)

    def _group(self, nest: Nest) -> list[Stmt]:
        """The statements that compute the tensor and its accumulator, in program order."""
        if self.stage not in nest.buffers:
            known = sorted({b.tensor for b in nest.buffers.values() if b.scope != "param"})
            raise ScheduleError(
                f"{self.who}: there is no stage {self.stage} between inputs and results"
                f"{suggest_from(self.stage, known)}"
            )
        wanted = family(nest, self.stage)
        group = [stmt for stmt in nest.stmts.values() if stmt.buffer in wanted]
        if not group:
            raise ScheduleError(f"{self.who}: {self.stage} is an input; stage a copy of it instead")
        return group

    def apply(self, nest: Nest) -> Nest:
        group = self._group(nest)
        names = {stmt.name for stmt in group}
        loop = find_loop(nest, self.loop, self.who)
        around = [*around_loop(nest.tree, loop.name), loop]
        used = {dim for stmt in group for dim in stmt.dims}
        used |= {f"d{n}" for stmt in group for n in range(len(stmt.lhs))}
        outer = own_dims(around, used)
        # Where a loop is around a statement already, its value there stays; else it repeats it.
        levels = []
        for item in around:
            new = [stmt.name for stmt in group if stmt.name not in item.values]
            repeated = dict.fromkeys(new, Index(outer[item.name]))
            levels.append(replace(item, values={**item.values, **repeated}))
        stmts = dict(nest.stmts)
        for stmt in self._needed(nest, group, levels, outer):
            stmts[stmt.name] = stmt
        moved = _only(nest.tree, names)
        rest = remove(nest.tree, names)
        assert moved is not None and rest is not None
        moved = self._apart(moved, rest, outer)
        own = {stmt.buffer for stmt in group}

        def enter(item: Loop, values: Mapping[str, Expr]) -> Tree:
            body = item.body
            if item.name == loop.name:
                body = _inserted(body, moved, lambda name: _reads_any(nest.stmts[name], own))
            return replace(item, values=values, body=body)

        tree = edit(rest, {level.name: partial(enter, values=level.values) for level in levels})
        buffers = {
            name: replace(buffer, at=loop.name, pinned=True) if name == self.stage else buffer
            for name, buffer in nest.buffers.items()
        }
        return replace(nest, stmts=stmts, tree=tree, buffers=buffers)

    def _apart(self, moved: Tree, rest: Tree, around: Collection[str]) -> Tree:
        """The moved part without the loops that are around its new place, shared ones renamed."""
        taken = {item.name for item in loops(rest)}
        names = {item.name for item in loops(moved)}

        def change(item: Loop) -> Tree:
            if item.name in around:
                return item.body
            if item.name not in taken:
                return item
            name = f"{self.stage}.{index_of(item.name)}"
            while name in taken | names:
                name += "_"
            names.add(name)
            return replace(item, name=name)

        return edit(moved, dict.fromkeys(names, change))

    def _needed(
        self, nest: Nest, group: list[Stmt], levels: list[Loop], outer: dict[str, str]
    ) -> Iterator[Stmt]:
        """The statements again, for the elements that one iteration of the loop needs.

        Backwards: what is needed of the accumulator follows from what the final stage computes.
        """
        repeated = tuple(outer[level.name] for level in levels)
        users = [nest.stmts[name] for name in leaves(levels[-1])]
        needed: dict[str, tuple[Expr, ...]] = {}
        for stmt in reversed(group):
            coordinates = tuple(f"d{n}" for n in range(len(stmt.lhs)))
            if stmt.buffer not in needed:
                touched = [(s, cell) for s in users for cell in cells(s, stmt.buffer)]
                tensor = nest.buffers[stmt.buffer].tensor
                names = (repeated, coordinates)
                needed[stmt.buffer] = region(
                    nest, tensor, touched, levels, names, self.who
                ).conditions
            cell: dict[Expr, Expr] = {
                Index(d): e for d, e in zip(coordinates, stmt.lhs, strict=True)
            }
            values: dict[Expr, Expr] = {
                Index(outer[level.name]): level.values[stmt.name] for level in levels
            }
            extra = tuple(substitute(c, {**values, **cell}) for c in needed[stmt.buffer])
            dims = tuple(dim for dim in repeated if values[Index(dim)] is Index(dim))
            made = replace(stmt, dims=(*dims, *stmt.dims), domain=(*stmt.domain, *extra))
            users.append(made)
            yield made


def _reads_any(stmt: Stmt, buffers: set[str]) -> bool:
    return any(read.tensor in buffers for read in reads(stmt))


def _only(tree: Tree, names: set[str]) -> Tree | None:
    """The tree of some statements alone."""
    return remove(tree, set(leaves(tree)) - names)


def _inserted(body: Tree, moved: Tree, uses: Any) -> Tree:
    """The moved part right before the first part of the body that uses it."""
    parts = list(body.parts) if isinstance(body, Seq) else [body]
    first = next(n for n, part in enumerate(parts) if any(uses(name) for name in leaves(part)))
    return seq([*parts[:first], moved, *parts[first:]])


@dataclass(frozen=True)
class ComputeWith(Primitive):
    """Joins the outer loops of two neighbouring nests, down to a loop.

        for y: for x: F(y,x)
        for y: for x: G(y,x)   ==>   for y: { for x: F(y,x); for x: G(y,x) }

    Both nests must have loops of these names (`y`, then `x`) from the outside. Dependences are
    checked; nothing is recomputed.
    """

    called: ClassVar[str] = "compute_with"
    stage: str
    other: str
    loop: str

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.stage, self.other, self.loop), {}

    def legal(self, nest: Nest) -> None:
        self._parts(nest)
        check_change(nest, self.after(nest), self.who)

    def _parts(self, nest: Nest) -> tuple[Seq, int]:
        """The sequence in which the nests are neighbours, and the first one's position."""
        ways = [self._way(nest, stage) for stage in (self.stage, self.other)]
        for (node, m), (other, n) in zip(*ways, strict=False):
            if node is other and m == n:
                continue
            if node is other and isinstance(node, Seq) and n == m + 1:
                _zipped(node.parts[m], node.parts[n], self.loop, self.who)
                return node, m
            break
        raise ScheduleError(
            f"{self.who}: the nests of {self.stage} and {self.other} do not follow each other "
            "directly, in this order"
        )

    def _way(self, nest: Nest, stage: str) -> list[tuple[Loop | Seq, int]]:
        names = [s.name for s in nest.stmts.values() if stage in (s.buffer, s.instance[0])]
        way = steps_to(nest.tree, lambda node: isinstance(node, Leaf) and node.stmt in names)
        if not names or way is None:
            known = sorted({s.buffer for s in nest.stmts.values()})
            raise ScheduleError(
                f"{self.who}: there is no stage {stage}{suggest_from(stage, known)}"
            )
        return way

    def apply(self, nest: Nest) -> Nest:
        node, m = self._parts(nest)
        joined = _zipped(node.parts[m], node.parts[m + 1], self.loop, self.who)
        new = seq([*node.parts[:m], joined, *node.parts[m + 2 :]])
        return with_tree(nest, _replaced(nest.tree, node, new))


def _zipped(a: Tree, b: Tree, last: str, who: str) -> Tree:
    """Two nests with their outer loops joined, down to the loop `last`."""
    if not (isinstance(a, Loop) and isinstance(b, Loop)) or index_of(a.name) != index_of(b.name):
        names = [f"loop {t.name}" if isinstance(t, Loop) else "a statement" for t in (a, b)]
        raise ScheduleError(
            f"{who}: {names[0]} and {names[1]} do not match; loops of one name are joined, from "
            f"the outside down to {last}"
        )
    if a.kind != b.kind:
        raise ScheduleError(f"{who}: loop {a.name} is {a.kind} and loop {b.name} is {b.kind}")
    if index_of(a.name) == index_of(last):
        body = seq([a.body, b.body])
    else:
        body = _zipped(a.body, b.body, last, who)
    extent = a.extent if a.extent == b.extent else None
    return replace(b, values={**a.values, **b.values}, body=body, extent=extent)


def _replaced(tree: Tree, old: Tree, new: Tree) -> Tree:
    if tree is old:
        return new
    match tree:
        case Seq(parts):
            return seq([_replaced(part, old, new) for part in parts])
        case Loop() as loop:
            return replace(loop, body=_replaced(loop.body, old, new))
    return tree
