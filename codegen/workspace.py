"""How much memory a kernel's caller provides for the kernel's heap buffers.

Buffers whose lives nest lie one behind the other, those whose lives follow one another on top of
each other, as emission does it. What is allocated inside a parallel loop exists once a thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..lower.ir import Alloc, Buffer, For, Function, Stmt, children, walk
from .target import Target

ALIGN = 64
PADDING = 64  # elements behind every buffer: a whole vector may be read at its end


@dataclass(frozen=True, slots=True)
class Workspace:
    """`kernel` bytes, then `thread` bytes for each thread."""

    kernel: int
    thread: int

    def bytes(self, threads: int) -> int:
        """The size for that many threads."""
        return self.kernel + threads * self.thread


def workspace(function: Function, target: Target) -> Workspace:
    """Measures the function's heap buffers."""
    peak = [0, 0]  # kernel, thread

    def visit(stmt: Stmt, used: int, part: int, lanes: int) -> None:
        match stmt:
            case For():
                outlined = stmt.kind == "parallel" and target.parallel and part == 0
                inside = stmt.lanes if stmt.kind == "vector" else lanes
                visit(stmt.body, 0 if outlined else used, 1 if outlined else part, inside)
            case Alloc(buffer, body):
                size = size_in_bytes(buffer, lanes)
                if target.in_workspace(buffer, size):
                    used += size
                    peak[part] = max(peak[part], used)
                visit(body, used, part, lanes)
            case _:
                for inner in children(stmt):
                    visit(inner, used, part, lanes)

    visit(function.body, 0, 0, 1)
    return Workspace(peak[0], peak[1])


def size_in_bytes(buffer: Buffer, lanes: int) -> int:
    """The memory of a buffer with one copy a lane, padded and rounded up to the alignment."""
    size = (cells(buffer) * lanes + PADDING) * buffer.dtype.itemsize
    return -(-size // ALIGN) * ALIGN


def cells(buffer: Buffer) -> int:
    """The number of elements from the first to the last, gaps included."""
    return 1 + sum((n - 1) * s for n, s in zip(buffer.shape, buffer.strides, strict=True))


def buffer_names(function: Function) -> list[str]:
    """Every buffer of the function: parameters, then allocations in order."""
    names = [p.name for p in function.params]
    names += [stmt.buffer.name for stmt in walk(function.body) if isinstance(stmt, Alloc)]
    return list(dict.fromkeys(names))
