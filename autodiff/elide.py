"""Leaving out the ranges that range inference finds by itself, so that results read well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..algo.errors import Error
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    children,
    transform,
)  # fmt: skip
from ..algo.tensor_expr.op import Equation, Op


def elide(op: Op) -> Op:
    """`op` without the ranges that follow from its accesses.

    A range 0:N is superfluous where some unguarded access has the bare index in a dimension of
    extent N; that the rest of the operator leads inference to the same ranges is then checked.
    """
    explicit = check(op)
    shorter = Op(
        op.name,
        op.params,
        tuple(_equation(eq, explicit.shapes) for eq in op.equations),
        op.returns,
        op.shapes,
    )
    try:
        inferred = check(shorter)
    except Error:
        return op
    same = inferred.equations == explicit.equations and inferred.shapes == explicit.shapes
    return shorter if same else op


def _equation(eq: Equation, shapes: Mapping[str, tuple[Expr, ...]]) -> Equation:
    def rule(item: Expr) -> Expr:
        if isinstance(item, Reduce):
            kept = _kept(item.ranges, item.body, shapes)
            return Reduce(item.reducer, item.indices, item.body, kept, item.where, item.dtype)
        return item

    ranges = _kept(eq.ranges, eq.rhs, shapes)
    return Equation(eq.tensor, eq.lhs, transform(eq.rhs, rule), ranges, eq.where, eq.reducer)


def _kept(
    ranges: tuple[Range, ...], body: Expr, shapes: Mapping[str, tuple[Expr, ...]]
) -> tuple[Range, ...]:
    extents: dict[str, set[Expr]] = {}
    for access in _unguarded(body):
        for at, extent in zip(access.indices, shapes[access.tensor], strict=True):
            if isinstance(at, Index):
                extents.setdefault(at.name, set()).add(extent)
    return tuple(
        r for r in ranges if r.lo is not Const(0) or r.hi not in extents.get(r.index, set())
    )


def _unguarded(body: Expr) -> Iterator[Access]:
    stack = [body]
    while stack:
        item = stack.pop()
        if isinstance(item, Access):
            yield item
        guarded = isinstance(item, Call) and item.op == "where"
        stack.extend(children(item)[:1] if guarded else children(item))
