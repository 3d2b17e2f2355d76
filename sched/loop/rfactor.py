"""`rfactor`: a reduction in two steps, partial results for every iteration of one of its loops.

Reducers are associative and commutative, so the kernel may be rewritten: the update accumulates
into a tensor with one more dimension, and a new update combines what lies along it. Dependences
and value flow are then those of the new stages, so everything else follows as for any nest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...algo import isl
from ...algo.errors import ScheduleError
from ...algo.tensor_expr.build import add, compare, const, sub
from ...algo.tensor_expr.domains import counterexample, domain, largest, within
from ...algo.tensor_expr.expr import Access, Expr, Index, Range, substitute
from ...algo.tensor_expr.op import Kernel, Stage, Tensor
from .arguments import NewName
from .carried import check_dependence
from .dependences import dependences
from .factored import Factored, folds_over
from .initial import statement
from .insert import inserted, placed
from .lift import block_of
from .names import find_loop, fresh, index_of, prefix, unlike, where
from .nest import Buffer, Leaf, Loop, Nest, Stmt, leaves, loops
from .primitive import Primitive
from .rfactor_fold import accumulated
from .rfactor_lift import lifted
from .storage import in_coordinates, repeats
from .tree import around_stmt
from .validate import check_storage
from .witness import at


@dataclass(frozen=True)
class Rfactor(Primitive):
    """Keeps a partial result for every iteration of a reduction's loop, and combines them after.

        for i: { C.init; for ko: for ki: C.update: C[i] += f(i, ko, ki) }
            ==>   for i: { C.init
                           for ko: { C.rf.init: C.rf[ko,i] = 0
                                     for ki: C.rf.update: C.rf[ko,i] += f(i, ko, ki) }
                           for ko_rf: C.update: C[i] += C.rf[ko_rf,i] }

    No two iterations of `ko` touch one element afterwards, so that it can be parallel, also where
    it is reordered to the outside. The temporary is `C.rf`, its stages `C.rf.init` and
    `C.rf.update`; `C.update` becomes the stage that combines, under a loop called `ko_rf`, or
    `into`. Each of these stages lies as far inside the loops that were there as its elements
    allow; of the others it gets copies of its own (`C.update.i`). Floats are added in another
    order.

    Results of a user's reducer are factored together, the groups of instances combined in order;
    where that regroups them, the reducer must be commutative. If it has a lift, the outer loop of
    a split of its index makes each block's results by the lift, and combines them in the same
    iteration, or with `into` in a loop of its own.
    """

    called: ClassVar[str] = "rfactor"
    lifts: ClassVar[bool] = True  # Uses a lift where there is one.
    loop: str
    into: NewName | None = None

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.loop,), {} if self.into is None else {"into": self.into}

    def legal(self, nest: Nest) -> None:
        loop = find_loop(nest, self.loop, self.who)
        if loop.kind != "serial":
            raise ScheduleError(
                f"{self.who}: loop {loop.name}{where(nest, loop)} is {loop.kind}; rfactor before "
                "marking loops"
            )
        fold = self._fold(nest, loop)
        if fold is not None:
            self._check(nest, {stage.name for stage in fold.stages}, loop)
            return
        update = self._update(nest, loop)
        name = _stage(nest, update).tensor
        if update.buffer != name or self._init(nest, update).buffer != name:
            raise ScheduleError(
                f"{self.who}: {name} is held by {update.buffer}{at(update)}; rfactor before "
                "staging it"
            )
        if repeats(update):
            raise ScheduleError(
                f"{self.who}: {update.name}{at(update)} is computed again in every iteration of "
                f"{around_stmt(nest.tree, update.name)[0].name}; rfactor before compute_at"
            )
        self._extent(nest, update, loop)
        self._check(nest, {update.name}, loop)

    def _check(self, nest: Nest, changed: set[str], loop: Loop) -> None:
        fresh(nest, self._combining(loop), self.who, advice="another name with into=")
        after = self.after(nest)
        changed |= after.stmts.keys() - nest.stmts.keys()
        for dep in dependences(after.kernel, changed):
            check_dependence(after, dep, self.who)
        check_storage(after, self.who)

    def _fold(self, nest: Nest, loop: Loop) -> Factored | None:
        """The fold of a user's reducer that the loop is one of, in two steps."""
        if not folds_over(nest, loop):
            return None
        made = Factored(nest, loop, self._combining(loop), const(0), const(0), self.who)
        made.check()
        origin, extent = self._extent(nest, made.widest, loop)
        return replace(made, origin=origin, extent=extent)

    def _update(self, nest: Nest, loop: Loop) -> Stmt:
        """The first statement under the loop that accumulates across its iterations."""
        under = [nest.stmts[name] for name in leaves(loop)]
        found = [
            stmt
            for stmt in under
            if stmt.reducer is not None
            and in_coordinates(loop.values[stmt.name], stmt.lhs, stmt) is None
        ]
        if not found:
            raise ScheduleError(
                f"{self.who}: loop {loop.name}{where(nest, loop)} is no loop of a reduction: what "
                "each of its iterations computes is not accumulated with that of others"
            )
        return found[0]

    def _init(self, nest: Nest, update: Stmt) -> Stmt:
        return nest.stmts[f"{_stem(update)}.init"]

    def _combining(self, loop: Loop) -> str:
        return prefix(loop.name) + (self.into or f"{index_of(loop.name)}_rf")

    def _extent(self, nest: Nest, update: Stmt, loop: Loop) -> tuple[Expr, Expr]:
        """The least value of the loop (0 where it is not less), and how many there are from it.

        Over the statement's instances, or where that is not one formula, over its ranges alone.
        """
        for conditions in (update.domain, tuple(within(_stage(nest, update).ranges))):
            found = _interval(update.dims, loop.values[update.name], conditions)
            if found is not None:
                return found
        if loop.extent is not None:
            return const(0), const(loop.extent)
        raise ScheduleError(
            f"{self.who}: how many iterations loop {loop.name}{at(update)} has is not one formula "
            f"over the sizes; split it by a factor and rfactor loop {index_of(loop.name)}i"
        )

    def apply(self, nest: Nest) -> Nest:
        loop = find_loop(nest, self.loop, self.who)
        fold = self._fold(nest, loop)
        if fold is not None:
            block = block_of(fold) if self.lifts else None
            apart = self.into is not None
            return accumulated(fold) if block is None else lifted(fold, block, apart)
        update = self._update(nest, loop)
        init = self._init(nest, update)
        origin, extent = self._extent(nest, update, loop)
        chain = around_stmt(nest.tree, update.name)
        rf = f"{_stem(update)}.rf"
        while rf in nest.buffers:
            rf += "2"
        dim = unlike(index_of(loop.name), init.dims)
        kernel = _factored(
            nest.kernel, update, init, (rf, dim), extent, sub(loop.values[update.name], origin)
        )
        stages = {stage.name: stage for stage in kernel.stages}
        partial = replace(
            update,
            name=f"{rf}.update",
            buffer=rf,
            lhs=stages[f"{rf}.update"].lhs,
            instance=(f"{rf}.update", update.instance[1]),
        )
        start, combine = statement(stages[f"{rf}.init"]), statement(stages[update.name])

        def by_result(item: Loop) -> Expr | None:
            found = in_coordinates(item.values[update.name], update.lhs, update)
            names: dict[Expr, Expr] = {Index(f"d{n}"): e for n, e in enumerate(init.lhs)}
            return None if found is None else substitute(found, names)

        def by_partial(item: Loop) -> Expr | None:
            return add(Index(dim), origin) if item is loop else by_result(item)

        taken = {item.name for item in loops(nest.tree)}
        first = placed(start, chain, by_partial, (), taken)
        along = Loop(self._combining(loop), {update.name: Index(dim)}, Leaf(update.name))
        last = placed(combine, chain, by_result, (along,), taken)
        tree = inserted(
            nest.tree, 0, update.name, partial.name, (start.name, first), (update.name, last)
        )
        stmts: dict[str, Stmt] = {}
        for name, stmt in nest.stmts.items():
            if name == update.name:
                stmts |= {start.name: start, partial.name: partial, name: combine}
            else:
                stmts[name] = stmt
        tensor = kernel.tensors[rf]
        buffers = {**nest.buffers, rf: Buffer(rf, rf, tensor.dtype, len(tensor.shape), "heap")}
        return replace(nest, kernel=kernel, stmts=stmts, tree=tree, buffers=buffers)


