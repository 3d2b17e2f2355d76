"""Leaving out the ranges that range inference finds by itself, so that results read well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..algo.errors import Error
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.expr import Const, Expr, Index, Range, Reduce, indices_of, transform
from ..algo.tensor_expr.op import Equation, Op
from ..algo.tensor_expr.uses import uses


def elide(op: Op) -> Op:
    """`op` without the ranges that follow from its accesses.

    A range 0:N is superfluous where some access, under no guard on the index, has the bare index in
    a dimension of extent N; that the rest of the operator leads inference to the same ranges is
    then checked.
    """
    explicit = check(op)
    equations = tuple(_equation(eq, explicit.shapes) for eq in op.equations)
    shorter = replace(op, equations=equations, _memo={})
    try:
        inferred = check(shorter)
    except Error:
        return op
    same = inferred.equations == explicit.equations and inferred.shapes == explicit.shapes
    return shorter if same else op


def _equation(eq: Equation, shapes: Mapping[str, tuple[Expr, ...]]) -> Equation:
    extents: dict[Expr, set[Expr]] = {}
    for use in uses(eq):
        if not use.write and not use.guarded and isinstance(use.expr, Index):
            extents.setdefault(use.expr, set()).add(shapes[use.tensor][use.dim])

    def kept(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
        return tuple(
            r for r in ranges if r.lo is not Const(0) or r.hi not in extents.get(Index(r.index), ())
        )

    def rule(item: Expr) -> Expr:
        if isinstance(item, Reduce):
            ranges = kept(item.ranges)
            return Reduce(item.reducer, item.indices, item.body, ranges, item.where, item.dtype)
        return item

    # Of an index that stands in the condition alone the range says that it is one.
    mentioned = {i for e in (*eq.lhs, eq.rhs) for i in indices_of(e)}
    short = kept(eq.ranges)
    outer = tuple(r for r in eq.ranges if r in short or r.index not in mentioned)
    return Equation(eq.tensor, eq.lhs, transform(eq.rhs, rule), outer, eq.where, eq.reducer)
