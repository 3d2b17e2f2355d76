"""`reorder`: loops of one nest in another order, with what lies between them distributed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...algo.errors import ScheduleError
from .names import find_loop, index_of, unlike
from .nest import Loop, Nest, Seq, Tree, leaves, loops
from .primitive import Primitive
from .tree import edit, seq, way_to_loop, with_tree, wrap
from .validate import check_change


@dataclass(frozen=True)
class Reorder(Primitive):
    """Puts loops of one nest in the given order, outermost first.

        for ii: for ji: { C.init; for k: C.update }
            ==>   for C.init.ii: for C.init.ji: C.init
                  for k: for ii: for ji: C.update

    The named loops take each other's places; loops that are not named keep theirs. What lies
    between the loops (a reduction's init and final) stays under those of its loops that are
    outermost afterwards, and gets copies of the others (`C.init.ii`): it is distributed.
    """

    called: ClassVar[str] = "reorder"
    order: tuple[str, ...]

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.order, {}

    def legal(self, nest: Nest) -> None:
        if len(self.order) < 2:
            raise ScheduleError(f"{self.who}: expected at least two loops, outermost first")
        named = [find_loop(nest, name, self.who) for name in self.order]
        for n, loop in enumerate(named):
            if any(loop is other for other in named[:n]):
                raise ScheduleError(f"{self.who}: loop {loop.name} is named twice")
        chain, _ = self._chain(nest, named)
        missing = next((loop for loop in named if all(loop is not item for item in chain)), None)
        if missing is not None:
            deepest = chain[-1].name
            raise ScheduleError(
                f"{self.who}: loops {missing.name} and {deepest} are not nested in each other; "
                f"{deepest} lies under {', '.join(loop.name for loop in chain[:-1]) or 'no loop'}"
            )
        for loop in named:
            if loop.kind != "serial":
                raise ScheduleError(
                    f"{self.who}: loop {loop.name} is {loop.kind}; reorder before marking loops"
                )
        check_change(nest, self.after(nest), self.who)

    def _chain(self, nest: Nest, named: list[Loop]) -> tuple[list[Loop], dict[int, Seq]]:
        """The loops down to the deepest named one, and the sequences below the n-th of them."""
        ways = [way_to_loop(nest.tree, loop.name) for loop in named]
        deepest = max(range(len(named)), key=lambda n: len(ways[n]))
        chain: list[Loop] = []
        between: dict[int, Seq] = {}
        for node, _ in ways[deepest]:
            if isinstance(node, Loop):
                chain.append(node)
            else:
                between[len(chain)] = node
        return [*chain, named[deepest]], between

    def apply(self, nest: Nest) -> Nest:
        named = [find_loop(nest, name, self.who) for name in self.order]
        chain, between = self._chain(nest, named)
        queue = iter(named)
        new = [next(queue) if any(loop is n for n in named) else loop for loop in chain]
        first = next((n for n, loop in enumerate(new) if loop is not chain[n]), len(chain))
        if first == len(chain):
            return nest
        rebuilt = self._rebuild(nest, chain, new, between, first)
        return with_tree(nest, edit(nest.tree, {chain[first].name: lambda _: rebuilt}))

    def _rebuild(
        self, nest: Nest, chain: list[Loop], new: list[Loop], between: dict[int, Seq], first: int
    ) -> Tree:
        """What replaces the loop at depth `first`, the outermost whose place changes.

        What lies beside the chain under some of its loops goes back to the depth down to which
        the loops are among those, and gets copies of the rest.
        """
        taken = {loop.name for loop in loops(nest.tree)}
        before: dict[int, list[Tree]] = {}
        behind: dict[int, list[Tree]] = {}
        for depth, node in between.items():
            if depth <= first:
                continue
            own = {loop.name for loop in chain[:depth]}
            shared = next((n for n, loop in enumerate(new) if loop.name not in own), len(new))
            copied = [loop for loop in new[shared:] if loop.name in own]
            at = next(n for n, part in enumerate(node.parts) if part is chain[depth])
            ahead, after = (
                [_distributed(part, copied, taken) for part in parts]
                for parts in (node.parts[:at], node.parts[at + 1 :])
            )
            before.setdefault(shared, []).extend(ahead)
            behind[shared] = after + behind.get(shared, [])
        body = chain[-1].body
        for depth in range(len(new), first - 1, -1):
            body = seq([*before.get(depth, []), body, *behind.get(depth, [])])
            if depth > first:
                body = wrap(body, [new[depth - 1]])
        return body


def _distributed(part: Tree, loops: list[Loop], taken: set[str]) -> Tree:
    """A part with copies of loops around it, named after its first statement: `C.init.ii`."""
    stage = next(leaves(part))
    copies: list[Loop] = []
    for loop in loops:
        name = unlike(f"{stage}.{index_of(loop.name)}", taken)
        taken.add(name)
        copies.append(replace(loop, name=name))
    return wrap(part, copies)
