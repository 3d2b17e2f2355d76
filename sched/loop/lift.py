"""`rfactor` of a user's reducer that has a lift: a whole block's results by its equations.

    for i: { m.init ..; for jo: for ji: { o.update; m.update } }
        ==>   for i: { m.init ..; for jo: { for k: m.rf = max(x[k]); ..; for k: o.rf += p[k]*v[k]
                                            o.update; m.update } }

The equations are stages like any others (`m.rf.update`, and `o.rf.p` for a temporary p of the
lift), each in loops of its own, so they are tiled and run in lanes like any operator. A block's
results are combined as soon as they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.affine import is_affine, normalize
from ...algo.tensor_expr.build import add, both, compare, conjuncts, const, mul
from ...algo.tensor_expr.check import check
from ...algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    Range,
    Size,
    indices_of,
    sizes_of,
    substitute,
    transform,
)
from ...algo.tensor_expr.folds import Member
from ...algo.tensor_expr.op import Kernel, Tensor
from ...algo.tensor_expr.op import Stage as KernelStage
from ...algo.tensor_expr.stages import kernel
from .factored import Factored, Parts
from .initial import initial
from .names import index_of, stem_and_part, unlike
from .nest import Leaf, Loop, Seq, Tree


def block_of(fold: Factored) -> tuple[Range, int] | None:
    """The only index of the reduction and the block of it that an iteration of the loop is."""
    if fold.joint.fold.lift is None or len(fold.joint.reduced) != 1:
        return None
    (reduced,) = fold.joint.reduced
    if not all(map(is_affine, fold.joint.conditions)):
        return None  # a position of the block may be no instance, which no range says
    if any(reduced.index in indices_of(e) for e in fold.widest.lhs):
        return None  # a block of partial results gives elements of several
    match fold.loop.values[fold.widest.name]:
        case Call("floordiv", (Index(name), Const(int() as size))) if name == reduced.index:
            return reduced, size
    return None


def lift_of(fold: Factored, parts: Parts, block: tuple[Range, int]) -> Lift:
    """The lift of a fold, for its blocks."""
    members, lift = fold.joint.members, fold.joint.fold.lift
    assert lift is not None
    params = {p.name: m for p, m in zip(lift.params, members, strict=True)}
    results = dict(zip(lift.returns, members, strict=True))
    inner = kernel(check(lift), {name: member.acc for name, member in params.items()})
    return Lift(fold, parts.dim, parts.mark, block, inner, params, results)


@dataclass(frozen=True)
class Lift:
    """A lift, whose kernel is `inner`, in place of the updates of one reduction.

    `dim` is the index of the block; `params` and `results` say which component each of the lift's
    parameters and returned tensors is.
    """

    fold: Factored
    dim: str
    mark: str
    block: tuple[Range, int]
    inner: Kernel
    params: Mapping[str, Member]
    results: Mapping[str, Member]

    @property
    def shared(self) -> tuple[Range, ...]:
        """The ranges that all components have."""
        members = self.fold.joint.members
        return tuple(r for r in members[0].ranges if all(r in m.ranges for m in members))

    def _refuse(self, why: str) -> ScheduleError:
        name = self.fold.joint.fold.name
        return ScheduleError(f"{self.fold.who}: the lift of {name} {why}")

    def made(self) -> tuple[list[KernelStage], dict[str, Tensor], Tree]:
        """The stages, the tensors that they need, and their loops inside one block."""
        sizes, names = self._sizes(), self._names()
        tensors = self._tensors(sizes)
        renamed: dict[Expr, Expr] = {Index(old): Index(new) for old, new in names.items()}

        def moved(expr: Expr) -> Expr:
            return transform(
                substitute(expr, sizes | renamed),
                lambda item: self._cell(item) if isinstance(item, Access) else item,
            )

        called = {stage.name: self._called(stage.name) for stage in self.inner.stages}
        stages = [
            self._stage(stage, called[stage.name], names, moved) for stage in self.inner.stages
        ]
        return stages, tensors, _renamed(initial(self.inner).tree, called, renamed)

    def _names(self) -> dict[str, str]:
        """The names that the lift's indices have here."""
        joint = self.fold.joint
        taken = {self.dim, *(r.index for m in joint.members for r in m.ranges)}
        taken |= {r.index for r in joint.reduced}
        names: dict[str, str] = {}
        for r in (r for stage in self.inner.stages for r in stage.ranges):
            names.setdefault(r.index, unlike(r.index, taken))
        return names

    @property
    def _prefix(self) -> str:
        """What the names of the lift's temporaries begin with."""
        return f"{self.fold.joint.name}{self.mark}"

    def _tensors(self, sizes: Mapping[Expr, Expr]) -> dict[str, Tensor]:
        """The temporaries of the lift, for every block and what all components have."""
        around = tuple(r.hi for r in self.shared)
        found: dict[str, Tensor] = {}
        for name, tensor in self.inner.tensors.items():
            result = self.results.get(name)
            if result is not None and tensor.dtype is not result.acc:
                raise self._refuse(
                    f"gives {name} as {tensor.dtype}, and it is combined in {result.acc}"
                )
            if result is None and name not in self.params:
                shape = tuple(substitute(e, sizes) for e in tensor.shape)
                own = f"{self._prefix}.{name}"
                whole = (self.fold.extent, *around, *shape)
                found[own] = Tensor(own, tensor.dtype, whole, "temp")
        return found

    def _called(self, name: str) -> str:
        """What a stage of the lift is called here."""
        stem, part = stem_and_part(name)
        result = self.results.get(stem)
        owner = f"{self._prefix}.{stem}" if result is None else f"{result.stem}{self.mark}"
        return f"{owner}.{part}" if part else owner

    def _stage(
        self,
        stage: KernelStage,
        name: str,
        names: Mapping[str, str],
        moved: Callable[[Expr], Expr],
    ) -> KernelStage:
        """A stage of the lift, for every block."""
        if stage.turn is not None or stage.loops:
            raise self._refuse(
                "reduces by a user's reducer or has skewed loops; it may use sum, prod, max "
                "and min only"
            )
        used = sizes_of([stage.value])
        if used:
            raise self._refuse(f"uses size {used[0]} as a value; the last block may be shorter")
        ranges = tuple(Range(names[r.index], moved(r.lo), moved(r.hi)) for r in stage.ranges)
        where = None if stage.where is None else moved(stage.where)
        blocks = {self.inner.tensors[name].shape[0] for name in self.params}
        for r in stage.ranges:
            for guard in self._guards(Index(names[r.index])) if r.hi in blocks else ():
                where = both(where, guard)
        cell = moved(Access(stage.tensor, stage.lhs))
        assert isinstance(cell, Access)
        along = Range(self.dim, const(0), self.fold.extent)
        return KernelStage(
            name, cell.tensor, (along, *self.shared, *ranges), where,
            cell.indices, moved(stage.value), stage.reducer, self.fold.stages[0].loc,
        )  # fmt: skip

    def at(self, k: Expr) -> Expr:
        """The instance of the reduction at position `k` of a block."""
        _, size = self.block
        return normalize(add(mul(add(Index(self.dim), self.fold.origin), const(size)), k))

    def _guards(self, k: Expr) -> list[Expr]:
        """The conditions under which position `k` of a block is an instance."""
        reduced, _ = self.block
        j: dict[Expr, Expr] = {Index(reduced.index): self.at(k)}
        found = [compare("le", reduced.lo, Index(reduced.index))]
        found.append(compare("lt", Index(reduced.index), reduced.hi))
        found += self.fold.joint.conditions
        return [normalize(substitute(c, j)) for c in found for c in conjuncts(c)]

    def _sizes(self) -> dict[Expr, Expr]:
        """What the sizes of the lift are here."""
        _, size = self.block
        sizes: dict[Expr, Expr] = {}
        for found, ahead in ((self.params, 1), (self.results, 0)):
            for name, member in found.items():
                rest = [r for r in member.ranges if r not in self.shared]
                shape = self.inner.tensors[name].shape
                if len(shape) != ahead + len(rest):
                    raise self._refuse(
                        f"has {name} of {len(shape)} dimensions, and {member.stem} needs "
                        f"{ahead + len(rest)}"
                    )
                extents = [const(size)][:ahead] + [r.hi for r in rest]
                for symbol, extent in zip(shape, extents, strict=True):
                    if not isinstance(symbol, Size) or sizes.setdefault(symbol, extent) != extent:
                        raise self._refuse(f"has {name} of other sizes than {member.stem}")
        return sizes

    def _cell(self, item: Access) -> Expr:
        """What an access of the lift is here."""
        if item.tensor in self.params:
            member, (k, *rest) = self.params[item.tensor], item.indices
            if not isinstance(k, Index):
                raise self._refuse(f"reads {item.tensor} at other places than its bare index")
            values = self._rest(member, tuple(rest))
            values[Index(self.block[0].index)] = self.at(k)
            return substitute(member.body, values)
        if item.tensor in self.results:
            member = self.results[item.tensor]
            values = self._rest(member, item.indices)
            place = tuple(substitute(e, values) for e in member.place)
            return Access(f"{member.stem}{self.mark}", (Index(self.dim), *place))
        around = tuple(Index(r.index) for r in self.shared)
        return Access(f"{self._prefix}.{item.tensor}", (Index(self.dim), *around, *item.indices))

    def _rest(self, member: Member, indices: tuple[Expr, ...]) -> dict[Expr, Expr]:
        rest = [r for r in member.ranges if r not in self.shared]
        return {Index(r.index): e for r, e in zip(rest, indices, strict=True)}


def _renamed(tree: Tree, called: Mapping[str, str], names: Mapping[Expr, Expr]) -> Tree:
    """The loops of the lift under the names that its stages have here."""
    match tree:
        case Leaf(stmt):
            return Leaf(called[stmt])
        case Seq(parts):
            return Seq(tuple(_renamed(part, called, names) for part in parts))
        case Loop():
            values = {called[n]: substitute(v, names) for n, v in tree.values.items()}
            first = next(iter(values))
            owner, part = stem_and_part(first)
            index = index_of(tree.name)
            alone = f"{first}.{index}" if len(values) == 1 and part != "update" else None
            name = alone or f"{owner}.{index}"
            return replace(tree, name=name, values=values,
                           body=_renamed(tree.body, called, names))  # fmt: skip
    raise TypeError(f"no tree: {tree!r}")
