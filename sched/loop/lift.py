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
    sizes_of,
    substitute,
    transform,
)
from ...algo.tensor_expr.folds import Member
from ...algo.tensor_expr.op import Kernel, Tensor
from ...algo.tensor_expr.op import Stage as KernelStage
from ...algo.tensor_expr.stages import kernel
from .initial import initial, statement
from .names import index_of
from .nest import Leaf, Loop, Nest, Seq, Tree, leaves, loops
from .rfactor_fold import Factored
from .tree import around_stmt, edit, remove, seq


def block_of(fold: Factored) -> tuple[Range, int] | None:
    """The only index of the reduction and the block of it that an iteration of the loop is."""
    if fold.joint.fold.lift is None or len(fold.joint.reduced) != 1:
        return None
    (reduced,) = fold.joint.reduced
    if not all(map(is_affine, fold.joint.conditions)):
        return None  # a position of the block may be no instance, which no range says
    match fold.loop.values[fold.widest.name]:
        case Call("floordiv", (Index(name), Const(int() as size))) if name == reduced.index:
            return reduced, size
    return None


@dataclass(frozen=True)
class Lifted:
    """The stages of a lift for the blocks of one reduction.

    `dim` is the index of the block; `shared` the ranges that all components have.
    """

    fold: Factored
    dim: str
    mark: str
    block: tuple[Range, int]

    @property
    def shared(self) -> tuple[Range, ...]:
        members = self.fold.joint.members
        return tuple(r for r in members[0].ranges if all(r in m.ranges for m in members))

    def _refuse(self, why: str) -> ScheduleError:
        name = self.fold.joint.fold.name
        return ScheduleError(f"{self.fold.who}: the lift of {name} {why}")

    def made(self) -> tuple[list[KernelStage], dict[str, Tensor], Tree]:
        """The stages, the tensors that they need, and their loops inside one block."""
        fold, joint = self.fold, self.fold.joint
        lift = joint.fold.lift
        assert lift is not None
        checked = check(lift)
        params = {p.name: m for p, m in zip(lift.params, joint.members, strict=True)}
        types = {name: member.acc for name, member in params.items()}
        inner = kernel(checked, types)
        results = dict(zip(lift.returns, joint.members, strict=True))
        sizes = self._sizes(inner, params, results)
        blocks = {inner.tensors[name].shape[0] for name in params}
        taken = {self.dim, *(r.index for m in joint.members for r in m.ranges)}
        taken |= {r.index for r in joint.reduced}
        names: dict[str, str] = {}
        for stage in inner.stages:
            for r in stage.ranges:
                fresh = r.index
                while fresh in taken:
                    fresh += "_"
                names.setdefault(r.index, fresh)
        tensors: dict[str, Tensor] = {}
        prefix = f"{joint.name}{self.mark}"
        stems = {name: f"{m.stem}{self.mark}" for name, m in results.items()}
        for name, tensor in inner.tensors.items():
            if name in params:
                continue
            if name in results:
                if tensor.dtype is not results[name].acc:
                    raise self._refuse(
                        f"gives {name} as {tensor.dtype}, and it is combined in {results[name].acc}"
                    )
                continue
            shape = tuple(substitute(e, sizes) for e in tensor.shape)
            around = tuple(r.hi for r in self.shared)
            own = f"{prefix}.{name}"
            tensors[own] = Tensor(own, tensor.dtype, (fold.extent, *around, *shape), "temp")
        renamed: dict[Expr, Expr] = {Index(old): Index(new) for old, new in names.items()}

        def moved(expr: Expr) -> Expr:
            def rule(item: Expr) -> Expr:
                if not isinstance(item, Access):
                    return item
                return self._cell(item, params, results, prefix)

            return transform(substitute(expr, sizes | renamed), rule)

        stages: list[KernelStage] = []
        called: dict[str, str] = {}
        for stage in inner.stages:
            if stage.turn is not None or stage.loops:
                raise self._refuse(
                    "reduces by a user's reducer or has skewed loops; it may use sum, prod, max "
                    "and min only"
                )
            head, _, part = stage.name.rpartition(".")
            stem = head if part in ("init", "update", "final") and head else stage.name
            owner = stems.get(stem, f"{prefix}.{stem}")
            called[stage.name] = owner if stem == stage.name else f"{owner}.{part}"
            ranges = tuple(Range(names[r.index], moved(r.lo), moved(r.hi)) for r in stage.ranges)
            where = None if stage.where is None else moved(stage.where)
            if sizes_of([stage.value]):
                used = sizes_of([stage.value])[0]
                raise self._refuse(f"uses size {used} as a value; the last block may be shorter")
            for r in stage.ranges:
                if r.hi in blocks:
                    for guard in self._guards(Index(names[r.index])):
                        where = both(where, guard)
            cell = moved(Access(stage.tensor, stage.lhs))
            assert isinstance(cell, Access)
            stages.append(
                KernelStage(
                    called[stage.name], cell.tensor, (self._along, *self.shared, *ranges), where,
                    cell.indices, moved(stage.value), stage.reducer, self.fold.stages[0].loc,
                )
            )  # fmt: skip
        tree = _renamed(initial(inner).tree, called, renamed, self.mark)
        return stages, tensors, tree

    @property
    def _along(self) -> Range:
        return Range(self.dim, const(0), self.fold.extent)

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

    def _sizes(
        self, inner: Kernel, params: Mapping[str, Member], results: Mapping[str, Member]
    ) -> dict[Expr, Expr]:
        """What the sizes of the lift are here."""
        _, size = self.block
        sizes: dict[Expr, Expr] = {}
        for found, ahead in ((params, 1), (results, 0)):
            for name, member in found.items():
                rest = [r for r in member.ranges if r not in self.shared]
                shape = inner.tensors[name].shape
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

    def _cell(
        self,
        item: Access,
        params: Mapping[str, Member],
        results: Mapping[str, Member],
        prefix: str,
    ) -> Expr:
        """What an access of the lift is here."""
        if item.tensor in params:
            member, (k, *rest) = params[item.tensor], item.indices
            if not isinstance(k, Index):
                raise self._refuse(f"reads {item.tensor} at other places than its bare index")
            values = self._rest(member, tuple(rest))
            values[Index(self.block[0].index)] = self.at(k)
            return substitute(member.body, values)
        if item.tensor in results:
            member = results[item.tensor]
            values = self._rest(member, item.indices)
            place = tuple(substitute(e, values) for e in member.place)
            return Access(f"{member.stem}{self.mark}", (Index(self.dim), *place))
        around = tuple(Index(r.index) for r in self.shared)
        return Access(f"{prefix}.{item.tensor}", (Index(self.dim), *around, *item.indices))

    def _rest(self, member: Member, indices: tuple[Expr, ...]) -> dict[Expr, Expr]:
        rest = [r for r in member.ranges if r not in self.shared]
        return {Index(r.index): e for r, e in zip(rest, indices, strict=True)}


