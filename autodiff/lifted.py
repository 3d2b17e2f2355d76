"""A reduction by a user's reducer that has a lift, as the lift's equations over all instances.

The lift takes one tensor a component, indexed by the position in a block. Here the block is the
whole reduction, and a position the values of the reduced indices, so an equation of the lift that
names positions by bare indices alone becomes one over these. Other lifts are left to the
recurrence over prefixes, which is always right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..algo.tensor_expr.affine import normalize
from ..algo.tensor_expr.build import both
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    Size,
    children,
    rebuild,
    sizes_of,
    substitute,
    walk,
)
from ..algo.tensor_expr.folds import part_of
from ..algo.tensor_expr.op import Checked, Equation
from .naming import fresh_name
from .unfold import Component, Folded, Unfolded


def lifted(reduction: Folded, taken: Collection[str]) -> Unfolded | None:
    """The lift's equations for a reduction, None where it has none that serves.

    Temporaries of the lift get names that are not `taken`.
    """
    lift = reduction.fold.lift
    if lift is None:
        return None
    checked = check(lift)
    bodies, whole = (
        dict(zip(names, reduction.components, strict=True))
        for names in ([p.name for p in lift.params], lift.returns)
    )
    made = AtOnce(reduction, checked, checked.equations, bodies, whole, {}, set(taken))
    return made.unfolded() if made.fits() and made.serves() else None


@dataclass(slots=True)
class AtOnce:
    """Equations for a block, as those for all instances of a reduction.

    Of the tensors of `checked`, `bodies` hold what a component combines, for each position, and
    `whole` a component's result, or what has its indices. All others are temporaries, of names not
    `taken`; those of `made` have the indices of what a component combines.
    """

    reduction: Folded
    checked: Checked
    equations: Sequence[Equation]
    bodies: Mapping[str, Component]
    whole: Mapping[str, Component]
    made: Mapping[str, Component]
    taken: set[str]
    names: dict[str, str] = field(default_factory=dict)

    def _kinds(self) -> tuple[tuple[Mapping[str, Component], int], ...]:
        """The tensors that have the indices of components, and whether positions come before;
        without those of which nothing says a rank, as nobody reads them."""
        kinds = (self.bodies, 1), (self.made, 1), (self.whole, 0)
        return tuple(({n: c for n, c in found.items() if n in self.checked.shapes}, ahead)
                     for found, ahead in kinds)  # fmt: skip

    def _position(self) -> Expr | None:
        """The size of a block."""
        first = {shape[0] if (shape := self.checked.shapes[name]) else None
                 for found, ahead in self._kinds() if ahead for name in found}  # fmt: skip
        size, *others = first or {None}
        return size if isinstance(size, Size) and not others else None

    def fits(self) -> bool:
        """Do components have the indices of their own that their tensors say?"""
        return all(
            len(self.checked.shapes[name]) == ahead + len(component.own)
            for found, ahead in self._kinds()
            for name, component in found.items()
        )

    def serves(self) -> bool:
        """Do the equations name positions by bare indices alone?"""
        position = self._position()
        if not isinstance(position, Size):
            return False
        for found, ahead in self._kinds():
            for name in found:
                shape = self.checked.shapes[name]
                if position in shape[ahead:]:
                    return False
                if not all(isinstance(extent, Size) for extent in shape):
                    return False
        for eq in self.equations:
            if eq.reducer is not None or any(part_of(item) for item in walk(eq.rhs)):
                return False
            if any(not isinstance(e, Index) for e in eq.lhs):
                return False
            along = self.along(eq)
            for root in (eq.rhs, *((eq.where,) if eq.where is not None else ())):
                if not self._bare(root, along, position):
                    return False
            for r in self.ranges_of(eq):
                if position.name in sizes_of((r.lo, r.hi)) and r.index not in along:
                    return False
        counts = [eq.tensor for eq in self.equations]
        return len(set(counts)) == len(counts)

    def ranges_of(self, eq: Equation) -> list[Range]:
        inner = [r for item in walk(eq.rhs) if isinstance(item, Reduce) for r in item.ranges]
        return [*eq.ranges, *inner]

    def along(self, eq: Equation) -> set[str]:
        """The indices of an equation that are positions."""
        position = self._position()
        return {r.index for r in self.ranges_of(eq) if r.lo is Const(0) and r.hi is position}

    def _dims(self, tensor: str) -> list[bool]:
        """Of each dimension of a tensor of the lift, is it positions?"""
        position = self._position()
        return [extent is position for extent in self.checked.shapes[tensor]]

    def _bare(self, root: Expr, along: set[str], position: Size) -> bool:
        """Do positions occur as bare indices of dimensions of positions only?"""
        stack = [root]
        while stack:
            item = stack.pop()
            if isinstance(item, Index) and item.name in along:
                return False
            if item is position:
                return False
            if isinstance(item, Access):
                for e, here in zip(item.indices, self._dims(item.tensor), strict=True):
                    if here != (isinstance(e, Index) and e.name in along):
                        return False
                    if not here:
                        stack.append(e)
            elif isinstance(item, Reduce):
                stack += [item.body] + ([] if item.where is None else [item.where])
            else:
                stack += children(item)
        return True

    def unfolded(self) -> Unfolded:
        """The equations, for all that the components have in common."""
        inside: dict[str, tuple[Expr, ...]] = {}
        sizes = self._sizes()
        stem = self.reduction.components[0].tensor
        for eq in self.equations:
            if eq.tensor not in self.whole:
                name = fresh_name(f"{stem}_{eq.tensor}", self.taken)
                self.taken.add(name)
                self.names[eq.tensor] = name
                extents: list[Expr] = [r.hi for r in self.reduction.shared]
                for e in self.checked.shapes[eq.tensor]:
                    here = e is self._position()
                    extents += (
                        [r.hi for r in self.reduction.reduced] if here else [substitute(e, sizes)]
                    )
                inside[name] = tuple(extents)
        return Unfolded(inside, tuple(self._equation(eq, sizes) for eq in self.equations))

    def _sizes(self) -> dict[Expr, Expr]:
        """What the sizes of the lift are here."""
        sizes: dict[Expr, Expr] = {}
        for found, ahead in self._kinds():
            for name, component in found.items():
                extents = self.checked.shapes[name][ahead:]
                for symbol, r in zip(extents, component.own, strict=True):
                    sizes.setdefault(symbol, r.hi)
        return sizes

    def amount(self, eq: Equation, component: Component) -> Expr:
        """What an equation of `made` says of an instance."""
        here = Renaming(self, eq, self._sizes())
        at = here.place(eq.lhs)
        ranges = (*self.reduction.shared, *self.reduction.reduced, *component.own)
        values: dict[Expr, Expr] = {e: Index(r.index) for e, r in zip(at, ranges, strict=True)}
        return substitute(here.value(eq.rhs), values)

    def _equation(self, eq: Equation, sizes: Mapping[Expr, Expr]) -> Equation:
        here = Renaming(self, eq, sizes)
        ranges = (*self.reduction.shared, *here.ranges(eq.ranges))
        result = self.whole.get(eq.tensor)
        value = here.value(eq.rhs)
        if result is None:
            where = here.where([r.index for r in eq.ranges])
            if where is not None:
                value = Call("where", (where, value, Const(0)))
            tensor, lhs = self.names[eq.tensor], here.access(eq.tensor, eq.lhs).indices
        else:
            own: dict[Expr, Expr] = {Index(r.index): here.value(e)
                   for r, e in zip(result.own, eq.lhs, strict=True)}  # fmt: skip
            tensor, lhs = result.tensor, tuple(substitute(e, own) for e in result.lhs)
            if result.acc is not None and result.acc is not result.dtype:
                assert result.dtype is not None
                value = Cast(result.dtype, value)
        where = eq.where and here.value(eq.where)
        if isinstance(value, Reduce) and value.reducer in ("max", "min") and value.dtype is None:
            # Accumulated from the identity: of no instances it is that, and no error.
            where = where if value.where is None else both(where, value.where)
            return Equation(tensor, lhs, value.body, (*ranges, *value.ranges), where, value.reducer)
        return Equation(tensor, lhs, value, ranges, where)


class Renaming:
    """One equation of a lift in the indices that it has here."""

    def __init__(self, lift: AtOnce, eq: Equation, sizes: Mapping[Expr, Expr]) -> None:
        self.lift, self.sizes = lift, sizes
        self.along = lift.along(eq)
        reduction = lift.reduction
        taken = {r.index for r in (*reduction.shared, *reduction.reduced)}
        taken |= {r.index for c in reduction.components for r in c.own}
        self.names: dict[str, tuple[str, ...]] = {}
        for r in lift.ranges_of(eq):
            if r.index in self.names:
                continue
            many = r.index in self.along and len(reduction.reduced) > 1
            wanted = [f"{r.index}_{j.index}" for j in reduction.reduced] if many else [r.index]
            found = []
            for name in wanted:
                found.append(fresh_name(name, taken))
                taken.add(found[-1])
            self.names[r.index] = tuple(found)

    def ranges(self, ranges: Sequence[Range]) -> list[Range]:
        out: list[Range] = []
        for r in ranges:
            names = self.names[r.index]
            if r.index in self.along:
                out += [
                    Range(name, j.lo, j.hi)
                    for name, j in zip(names, self.lift.reduction.reduced, strict=True)
                ]
            else:
                out.append(Range(names[0], self.value(r.lo), self.value(r.hi)))
        return out

    def where(self, names: Sequence[str]) -> Expr | None:
        """That each of the positions is an instance."""
        out: Expr | None = None
        condition = self.lift.reduction.where
        for name in names:
            if name in self.along and condition is not None:
                out = both(out, substitute(condition, self._instance(name)))
        return out

    def _instance(self, name: str) -> dict[Expr, Expr]:
        pairs = zip(self.lift.reduction.reduced, self.names[name], strict=True)
        return {Index(j.index): Index(own) for j, own in pairs}

    def access(self, tensor: str, indices: Sequence[Expr]) -> Access:
        """An element of a temporary of the lift."""
        return Access(self.lift.names[tensor], self.place(indices))

    def place(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices here of an element of a temporary."""
        around: list[Expr] = [Index(r.index) for r in self.lift.reduction.shared]
        for e in indices:
            if isinstance(e, Index) and e.name in self.along:
                around += map(Index, self.names[e.name])
            else:
                around.append(self.value(e))
        return tuple(around)

    def value(self, expr: Expr) -> Expr:
        """An expression of the lift here."""
        done: dict[Expr, Expr] = {}
        for item in walk(expr):
            done[item] = self._one(item, done)
        return done[expr]

    def _one(self, item: Expr, done: Mapping[Expr, Expr]) -> Expr:
        match item:
            case Index(name):
                return Index(self.names[name][0])
            case Size():
                return self.sizes.get(item, item)
            case Access(tensor, indices) if tensor in self.lift.bodies:
                component = self.lift.bodies[tensor]
                at, *rest = indices
                assert isinstance(at, Index)
                values = self._instance(at.name)
                values |= {Index(r.index): done[e]
                           for r, e in zip(component.own, rest, strict=True)}  # fmt: skip
                return normalize(substitute(component.body, values))
            case Access(tensor, indices) if tensor in self.lift.whole:
                result = self.lift.whole[tensor]
                own: dict[Expr, Expr] = {Index(r.index): done[e]
                       for r, e in zip(result.own, indices, strict=True)}  # fmt: skip
                return Access(result.tensor, tuple(substitute(e, own) for e in result.lhs))
            case Access(tensor, indices):
                return self.access(tensor, indices)
            case Reduce(reducer, indices, body, ranges, where, dtype):
                inner = self.where(indices)
                own_where = None if where is None else done[where]
                names = tuple(n for name in indices for n in self.names[name])
                return Reduce(
                    reducer, names, done[body], tuple(self.ranges(ranges)),
                    both(own_where, inner) if inner is not None else own_where, dtype,
                )  # fmt: skip
            case Range():
                return item
        return rebuild(item, tuple(done[child] for child in children(item)))
