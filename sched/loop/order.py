"""The order in which a tree runs two statements, as conditions on pairs of their instances."""

from __future__ import annotations

from dataclasses import dataclass

from .nest import Loop, Seq, Stmt, Tree
from .relations import primed, text
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


def same_iteration(loop: Loop, a: Stmt, b: Stmt) -> str:
    """The condition that an instance of `a` and one of `b` (primed) share the loop's iteration."""
    x, y = _values(loop, a, b)
    return f"{x} = {y}"


def other_iteration(loop: Loop, a: Stmt, b: Stmt) -> str:
    """The condition that they lie in different iterations of the loop."""
    x, y = _values(loop, a, b)
    return f"{x} != {y}"


def runs_before(order: Relative, a: Stmt, b: Stmt, *, or_same: bool = False) -> str:
    """The condition that an instance of `a` runs before one of `b` (primed).

    `or_same` counts an instance as running before itself.
    """
    levels = [_values(loop, a, b) for loop in order.loops]
    equal = [f"{x} = {y}" for x, y in levels]
    ways = [[*equal[:n], f"{x} < {y}"] for n, (x, y) in enumerate(levels)]
    if order.first or (order.first is None and or_same):
        ways.append([*equal, "0 = 0"])
    return " or ".join(f"({' and '.join(way)})" for way in ways) or "1 = 0"


def _values(loop: Loop, a: Stmt, b: Stmt) -> tuple[str, str]:
    return text(loop.values[a.name]), text(loop.values[b.name], primed(b.dims))
