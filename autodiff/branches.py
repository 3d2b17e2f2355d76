"""Which conditions a part of an expression is evaluated under: those of the choices around it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ..algo.tensor_expr.build import all_of, both, conjuncts
from ..algo.tensor_expr.expr import Call, Expr, Reduce, children, indices_of, walk


def outermost(body: Expr) -> Iterator[tuple[Reduce, Expr | None]]:
    """The outermost reductions in reading order, each with the condition under which it is
    evaluated, None being always; those that a condition asks come before what it guards."""
    order = tuple(walk(body))
    if not any(isinstance(item, Reduce) for item in order):
        return
    guards: dict[Expr, Expr | None] = {body: None}
    for item in reversed(order):  # what is around comes before what is inside
        if item in guards and not isinstance(item, Reduce):
            for child, own in _evaluated(item):
                here = both(guards[item], own)
                guards[child] = either(guards[child], here) if child in guards else here
    yield from ((r, guards[r]) for r in order if isinstance(r, Reduce) and r in guards)


def _evaluated(item: Expr) -> Iterator[tuple[Expr, Expr | None]]:
    """The children, each with the condition that the expression itself puts on it."""
    if isinstance(item, Call) and item.op == "where":
        condition, yes, no = item.args
        yield condition, None
        yield yes, condition
        yield no, Call("not", (condition,))
    else:
        yield from ((child, None) for child in children(item))


def either(a: Expr | None, b: Expr | None) -> Expr | None:
    """One of two conditions, None being true: what both ask for, and the rest of either."""
    if a is b:
        return a
    one, two = conjuncts(a), conjuncts(b)
    common = [c for c in one if c in two]
    left, right = (all_of(c for c in each if c not in common) for each in (one, two))
    if len(common) < min(len(one), len(two)) and not _are_opposite(left, right):
        common.append(Call("or", (left, right)))
    return all_of(common) if common else None


def _are_opposite(a: Expr, b: Expr) -> bool:
    return a is Call("not", (b,)) or b is Call("not", (a,))


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
