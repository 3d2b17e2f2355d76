"""Reductions inside an expression, and the conditions under which each is evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .build import conjuncts
from .expr import Call, Expr, Range, Reduce, children, indices_of
from .uses import holding

Guards = tuple[Expr, ...]
"""Conditions that hold where an expression is evaluated."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an expression stands: the ranges of the indices around it and what holds there."""

    ranges: Mapping[str, Range]
    guards: Guards


def guarded_children(expr: Expr, guards: Guards) -> list[tuple[Expr, Guards]]:
    """The children, and what holds where each is evaluated."""
    match expr:
        case Call("where", (cond, yes, no)):
            return [
                (cond, guards),
                (yes, guards + tuple(conjuncts(cond))),
                (no, (*guards, Call("not", (cond,)))),
            ]
    return [(child, guards) for child in children(expr)]


def own_reduction(rhs: Expr, scope: Scope) -> Reduce | None:
    """The only reduction of a right side, if it has all indices of the scope and no guards."""
    found = list(dict.fromkeys(_outermost(rhs, scope.guards)))
    if len(found) != 1:
        return None
    reduction, guards = found[0]
    if guards != scope.guards or set(indices_of(reduction)) != set(scope.ranges):
        return None
    return reduction


def _outermost(expr: Expr, guards: Guards) -> list[tuple[Reduce, Guards]]:
    """The reductions of an expression that are inside no other, with the guards they have."""
    out: list[tuple[Reduce, Guards]] = []
    holders = holding(expr)
    stack = [(expr, guards)] if holders else []
    seen: set[tuple[Expr, Guards]] = set()
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        node, held = item
        if isinstance(node, Reduce):
            out.append((node, held))
            continue
        stack.extend(c for c in reversed(guarded_children(node, held)) if c[0] in holders)
    return out
