"""Reductions that are computed again in every iteration of a loop, and start again in each.

Dependences say that an element is initialised before it is updated. Where a reduction is repeated,
that is not enough: an element that two repetitions have in common must not get the terms of both.
So the last initialisation before an update must be one of the same repetition.
"""

from __future__ import annotations

from collections.abc import Collection

from ...algo import isl
from ...algo.errors import ScheduleError
from ...algo.tensor_expr.build import compare
from ...algo.tensor_expr.expr import Expr, Index
from .flow import Role, event, times
from .last_write import Question, by_flow
from .nest import Nest, Stmt
from .relations import symbols
from .storage import repeats
from .witness import at, element, instance


def check_repeated(nest: Nest, who: str, changed: Collection[str]) -> None:
    """Raises unless every repetition of a reduction into a buffer of those accumulates from its own
    start."""
    for stmt in nest.stmts.values():
        if stmt.reducer is not None and stmt.buffer in changed and repeats(stmt):
            _check(nest, stmt, who)


def _check(nest: Nest, update: Stmt, who: str) -> None:
    tensor = nest.buffers[update.buffer].tensor
    starts = [
        Role(nest.stmts[stage.name], tensor, nest.stmts[stage.name].lhs)
        for stage in nest.kernel.stages
        if stage.tensor == tensor and stage.reducer is None
    ]
    reader = Role(update, tensor, update.lhs, "@read")
    when = times(nest.tree, [*starts, reader], lambda loop: False)
    ask = Question(
        event(reader, when),
        tuple(event(start, when) for start in starts),
        frozenset(range(len(starts))),
        tuple(_together(update, start.stmt) for start in starts),
        tuple(symbols(update, *(start.stmt for start in starts))),
    )
    try:
        found = by_flow(ask)
    except isl.Exhausted:
        raise ScheduleError(
            f"{who}: could not prove that every repetition of {update.name} starts anew"
            f"{at(update)}; another loop, or sizes that are given, may help"
        ) from None
    if found is not None:
        point = found[1]
        raise ScheduleError(
            f"{who}: {instance(update, point, point)} updates "
            f"{element(tensor, update.lhs, point, point)} before its own repetition starts, or "
            f"after another one has started{at(update)}; keep the loops of {tensor} inside those "
            "that repeat it"
        )


def _together(update: Stmt, start: Stmt) -> tuple[Expr, ...]:
    """The conditions that two instances, the second primed, belong to one repetition."""
    common = [dim for dim in update.dims[: repeats(update)] if dim in start.dims]
    return tuple(compare("eq", Index(dim), Index(f"{dim}'")) for dim in common)
