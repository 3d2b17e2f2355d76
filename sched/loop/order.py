"""The order in which a tree runs two statements, as conditions on pairs of their instances."""

from __future__ import annotations

from dataclasses import dataclass

from ...algo.tensor_expr.build import all_of, any_of, compare
from ...algo.tensor_expr.expr import Expr
from .nest import Loop, Seq, Stmt, Tree
from .relations import earlier, second
from .tree import way_to


@dataclass(frozen=True)
class Relative:
    """The loops that two statements share, and whether the first comes first inside them.

    `first` is None where both are the same statement.
    """

    loops: tuple[Loop, ...]
    first: bool | None

    def signature(self, a: str, b: str) -> tuple[object, ...]:
        """What the relative order depends on; equal signatures mean the same order."""
        return (self.first, *((loop.values[a], loop.values[b]) for loop in self.loops))


def relative(tree: Tree, a: str, b: str) -> Relative:
    """How the tree orders statement `a` against `b`."""
    one, two = way_to(tree, a), way_to(tree, b)
    shared: list[Loop] = []
    for (node, m), (other, n) in zip(one, two, strict=False):
        if node is not other:
            break
        if isinstance(node, Loop):
            shared.append(node)
        elif isinstance(node, Seq) and m != n:
            return Relative(tuple(shared), m < n)
    return Relative(tuple(shared), None)


def same_iteration(loop: Loop, a: Stmt, b: Stmt) -> Expr:
    """The condition that an instance of `a` and one of `b` (primed) share the loop's iteration."""
    return compare("eq", *_values(loop, a, b))


def other_iteration(loop: Loop, a: Stmt, b: Stmt) -> Expr:
    """The condition that they lie in different iterations of the loop."""
    return compare("ne", *_values(loop, a, b))


def runs_before(order: Relative, a: Stmt, b: Stmt, *, or_same: bool = False) -> Expr:
    """The condition that an instance of `a` runs before one of `b` (primed).

    `or_same` counts an instance as running before itself.
    """
    levels = [_values(loop, a, b) for loop in order.loops]
    ways = earlier(levels)
    if order.first or (order.first is None and or_same):
        ways.append(all_of(compare("eq", x, y) for x, y in levels))
    return any_of(ways)


def _values(loop: Loop, a: Stmt, b: Stmt) -> tuple[Expr, Expr]:
    return loop.values[a.name], second(loop.values[b.name], b.dims)
