"""`prefetch`: what an iteration further on will read is brought into the cache now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...algo.errors import ScheduleError
from .names import find_loop, where
from .nest import Loop, Nest, leaves
from .primitive import Primitive
from .storage import reads
from .tree import edit, with_tree


@dataclass(frozen=True)
class Prefetch(Primitive):
    """Prefetches the elements of `tensor` that the iteration `distance` further on reads.

        for k: for j: C[j] += A[k] * B[k,j]
            ==>   for k: for j: prefetch B[min(k + distance, K - 1),j]; C[j] += A[k] * B[k,j]

    Beyond the last iteration it is that of the last one, so a prefetch touches nothing foreign; it
    never faults. In an innermost loop through neighbouring elements there is one a cache line.
    `tensor` is an argument, or a temporary on the heap. On GPUs a prefetch does nothing.
    """

    called: ClassVar[str] = "prefetch"
    tensor: str
    loop: str
    distance: int

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.tensor, self.loop, self.distance), {}

    def legal(self, nest: Nest) -> None:
        if self.distance < 1:
            raise ScheduleError(
                f"{self.who}: expected a distance of at least 1 iteration, got {self.distance}"
            )
        loop = find_loop(nest, self.loop, self.who)
        read = {r.tensor for name in leaves(loop) for r in reads(nest.stmts[name])}
        if self.tensor not in read:
            listed = ", ".join(sorted(read)) or "none"
            raise ScheduleError(
                f"{self.who}: {self.tensor} is not read under loop {loop.name}{where(nest, loop)}; "
                f"read are {listed}"
            )
        scope = nest.buffers[self.tensor].scope
        if scope not in ("param", "heap"):
            raise ScheduleError(
                f"{self.who}: {self.tensor} is a {scope} buffer, which is near already; prefetch "
                "arguments, or temporaries on the heap"
            )
        if any(name == self.tensor for name, _ in loop.ahead):
            raise ScheduleError(f"{self.who}: loop {loop.name} prefetches {self.tensor} already")

    def apply(self, nest: Nest) -> Nest:
        def mark(loop: Loop) -> Loop:
            return replace(loop, ahead=(*loop.ahead, (self.tensor, self.distance)))

        loop = find_loop(nest, self.loop, self.who)
        return with_tree(nest, edit(nest.tree, {loop.name: mark}))