def _by_stem(tree: Tree) -> list[tuple[str, Tree]]:
    """The parts of a tree, those of one reduction together, and what their loops are called by."""
    found: list[tuple[str, list[Tree]]] = []
    for item in tree.parts if isinstance(tree, Seq) else (tree,):
        name = list(leaves(item))[-1]
        stem, _, part = name.rpartition(".")
        stem = stem if part in ("init", "update", "final") else name
        if found and found[-1][0] == stem:
            found[-1][1].append(item)
        else:
            found.append((stem, [item]))
    return [(stem, seq(items)) for stem, items in found]


def _renamed(tree: Tree, called: Mapping[str, str], names: Mapping[Expr, Expr], mark: str) -> Tree:
    """The loops of the lift under the names that its stages have here."""
    match tree:
        case Leaf(stmt):
            return Leaf(called[stmt])
        case Seq(parts):
            return Seq(tuple(_renamed(part, called, names, mark) for part in parts))
        case Loop():
            values = {called[n]: substitute(v, names) for n, v in tree.values.items()}
            first = next(iter(values))
            stem, _, part = first.rpartition(".")
            owner = stem if part in ("init", "update", "final") else first
            index = tree.name.rpartition(".")[2]
            alone = f"{first}.{index}" if len(values) == 1 and part != "update" else None
            name = alone or f"{owner}.{index}"
            return replace(tree, name=name, values=values,
                           body=_renamed(tree.body, called, names, mark))  # fmt: skip
    raise TypeError(f"no tree: {tree!r}")


