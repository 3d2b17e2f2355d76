"""Where heap buffers lie in the memory that a kernel's caller provides.

Every buffer has a place of its own, since LLVM is told that different buffers never overlap; the
copies that unrolling made of one share a name and a place. What is allocated inside a parallel
loop exists once a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..lower.ir import Alloc, Buffer, For, Function, Stmt, children, reach, walk
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
                part = 1 if stmt.kind == "parallel" and target.parallel else part
                lanes = stmt.lanes if stmt.kind == "vector" else lanes
            case Alloc(buffer, _):
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


def buffer_names(function: Function) -> list[str]:
    """Every buffer of the function: parameters, then allocations in order."""
    names = [p.name for p in function.params]
    names += [stmt.buffer.name for stmt in walk(function.body) if isinstance(stmt, Alloc)]
    return list(dict.fromkeys(names))
