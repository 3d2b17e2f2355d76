"""From a checked op and element types to typed stages, the normal form that schedules act on.

An equation whose right side is one reduction, alone or inside an epilogue, over all the equation's
indices becomes `C.init`, `C.update` and, with an epilogue or a cast, `C.final`. Any other reduction
becomes a temporary of its own (`y_sum`); equal ones are shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..dtypes import DType, bool_, i64
from ..location import Loc
from .affine import is_affine
from .build import both, compare, conjuncts, const
from .common_loops import Common
from .domains import closure
from .expr import (
    Access,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    accesses,
    indices_of,
    rebuild,
    substitute,
)
from .fold_stages import end, loops, start, updates
from .folds import Joint, Member, Part, folded, order, together, uncast
from .guarded import Scope, guarded_children, own_reduction
from .joined import parts
from .op import Checked, Equation, Kernel, Stage, Turn
from .order_joint import whole
from .reducers import EXTREMES, REDUCERS
from .tensors import Tensors
from .types import (
    cast,
    dtype_of,
    elaborate_condition,
    elaborate_index,
    infer,
    typed_rhs,
)
from .uses import holding, map_exprs


def kernel(
    checked: Checked, dtypes: Mapping[str, DType], sizes: Mapping[str, int] | None = None
) -> Kernel:
    """The typed stages of an operator; `sizes`, where given, are substituted everywhere.

    Inputs without a type are f32 (i64 where they index).
    """
    env, bound = infer(checked, dtypes), dict(sizes or {})
    return _Maker(checked, env, bound, Tensors(env, bound)).run()


@dataclass(slots=True)
class _Maker:
    checked: Checked
    env: dict[str, DType]
    sizes: dict[str, int]
    tensors: Tensors
    stages: list[Stage] = field(default_factory=list)
    shared: dict[object, Access] = field(default_factory=dict)
    loc: Loc | None = None
    base: str = ""
    common: Common = field(default_factory=lambda: Common(set()))

    def run(self) -> Kernel:
        op = self.checked.op
        inputs = {p.name for p in op.params}
        for name, shape in self.checked.shapes.items():
            role = "input" if name in inputs else "output" if name in op.returns else "temp"
            self.tensors.declare(name, self.env[name], shape, role)
        count: dict[str, int] = {}
        for eq in self.checked.equations:
            count[eq.tensor] = count.get(eq.tensor, 0) + 1
        part: dict[str, int] = {}
        bases: list[str] = []
        for eq in self.checked.equations:
            part[eq.tensor] = part.get(eq.tensor, -1) + 1
            several = count[eq.tensor] > 1
            bases.append(f"{eq.tensor}.{part[eq.tensor]}" if several else eq.tensor)
        stages: list[Stage] = []
        every = self.checked.equations
        for steps in parts(self.checked.steps, 0):
            tensors = {self.checked.equations[s.equation].tensor for s in steps}
            self.common = Common(tensors if steps[0].carries else set())
            groups = [(s, found) for s in steps if (found := together(s.equation, every))]
            for n, (step, numbers) in enumerate(groups):
                below = groups[n + 1][0].joined if n + 1 < len(groups) else 0
                values = tuple(map(self.tensors.bound, step.loops))
                equations = [map_exprs(every[m], self.tensors.bound) for m in numbers]
                self.common.enter(replace(step, loops=values), whole(equations).ranges, below)
                self.loc = op.location(step.equation)
                self._define(equations, [bases[m] for m in numbers])
                self.common.leave(self.stages)
                self.stages = []
            stages += self.common.stages
        return Kernel(self.checked, self.tensors.declared, tuple(stages), self.sizes)

    def _define(self, equations: Sequence[Equation], bases: Sequence[str]) -> None:
        """The stages of an equation, or of a joint reduction, called by these names."""
        if len(equations) > 1:
            self._joint(equations, bases)
            return
        self.base = bases[0]
        self._equation(equations[0])

    def _equation(self, eq: Equation) -> None:
        ranges = {r.index: r for r in eq.ranges}
        lhs = tuple(elaborate_index(i, self.env) for i in eq.lhs)
        where = None if eq.where is None else elaborate_condition(eq.where, self.env)
        rhs = typed_rhs(eq, self.env)
        scope = Scope(ranges, tuple(conjuncts(where)))
        if eq.reducer is not None:
            self._accumulation(eq, lhs, rhs, scope)
            return
        written = own_reduction(rhs, scope)
        if written is None:
            value = cast(self._hoist(rhs, scope), self.env[eq.tensor], self.env)
            self._stage(self.base, eq.tensor, eq.ranges, where, lhs, value)
            return
        reduction = self._scalar(written, scope)
        acc = dtype_of(reduction, self.env)
        body = self._hoist_inside(reduction, scope)
        if rhs is written and acc is self.env[eq.tensor]:
            target, place = eq.tensor, lhs
            init_where = where
        else:
            target, init_where = f"{self.base}.acc", None
            place = self.tensors.temporary(target, acc, list(ranges), ranges)
            self.common.own(target)
        self._reduce(self.base, target, place, eq.ranges, reduction, body, acc, scope, init_where)
        if target != eq.tensor:
            result = _replaced(rhs, written, Access(target, place))
            value = cast(result, self.env[eq.tensor], self.env)
            last = self.stages[-1].turn
            turn = None if last is None else end(last)
            self._stage(f"{self.base}.final", eq.tensor, eq.ranges, where, lhs, value, turn=turn)

    def _joint(self, equations: Sequence[Equation], bases: Sequence[str]) -> None:
        """The stages of a joint reduction, whose equations share the loops of their instances."""
        made: list[Member] = []
        reduces = [uncast(typed_rhs(eq, self.env)) for eq in equations]
        for base, eq, reduce in zip(bases, equations, reduces, strict=True):
            self.base, acc = base, dtype_of(reduce, self.env)
            ranges = {r.index: r for r in eq.ranges}
            body = self._hoist_inside(reduce, Scope(ranges, ()))
            target, place = eq.tensor, eq.lhs
            if acc is not self.env[eq.tensor]:
                target = f"{base}.acc"
                place = self.tensors.temporary(target, acc, list(ranges), ranges)
                self.common.own(target)
            made.append(Member(base, target, place, eq.ranges, acc, body))
        first = reduces[0]
        conditions = tuple(conjuncts(first.where))
        self._fold(Joint(folded(first), tuple(made), first.ranges, conditions))
        turn = self.stages[-1].turn
        assert turn is not None
        for eq, member, (shared, rest) in zip(equations, made, loops(made), strict=True):
            if member.tensor != eq.tensor:
                value = cast(member.cell, self.env[eq.tensor], self.env)
                name = f"{member.stem}.final"
                self._stage(
                    name, eq.tensor, (*shared, *rest), None, eq.lhs, value,
                    turn=end(turn),
                )  # fmt: skip

    def _fold(self, joint: Joint) -> None:
        """The stages of a fold from the identity to its last instance."""
        kept: dict[int, Access] = {}
        for n in order(joint.fold)[1]:
            member = joint.members[n]
            ranges = {r.index: r for r in (*member.ranges, *joint.reduced)}
            name = self.tensors.unique(f"{member.stem}.new")
            place = self.tensors.temporary(name, member.acc, list(ranges), ranges)
            self.common.beside(name, member.tensor)
            kept[n] = Access(name, place)
        for w in (*start(joint), *updates(joint, kept)):
            self._stage(w.name, w.tensor, w.ranges, w.where, w.lhs, w.value, turn=w.turn)

    def _reduce(
        self,
        stem: str,
        target: str,
        place: tuple[Expr, ...],
        ranges: tuple[Range, ...],
        reduction: Reduce,
        body: Expr,
        acc: DType,
        scope: Scope,
        where: Expr | None = None,
    ) -> None:
        """The stages of a reduction up to its last update; `where` says which cells there are."""
        if isinstance(reduction.reducer, Part):
            member = Member(stem, target, place, ranges, acc, body, where)
            conditions = (*scope.guards, *conjuncts(reduction.where))
            self._fold(Joint(folded(reduction), (member,), reduction.ranges, conditions))
            return
        identity = Const(REDUCERS[reduction.reducer].identity(acc), acc)
        self._stage(f"{stem}.init", target, ranges, where, place, identity)
        self._update(f"{stem}.update", target, place, reduction, body, acc, scope)

    def _accumulation(self, eq: Equation, lhs: tuple[Expr, ...], rhs: Expr, scope: Scope) -> None:
        assert eq.reducer is not None
        reducer, dtype = REDUCERS[eq.reducer], self.env[eq.tensor]
        acc = reducer.accumulator(dtype)
        body = self._hoist(rhs, scope)
        shape = self.tensors.declared[eq.tensor].shape
        taken = {Index(name) for name in scope.ranges}
        names = _fresh(lhs, taken, len(shape))
        every = tuple(Range(n, const(0), e) for n, e in zip(names, shape, strict=True))
        cell = tuple(Index(n) for n in names)
        target = eq.tensor
        if acc is not dtype:
            target = f"{self.base}.acc"
            self.tensors.declare(target, acc, shape)
        self._stage(
            f"{self.base}.init", target, every, None, cell, Const(reducer.identity(acc), acc)
        )
        whole = Reduce(eq.reducer, (), body)
        self._update(f"{self.base}.update", target, lhs, whole, body, acc, scope)
        if target != eq.tensor:
            value: Expr = Cast(dtype, Access(target, cell))
            self._stage(f"{self.base}.final", eq.tensor, every, None, cell, value)

    def _update(
        self,
        name: str,
        target: str,
        place: tuple[Expr, ...],
        reduction: Reduce,
        body: Expr,
        acc: DType,
        scope: Scope,
    ) -> None:
        """for all instances where the conditions hold: target[place] = combine(.., body)."""
        ranges = (*scope.ranges.values(), *reduction.ranges)
        conditions = [*scope.guards, *conjuncts(reduction.where)]
        where: Expr | None = None
        for condition in dict.fromkeys(c for c in conditions if is_affine(c)):
            where = both(where, condition)
        assert isinstance(reduction.reducer, str)
        identity = Const(REDUCERS[reduction.reducer].identity(acc), acc)
        for condition in reversed([c for c in conditions if not is_affine(c)]):
            body = Call("where", (condition, body, identity))
            # An index read from an array may be out of range where nothing is added.
            place = tuple(
                Call("where", (condition, e, const(0))) if accesses(e) else e for e in place
            )
        self._stage(name, target, ranges, where, place, body, reduction.reducer)

    def _hoist_inside(self, reduction: Reduce, scope: Scope) -> Expr:
        """The body of a reduction with the reductions inside it made temporaries."""
        inner = {**scope.ranges, **{r.index: r for r in reduction.ranges}}
        guards = scope.guards + tuple(conjuncts(reduction.where))
        return self._hoist(reduction.body, Scope(inner, guards))

    def _hoist(self, expr: Expr, scope: Scope) -> Expr:
        """The expression with every reduction in it made a temporary, read in its place."""
        holders = holding(expr)
        done: dict[tuple[Expr, tuple[Expr, ...]], Expr] = {}
        stack = [(expr, scope.guards)]
        while stack:
            node, guards = stack[-1]
            if node not in holders:
                done[node, guards] = node
            elif isinstance(node, Reduce):
                done[node, guards] = self._reduction(node, Scope(scope.ranges, guards))
            elif (node, guards) not in done:
                parts = guarded_children(node, guards)
                if isinstance(node, Call) and node.op == "where" and parts[0] in done:
                    # The condition is a guard of the branches, so it comes first.
                    node = Call("where", (done[parts[0]], *node.args[1:]))
                    parts = [parts[0], *guarded_children(node, guards)[1:]]
                left = [part for part in parts if part not in done]
                if left:
                    stack += reversed(left[:1] if parts[0] in left else left)
                    continue
                done[stack[-1]] = rebuild(node, tuple(done[part] for part in parts))
            stack.pop()
        return done[expr, scope.guards]

    def _reduction(self, reduction: Reduce, scope: Scope) -> Expr:
        bound = set(reduction.indices)
        mentioned = [*indices_of(reduction), *(i for g in scope.guards for i in indices_of(g))]
        free = closure([i for i in mentioned if i not in bound], scope.ranges)
        outer = self.common.around(free, scope.ranges, (reduction, *scope.guards))
        ranges = {i: scope.ranges[i] for i in outer}
        key = (reduction, scope.guards, tuple(ranges.values()))
        if key in self.shared:
            return self.shared[key]
        narrowed = Scope(ranges, scope.guards)
        name = f"{self.base.partition('.')[0]}_{reduction.reducer}"
        reduction = self._scalar(reduction, narrowed)
        body = self._hoist_inside(reduction, narrowed)
        acc = dtype_of(reduction, self.env)
        name = self.tensors.unique(name)
        place = self.tensors.temporary(name, acc, outer, ranges)
        self.common.temporary(name, (reduction, *scope.guards))
        self._reduce(name, name, place, tuple(ranges.values()), reduction, body, acc, narrowed)
        self.shared[key] = Access(name, place)
        return self.shared[key]

    def _scalar(self, reduction: Reduce, scope: Scope) -> Reduce:
        """An argmax as a reduction of indices, over those at which the value is the greatest.

        The greatest value is a temporary before it. A value that is computed is stored first, so
        that both reductions see the same bits whatever the code around them is.
        """
        if reduction.reducer not in EXTREMES:
            return reduction
        (index,), ranges, where = reduction.indices, reduction.ranges, reduction.where
        value = self._hoist_inside(reduction, scope)
        if not isinstance(value, Access):
            inner = {**scope.ranges, **{r.index: r for r in ranges}}
            value = self._stored(value, Scope(inner, scope.guards + tuple(conjuncts(where))))
        dtype = self.env[value.tensor]
        extreme = Reduce(EXTREMES[reduction.reducer], (index,), value, ranges, where, dtype)
        best = self._reduction(extreme, scope)
        attains = compare("eq", value, best)
        if dtype.is_float:  # where a NaN is, the greatest value is NaN
            first = compare("ne", value, value)
            attains = Call("where", (compare("ne", best, best), first, attains))
        none = Const(REDUCERS["min"].identity(i64), i64)
        body = Call("where", (attains, Index(index), none))
        return Reduce("min", (index,), body, ranges, where, i64)

    def _stored(self, value: Expr, scope: Scope) -> Access:
        """A temporary that holds a value for all instances of a scope on which it depends."""
        mentioned = [*indices_of(value), *(i for g in scope.guards for i in indices_of(g))]
        free = closure(list(dict.fromkeys(mentioned)), scope.ranges)
        outer = self.common.around(free, scope.ranges, (value, *scope.guards))
        ranges = {i: scope.ranges[i] for i in outer}
        dtype = dtype_of(value, self.env)
        where: Expr | None = None
        nothing = Const(False if dtype is bool_ else 0.0 if dtype.is_float else 0, dtype)
        for condition in reversed(scope.guards):
            if is_affine(condition):
                where = both(condition, where)
            else:
                value = Call("where", (condition, value, nothing))
        name = self.tensors.unique(f"{self.base.partition('.')[0]}_value")
        place = self.tensors.temporary(name, dtype, outer, ranges)
        self.common.temporary(name, (value,))
        self._stage(name, name, tuple(ranges.values()), where, place, value)
        return Access(name, place)

    def _stage(
        self,
        name: str,
        tensor: str,
        ranges: tuple[Range, ...],
        where: Expr | None,
        lhs: tuple[Expr, ...],
        value: Expr,
        reducer: str | None = None,
        turn: Turn | None = None,
    ) -> None:
        joined, rows = 0, self.common.loops(ranges)
        values = rows or tuple(Index(r.index) for r in ranges)
        before = self.stages[-1] if self.stages else None
        stem, _, part = name.rpartition(".")
        if turn is not None:
            last = None if before is None else before.turn
            if before is not None and last is not None and last.fold == turn.fold:
                joined = _common(before, ranges, values)
        elif part in ("update", "final") and before is not None and before.name.startswith(stem):
            joined = _common(before, ranges, values)
            if before.joined:
                joined = min(joined, before.joined)
        self.stages.append(
            Stage(
                name, tensor, ranges, where, lhs, value, reducer, self.loc, joined, rows, turn,
            )
        )  # fmt: skip


def _replaced(expr: Expr, reduction: Reduce, by: Expr) -> Expr:
    """`expr` with a reduction replaced that is inside no other."""
    return substitute(expr, {reduction: by})


def _common(before: Stage, ranges: Sequence[Range], values: Sequence[Expr]) -> int:
    """How many outermost loops are the same: of one value, over the same ranges."""
    own, other = ({r.index: r for r in each} for each in (before.ranges, ranges))
    count = 0
    for a, b in zip(before.values, values, strict=False):
        if a is not b or any(own[i] is not other[i] for i in indices_of(a)):
            break
        count += 1
    return count


def _fresh(lhs: tuple[Expr, ...], taken: set[Index], rank: int) -> list[str]:
    """Names for the coordinates of a tensor: those of the left side where they are bare."""
    out: list[str] = []
    for d in range(rank):
        index = lhs[d]
        name = index.name if isinstance(index, Index) and index.name not in out else f"d{d}"
        while not isinstance(index, Index) and Index(name) in taken:
            name += "_"
        out.append(name)
    return out
