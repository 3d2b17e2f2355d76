"""Which conditions a part of an expression is evaluated under: those of the choices around it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ..algo.tensor_expr.build import all_of
from ..algo.tensor_expr.expr import Call, Expr, Reduce, indices_of, walk
from ..algo.tensor_expr.guarded import Guards, guarded_children


def outermost(body: Expr) -> Iterator[tuple[Reduce, Guards]]:
    """The outermost reductions in reading order, each with the conditions under which it is
    evaluated; those that a condition asks come before what it guards."""
    order = tuple(walk(body))
    if not any(isinstance(item, Reduce) for item in order):
        return
    guards: dict[Expr, Guards] = {body: ()}
    for item in reversed(order):  # what is around comes before what is inside
        if item in guards and not isinstance(item, Reduce):
            for child, here in guarded_children(item, guards[item]):
                guards[child] = _either(guards[child], here) if child in guards else here
    yield from ((r, guards[r]) for r in order if isinstance(r, Reduce) and r in guards)


def _either(one: Guards, two: Guards) -> Guards:
    """That all of one or all of the other hold: what both ask for, and the rest of either."""
    common = tuple(c for c in one if c in two)
    rests = [[c for c in each if c not in common] for each in (one, two)]
    if not all(rests):
        return common
    left, right = map(all_of, rests)
    if left is Call("not", (right,)) or right is Call("not", (left,)):
        return common
    return *common, Call("or", (left, right))


def connected(conditions: Iterable[Expr], used: Collection[str]) -> list[tuple[Expr, set[str]]]:
    """Conditions that share indices which are not `used`, as one, with those indices."""
    found: list[tuple[Expr, set[str]]] = []
    for condition in conditions:
        names = {*indices_of(condition)}.difference(used)
        if not names:
            continue
        for other in [each for each in found if each[1] & names]:
            found.remove(other)
            condition, names = all_of((other[0], condition)), names | other[1]
        found.append((condition, names))
    return found