def _stem(update: Stmt) -> str:
    return update.name.removesuffix(".update")


def _stage(nest: Nest, update: Stmt) -> Stage:
    return next(stage for stage in nest.kernel.stages if stage.name == update.name)


def _interval(
    dims: tuple[str, ...], value: Expr, conditions: tuple[Expr, ...]
) -> tuple[Expr, Expr] | None:
    """The least value (0 where it is not less) and how many there are from it, as formulas."""
    origin: Expr = const(0)
    try:
        with isl.quota():
            if domain(dims, conditions).is_empty():
                return origin, const(0)
            if counterexample(dims, conditions, [compare("le", origin, value)]) is not None:
                least = largest(dims, sub(const(0), value), conditions)
                if least is None:
                    return None
                origin = sub(const(0), least)
            top = largest(dims, sub(value, origin), conditions)
    except isl.Exhausted:
        return None
    return None if top is None else (origin, add(top, const(1)))


def _factored(
    kernel: Kernel, update: Stmt, init: Stmt, names: tuple[str, str], extent: Expr, value: Expr
) -> Kernel:
    """The kernel with the update's stage in two steps."""
    rf, dim = names
    stages: list[Stage] = []
    old = {stage.name: stage for stage in kernel.stages}
    start, along = old[init.name], Range(dim, const(0), extent)
    partial = (Index(dim), *start.lhs)
    for stage in kernel.stages:
        if stage.name != update.name:
            stages.append(stage)
            continue
        ranges, joined = (*start.ranges, along), stage.joined
        stages.append(
            replace(start, name=f"{rf}.init", tensor=rf, ranges=ranges, lhs=partial, joined=joined)
        )
        lhs = (value, *stage.lhs)
        stages.append(replace(stage, name=f"{rf}.update", tensor=rf, lhs=lhs))
        read = Access(rf, partial)
        stages.append(replace(stage, ranges=ranges, where=start.where, lhs=start.lhs, value=read))
    tensor = kernel.tensors[old[update.name].tensor]
    made = Tensor(rf, tensor.dtype, (extent, *tensor.shape), "temp")
    return replace(kernel, stages=tuple(stages), tensors={**kernel.tensors, rf: made})
