"""Where heap buffers lie in the memory that a kernel's caller provides.

Every buffer has a place of its own, since LLVM is told that different buffers never overlap; the
copies that unrolling made of one share a name and a place. What is allocated inside a parallel
loop exists once a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..algo.tensor_expr.expr import accesses
from ..lower.ir import (
    Alloc,
    Buffer,
    For,
    Function,
    Stmt,
    Store,
    Update,
    allocated,
    children,
    expressions,
    reach,
    walk,
)
from ..sched.loop.nest import PARALLEL
from .target import Target

ALIGN = 64
PADDING = 64  # elements behind every buffer: a whole vector may be read at its end


@dataclass(frozen=True, slots=True)
class Workspace:
    """Offsets in bytes: of the kernel's buffers, and of each thread's in its part behind those."""

    offsets: tuple[Mapping[str, int], Mapping[str, int]]
    kernel: int
    thread: int

    def bytes(self, threads: int) -> int:
        """The size for that many threads."""
        return self.kernel + threads * self.thread


def workspace(function: Function, target: Target) -> Workspace:
    """Lays out the function's heap buffers."""
    sizes: tuple[dict[str, int], dict[str, int]] = ({}, {})  # of the kernel, of a thread

    def visit(stmt: Stmt, part: int, lanes: int) -> None:
        match stmt:
            case For():
                part = 1 if stmt.kind in PARALLEL and target.parallel else part
                lanes = stmt.lanes if stmt.kind == "vector" else lanes
            case Alloc(buffers, _):
                for buffer in buffers:
                    size = size_in_bytes(buffer, lanes)
                    if target.in_workspace(buffer, size):
                        sizes[part][buffer.name] = max(size, sizes[part].get(buffer.name, 0))
        for inner in children(stmt):
            visit(inner, part, lanes)

    visit(function.body, 0, 1)
    kernel, thread = (_placed(part) for part in sizes)
    return Workspace((kernel[0], thread[0]), kernel[1], thread[1])


def _placed(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    offsets, total = {}, 0
    for name, size in sizes.items():
        offsets[name] = total
        total += size
    return offsets, total


def size_in_bytes(buffer: Buffer, lanes: int) -> int:
    """The memory of a buffer with one copy a lane, padded and rounded up to the alignment.

    Places are aligned to `ALIGN`; one that must be more finds its start within what it has.
    """
    size = (cells(buffer) * lanes + PADDING) * buffer.dtype.itemsize
    return -(-size // ALIGN) * ALIGN + max(0, buffer.align - ALIGN)


def cells(buffer: Buffer) -> int:
    """The number of elements from the first to the last, gaps included."""
    return 1 + reach(buffer)


def neighbours(function: Function) -> dict[str, dict[str, None]]:
    """For every buffer, parameters first, those that some nest of loops accesses as well as it.

    That is all that LLVM need know of: how thousands of buffers lie in nests after one another
    changes nothing there.
    """
    names = [b.name for b in (*function.params, *allocated(function.body))]
    found: dict[str, dict[str, None]] = {name: {} for name in names}
    for nest in _nests(function.body):
        used: dict[str, None] = {}
        for stmt in walk(nest):
            if isinstance(stmt, (Store, Update)):
                used.setdefault(stmt.buffer)
            used.update((a.tensor, None) for e in expressions(stmt) for a in accesses(e))
        for name in used:
            found[name] |= used
    return found


def _nests(stmt: Stmt) -> Iterator[Stmt]:
    """The outermost loops, and the statements in none."""
    stack = [stmt]
    while stack:
        item = stack.pop()
        inner = () if isinstance(item, For) else children(item)
        if not inner:
            yield item
        stack.extend(reversed(inner))
