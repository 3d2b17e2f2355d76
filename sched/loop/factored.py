"""A user's reducer in two steps: partial results of groups of instances, combined in order after.

All components are factored together. Instances are grouped by a loop's value and the groups are
combined in its order: where that regroups them, the reducer must be commutative. Who makes the
partial results is not said here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.build import any_of, compare, const
from ...algo.tensor_expr.expr import Access, Expr, Index, Range, accesses, substitute
from ...algo.tensor_expr.fold_stages import Written, updates
from ...algo.tensor_expr.folds import Joint, Member, order
from ...algo.tensor_expr.op import Kernel, Tensor, Turn
from ...algo.tensor_expr.op import Stage as KernelStage
from .dependences import folding
from .names import index_of, unlike
from .nest import Buffer, Leaf, Loop, Nest, Stmt, Tree, leaves, loops
from .relations import agree, earlier, same_element, second
from .storage import in_coordinates
from .tree import loops_to, seq
from .witness import at, first_pair, instance


def folds_over(nest: Nest, loop: Loop) -> list[KernelStage]:
    """The stages of the first fold that combines what iterations of a loop give, in order."""
    names = folding(nest.kernel)
    crossing = [
        name
        for name in leaves(loop)
        if name in names
        and in_coordinates(loop.values[name], nest.stmts[name].lhs, nest.stmts[name]) is None
    ]
    stages = {stage.name: stage for stage in nest.kernel.stages}
    first = next((stages[name].turn for name in crossing), None)
    if first is None:
        return []
    return [s for s in nest.kernel.stages if s.turn is not None and s.turn.joint == first.joint]


@dataclass(frozen=True)
class Parts:
    """A fold in two steps: partial results over `dim`, in tensors marked so, and the `whole`.

    `last` are the stages that combine the partial results.
    """

    mark: str
    dim: str
    tensors: dict[str, Tensor]
    partial: Joint
    whole: Joint
    last: list[KernelStage]


@dataclass(frozen=True)
class Factored:
    """What becomes of a fold under `loop`; `along` is the loop over the groups afterwards."""

    nest: Nest
    loop: Loop
    along: str
    origin: Expr
    extent: Expr
    who: str

    @property
    def stages(self) -> list[KernelStage]:
        """The stages of the fold."""
        return folds_over(self.nest, self.loop)

    @property
    def taken(self) -> set[str]:
        """The names of the loops that are there."""
        return {item.name for item in loops(self.nest.tree)}

    @property
    def updates(self) -> list[KernelStage]:
        """Its updates, in order, and what they keep aside."""
        return [s for s in self.stages if s.turn is not None and s.turn.at[0] is const(1)]

    @property
    def joint(self) -> Joint:
        """The reduction."""
        turn = self.stages[0].turn
        assert turn is not None
        return turn.joint

    @property
    def widest(self) -> Stmt:
        """The update of the most indices."""
        names = folding(self.nest.kernel)
        found = [s for s in self.updates if s.name in names]
        return self.nest.stmts[max(found, key=lambda s: len(s.ranges)).name]

    def check(self) -> None:
        """Raises unless all of the fold is under the loop, as written, and may be grouped."""
        under = set(leaves(self.loop))
        own = {stage.tensor for stage in self.updates}
        for stage in self.updates:
            stmt = self.nest.stmts[stage.name]
            if stage.name not in under:
                raise ScheduleError(
                    f"{self.who}: {stage.name}{at(stmt)} is not under loop {self.loop.name}, and "
                    f"the results of {self.joint.fold} are factored together"
                )
            if stmt.lhs != stage.lhs or stmt.buffer != stage.tensor or stmt.dims != _dims(stage):
                raise ScheduleError(_held(self.who, stage.tensor, stmt.buffer, stmt))
            for read in accesses(stmt.value):
                if (copied := self.nest.buffers[read.tensor].tensor) in own - {read.tensor}:
                    raise ScheduleError(_held(self.who, copied, read.tensor, stmt))
        known = self.nest.kernel.tensors
        bodies = [a.tensor for m in self.joint.members for a in accesses(m.body)]
        gone = next((name for name in bodies if name not in known), None)
        if gone is not None:
            raise ScheduleError(
                f"{self.who}: {gone}, which {self.joint.fold} combines, is inlined; rfactor before "
                "inlining"
            )
        if not self.joint.fold.commutative:
            self._check_order()

    def _check_order(self) -> None:
        stmt = self.widest
        stage = next(s for s in self.stages if s.name == stmt.name)
        assert stage.turn is not None
        value, dims = self.loop.values[stmt.name], stmt.dims
        before = earlier([(e, second(e, dims)) for e in stage.turn.at])
        wrong = [*same_element(stmt.lhs, stmt.lhs, dims), any_of(before)]
        wrong.append(compare("gt", value, second(value, dims)))
        found = first_pair(stmt, stmt, wrong, self.who)
        if found is not None:
            early = instance(stmt, found.first, found.sizes)
            late = instance(stmt, found.second, found.sizes)
            raise ScheduleError(
                f"{self.who}: {self.joint.fold} is not commutative, and {early} comes before "
                f"{late}{at(stmt)}, but its group would be combined after it; rfactor an outer "
                f"loop of the reduction"
            )

    def parts(self) -> Parts:
        """What both ways to make the partial results have in common."""
        joint, nest = self.joint, self.nest
        mark = ".rf"
        while any(f"{member.stem}{mark}" in nest.buffers for member in joint.members):
            mark += "2"
        taken = {r.index for member in joint.members for r in member.ranges}
        dim = unlike(index_of(self.loop.name), taken)
        along = Range(dim, const(0), self.extent)
        partial = replace(
            joint,
            members=tuple(
                Member(
                    m.stem + mark, m.stem + mark, (Index(dim), *m.place), (along, *m.ranges),
                    m.acc, m.body, m.where,
                )
                for m in joint.members
            ),
        )  # fmt: skip
        whole = replace(
            joint,
            members=tuple(
                replace(m, body=Access(m.stem + mark, (Index(dim), *m.place)))
                for m in joint.members
            ),
            reduced=(along,),
            conditions=(),
        )
        tensors = dict(nest.kernel.tensors)
        for member in joint.members:
            shape = (self.extent, *tensors[member.tensor].shape)
            name = f"{member.stem}{mark}"
            tensors[name] = Tensor(name, member.acc, shape, "temp")
        kept: dict[int, Access] = {}
        for n in order(joint.fold)[1]:
            member = joint.members[n]
            name = f"{member.stem}{mark}.new"
            shape = (self.extent, *tensors[member.tensor].shape)
            tensors[name] = Tensor(name, member.acc, shape, "temp")
            kept[n] = Access(name, (Index(dim), *member.place))
        last = [self.stage(w, whole) for w in updates(whole, kept)]
        return Parts(mark, dim, tensors, partial, whole, last)

    def stage(self, written: Written, joint: Joint) -> KernelStage:
        """A stage of the fold, written where the reduction is."""
        loc = self.stages[0].loc
        w = written
        turn = Turn(joint, w.turn.at)
        return KernelStage(
            w.name, w.tensor, w.ranges, w.where, w.lhs, w.value, None, loc, turn=turn
        )

    def kernel(self, parts: Parts, new: Sequence[KernelStage]) -> Kernel:
        """The kernel with other stages in place of the updates."""
        stages: list[KernelStage] = []
        names = [s.name for s in self.updates]
        mine = {s.name for s in self.stages}
        for stage in self.nest.kernel.stages:
            if stage.name == names[0]:
                stages += new
            elif stage.name in mine and stage.turn is not None and stage.name not in names:
                stages.append(replace(stage, turn=Turn(parts.whole, stage.turn.at)))
            elif stage.name not in names:
                stages.append(stage)
        return replace(self.nest.kernel, stages=tuple(stages), tensors=parts.tensors)

    # -- where its stages go

    def around(self) -> tuple[list[Loop], Loop]:
        """The loops around the fold whose iterations the cells tell, and the first that is not."""
        chain = loops_to(self.nest.tree, self.loop.name)
        outside = next(n for n, item in enumerate(chain) if not self.is_free(item))
        return chain[:outside], chain[outside]

    def owners(self, parts: Parts) -> dict[str, Member]:
        """The component that each of the combining stages is of."""
        owner: dict[str, Member] = {}
        for m in self.joint.members:
            mine = (m.tensor, f"{m.stem}{parts.mark}.new")
            owner |= {s.name: m for s in parts.last if s.tensor in mine}
        return owner

    def follow(self, member: Member, item: Loop) -> Expr:
        """The value of a loop that the cells tell, over the indices of a component."""
        stmt = self.nest.stmts[f"{member.stem}.update"]
        found = in_coordinates(item.values[stmt.name], stmt.lhs, stmt)
        assert found is not None
        names: dict[Expr, Expr] = {Index(f"d{n}"): e for n, e in enumerate(member.place)}
        return substitute(found, names)

    def combining(
        self, stmts: dict[str, Stmt], parts: Parts, outer: Sequence[dict[str, Expr]]
    ) -> Tree:
        """The loops that combine the partial results, in loops of these values."""
        names = [s.name for s in parts.last]
        known = [levels[names[-1]] for levels in outer]
        shared = self.shared_dims(stmts[names[-1]], [*known, Index(parts.dim)])
        body = self.inner(stmts, parts, outer, shared)
        body = Loop(self.along, dict.fromkeys(names, Index(parts.dim)), body)
        for d in reversed(shared):
            name = unlike(f"{names[0]}.{d}", self.taken)
            body = Loop(name, dict.fromkeys(names, Index(d)), body)
        return body

    def shared_dims(self, stmt: Stmt, known: Sequence[Expr]) -> list[str]:
        """The dims of all components that loops of these values do not determine."""
        return [
            d
            for d in _undetermined(stmt, known)
            if all(any(r.index == d for r in m.ranges) for m in self.joint.members)
        ]

    def inner(
        self,
        stmts: dict[str, Stmt],
        parts: Parts,
        outer: Sequence[dict[str, Expr]],
        shared: Sequence[str],
    ) -> Tree:
        """The combining stages in order, each in the loops that it alone has."""
        trees: list[Tree] = []
        for stage in parts.last:
            known = [levels[stage.name] for levels in outer]
            known += [Index(parts.dim), *map(Index, shared)]
            trees.append(loops_over(stmts[stage.name], known, self.taken))
        return seq(trees)

    def with_buffers(self, kernel: Kernel, stmts: dict[str, Stmt], tree: Tree) -> Nest:
        """The nest of these statements, with storage for the new tensors."""
        buffers = dict(self.nest.buffers)
        for name in kernel.tensors.keys() - self.nest.kernel.tensors.keys():
            tensor = kernel.tensors[name]
            buffers[name] = Buffer(name, name, tensor.dtype, len(tensor.shape), "heap")
        every = {s.name: stmts[s.name] for s in kernel.stages if s.name in stmts}
        every |= {name: stmt for name, stmt in stmts.items() if name not in every}
        return Nest(kernel, every, tree, buffers)

    def is_free(self, item: Loop) -> bool:
        """Do the cells tell the iteration, for every component?"""
        for member in self.joint.members:
            stmt = self.nest.stmts[f"{member.stem}.update"]
            if in_coordinates(item.values[stmt.name], stmt.lhs, stmt) is None:
                return False
        return True


def _dims(stage: KernelStage) -> tuple[str, ...]:
    return tuple(r.index for r in stage.ranges)


def _undetermined(stmt: Stmt, values: Iterable[Expr]) -> list[str]:
    """The dims of a statement that loops of these values do not determine."""
    known = list(values)
    out: list[str] = []
    for dim in stmt.dims:
        apart = compare("ne", Index(dim), second(Index(dim), stmt.dims))
        if Index(dim) in known:
            continue
        if first_pair(stmt, stmt, [*agree(known, stmt.dims), apart], stmt.name) is not None:
            out.append(dim)
            known.append(Index(dim))
    return out


def _held(who: str, tensor: str, buffer: str, stmt: Stmt) -> str:
    return (
        f"{who}: {tensor} is held by {buffer}{at(stmt)}; rfactor before staging it and before "
        "compute_at"
    )


def loops_over(stmt: Stmt, values: Iterable[Expr], taken: Collection[str]) -> Tree:
    """A statement in loops over its dims that others do not determine, unlike those `taken`."""
    tree: Tree = Leaf(stmt.name)
    for dim in reversed(_undetermined(stmt, values)):
        name = unlike(f"{stmt.name}.{dim}", taken)
        tree = Loop(name, {stmt.name: Index(dim)}, tree)
    return tree