def lifted(fold: Factored, block: tuple[Range, int], apart: bool) -> Nest:
    """The nest in which the lift makes the partial results of every block.

    They are combined in the same iteration, or `apart`, in a loop of its own after all.
    """
    nest, parts = fold.nest, fold.parts()
    one = Lifted(fold, parts.dim, parts.mark, block)
    new, tensors, own = one.made()
    parts.tensors.update(tensors)
    kernel = fold.kernel(parts, [*new, *parts.last])
    gone = {s.name for s in fold.updates}
    stmts = {name: stmt for name, stmt in nest.stmts.items() if name not in gone}
    stmts |= {s.name: statement(s) for s in (*new, *parts.last)}
    outer, _ = fold.around()
    deepest = around_stmt(nest.tree, fold.widest.name)
    shared = {r.index for r in one.shared}
    inner = [
        item
        for item in deepest[len(outer) + 1 :]
        if all(fold.widest.name in item.values and name in item.values for name in gone)
        and fold.is_free(item)
    ]
    main = fold.joint.members[0]
    owner = fold.owners(parts)
    values: dict[str, dict[str, Expr]] = {}
    for item in (*outer, *inner):
        of_lift = dict.fromkeys((s.name for s in new), fold.follow(main, item))
        values[item.name] = of_lift | {n: fold.follow(m, item) for n, m in owner.items()}
    here = add(Index(parts.dim), fold.origin)
    taken = {item.name for item in loops(nest.tree)}

    def wrapped(tree: Tree, stem: str) -> Tree:
        """A part in loops over the output's indices that are inside the block."""
        names = list(leaves(tree))
        known = [values[item.name][names[0]] for item in (*outer, *inner)]
        for d in reversed(fold.shared_dims(stmts[names[0]], [*known, Index(parts.dim)])):
            tree = Loop(f"{stem}.{d}", dict.fromkeys(names, Index(d)), tree)
        for item in reversed(inner):
            name = f"{stem}.{index_of(item.name)}"
            while name in taken:
                name += "_"
            taken.add(name)
            mine = {n: values[item.name][n] for n in names}
            tree = replace(item, name=name, values=mine, body=tree)
        return tree

    begun = [wrapped(part, stem) for stem, part in _by_stem(own)]
    names = [s.name for s in parts.last]
    rest = remove(fold.loop.body, gone)
    body = [] if rest is None else [rest]
    if not apart:
        levels = [values[item.name] for item in (*outer, *inner)]
        combine = fold.inner(stmts, parts, levels, sorted(shared))
        begun.append(wrapped(combine, fold.joint.name))
    inside = [s.name for s in new] + ([] if apart else names)
    kept = {n: v for n, v in fold.loop.values.items() if n not in gone}
    loop = replace(fold.loop, values=kept | dict.fromkeys(inside, here), body=seq([*body, *begun]))
    ended: list[Tree] = []
    if apart:
        ended = [fold.combining(stmts, parts, [values[item.name] for item in outer])]

    def enter(item: Loop) -> Tree:
        mine = {n: v for n, v in item.values.items() if n not in gone} | values[item.name]
        return replace(item, values=mine)

    changes: dict[str, Callable[[Loop], Tree]] = {item.name: enter for item in outer}
    changes[fold.loop.name] = lambda _: seq([loop, *ended])
    return fold.with_buffers(kernel, stmts, edit(nest.tree, changes))
