"""An operator for many arguments at once: one more index, of what they differ in.

Where a parameter is given once for each element of a batch, every tensor that is computed of it
has the batch as its first dimension, and its equations one more index that runs over it. What is
computed of other parameters alone stays as it is. Each element of the batch gets what the operator
gives for it: no index of the operator meets the new one.
"""

from __future__ import annotations

from .annotation import annotation
from .check import check
from .expr import Access, Const, Expr, Index, Range, Size, accesses, transform, walk
from .folds import groups
from .op import Equation, Op, Param
from .uses import map_exprs


def batched(op: Op, names: tuple[str, ...]) -> tuple[Op, tuple[bool, ...]]:
    """The operator whose parameters `names` have a batch as their first dimension; and of each of
    its results, whether it has."""
    made: tuple[Op, tuple[bool, ...]] = op.memo(f"batched {names}", lambda: _batched(op, names))
    return made


def _batched(op: Op, names: tuple[str, ...]) -> tuple[Op, tuple[bool, ...]]:
    checked = check(op)
    many = _of_batch(checked.equations, names)
    roots = [root for eq in checked.equations for root in eq.roots]
    ranges = {item.index for root in roots for item in walk(root) if isinstance(item, Range)}
    taken = {*checked.shapes, *checked.sizes, *ranges}
    batch, at = Size(_free("BATCH", taken)), Index(_free("batch", taken))

    def rule(item: Expr) -> Expr:
        if isinstance(item, Access) and item.tensor in many:
            return Access(item.tensor, (at, *item.indices), item.boundary)
        return item

    def one(eq: Equation) -> Equation:
        if eq.tensor not in many:
            return eq
        new = map_exprs(eq, lambda expr: transform(expr, rule))
        along = Range(at.name, Const(0), batch)
        lhs, ranges = (at, *new.lhs), (along, *new.ranges)
        return Equation(new.tensor, lhs, new.rhs, ranges, new.where, new.reducer)

    extents = {
        name: (batch, *shape) if name in many else shape for name, shape in checked.shapes.items()
    }
    params = tuple(Param(p.name, annotation(p.type.dtype, extents[p.name])) for p in op.params)
    formulas = {p.name for p in params if p.type.dims is None}
    shapes = {name: extents[name] for name in extents if name in formulas or name in op.shapes}
    equations = tuple(map(one, checked.equations))
    locations = op.locations if len(op.locations) == len(equations) else ()
    made = Op(f"{op.name}_batched", params, equations, op.returns, shapes, locations, op.maxima)
    return made, tuple(name in many for name in op.returns)


def _of_batch(equations: tuple[Equation, ...], names: tuple[str, ...]) -> set[str]:
    """The tensors that are computed of a parameter of the batch."""
    parts = [[equations[n] for n in group] for group in groups(equations)]
    many = set(names)
    while True:
        more = {
            eq.tensor
            for part in parts
            if any(a.tensor in many for eq in part for root in eq.roots for a in accesses(root))
            for eq in part  # a component is combined of the others too
        }
        if more <= many:
            break
        many |= more
    return many


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
