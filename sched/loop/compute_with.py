"""`compute_with`: two nests of one sequence share their outer loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...algo.errors import ScheduleError
from .names import index_of, suggest_from
from .nest import Leaf, Loop, Nest, Seq, Tree
from .primitive import Primitive
from .storage import place
from .tree import seq, steps_to, with_tree
from .validate import check_change


@dataclass(frozen=True)
class ComputeWith(Primitive):
    """Joins the outer loops of two nests, the second after the first, down to a loop.

        for y: for x: F(y,x)
        for y: for x: G(y,x)   ==>   for y: { for x: F(y,x); for x: G(y,x) }

    Both nests must have loops of these names (`y`, then `x`) from the outside. What stands between
    them then runs after both, or, where that cannot be, before them. Dependences are checked;
    nothing is recomputed.
    """

    called: ClassVar[str] = "compute_with"
    stage: str
    other: str
    loop: str

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.stage, self.other, self.loop), {}

    def legal(self, nest: Nest) -> None:
        check_change(nest, self.after(nest), self.who)

    def _parts(self, nest: Nest) -> tuple[Seq, int, int]:
        """The sequence in which both nests are, and their positions."""
        ways = [self._way(nest, stage) for stage in (self.stage, self.other)]
        for (node, m), (other, n) in zip(*ways, strict=False):
            if node is other and m == n:
                continue
            if node is other and isinstance(node, Seq) and n > m:
                return node, m, n
            break
        raise ScheduleError(
            f"{self.who}: the nest of {self.other} does not follow that of {self.stage}, in the "
            "same loops"
        )

    def _way(self, nest: Nest, stage: str) -> list[tuple[Loop | Seq, int]]:
        names = [s.name for s in nest.stmts.values() if stage in (s.buffer, s.instance[0])]
        way = steps_to(nest.tree, lambda node: isinstance(node, Leaf) and node.stmt in names)
        if not names or way is None:
            known = sorted({s.buffer for s in nest.stmts.values()})
            raise ScheduleError(
                f"{self.who}: there is no stage {stage}{suggest_from(stage, known)}"
            )
        return way

    def apply(self, nest: Nest) -> Nest:
        node, m, n = self._parts(nest)
        joined = _zipped(node.parts[m], node.parts[n], self.loop, self.who)
        before, between, after = node.parts[:m], node.parts[m + 1 : n], node.parts[n + 1 :]
        ways = [[joined, *between], [*between, joined]] if between else [[joined]]
        made = [
            with_tree(nest, _replaced(nest.tree, node, seq([*before, *way, *after])))
            for way in ways
        ]
        return next((new for new in made[:-1] if self._keeps(nest, new)), made[-1])

    def _keeps(self, nest: Nest, new: Nest) -> bool:
        """Are dependences kept?"""
        try:
            check_change(nest, place(new, nest), self.who)
        except ScheduleError:
            return False
        return True


def _zipped(a: Tree, b: Tree, last: str, who: str) -> Tree:
    """Two nests with their outer loops joined, down to the loop `last`."""
    if not (isinstance(a, Loop) and isinstance(b, Loop)) or index_of(a.name) != index_of(b.name):
        names = [f"loop {t.name}" if isinstance(t, Loop) else "a statement" for t in (a, b)]
        raise ScheduleError(
            f"{who}: {names[0]} and {names[1]} do not match; loops of one name are joined, from "
            f"the outside down to {last}"
        )
    if a.kind != b.kind:
        raise ScheduleError(f"{who}: loop {a.name} is {a.kind} and loop {b.name} is {b.kind}")
    if index_of(a.name) == index_of(last):
        body = seq([a.body, b.body])
    else:
        body = _zipped(a.body, b.body, last, who)
    extent = a.extent if a.extent == b.extent else None
    return replace(b, values={**a.values, **b.values}, body=body, extent=extent)


def _replaced(tree: Tree, old: Tree, new: Tree) -> Tree:
    if tree is old:
        return new
    match tree:
        case Seq(parts):
            return seq([_replaced(part, old, new) for part in parts])
        case Loop() as loop:
            return replace(loop, body=_replaced(loop.body, old, new))
    return tree
