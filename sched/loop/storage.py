"""Where buffers live: each under the deepest loop around all its accesses that its values allow.

A temporary that is written and read within one iteration of a loop needs storage for what that
iteration touches only: the accumulator of a reduction is one element. Which values cross
iterations is decided by the accesses as they are written: the loop's value must follow from the
element's coordinates, in the same way for every access, or be a repetition of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...algo.tensor_expr.expr import Expr, Index, accesses, indices_of, substitute
from .nest import Loop, Nest, Stmt
from .reads import Read, reads_in
from .tree import common_loops


def touching(nest: Nest, buffer: str) -> list[str]:
    """The statements that read or write a buffer, in tree order of the mapping."""
    return [name for name, stmt in nest.stmts.items() if any(cells(stmt, buffer))]


def cells(stmt: Stmt, buffer: str) -> Iterator[tuple[Expr, ...]]:
    """The coordinates at which a statement touches a buffer: written first, then read."""
    if stmt.buffer == buffer:
        yield stmt.lhs
    for expr in (stmt.value, *stmt.lhs):
        for item in accesses(expr):
            if item.tensor == buffer:
                yield item.indices


def reads(stmt: Stmt) -> tuple[Read, ...]:
    """Everything that a statement reads, except the accumulation into its own element."""
    return reads_in((stmt.value, *stmt.lhs))


def accumulators(nest: Nest, tensor: str) -> list[str]:
    """The temporaries in which the reductions that give a tensor accumulate: `C.acc`, `C.1.acc`."""
    stems = [s.name.removesuffix(".final") for s in nest.kernel.stages if s.tensor == tensor]
    return [name for name in nest.buffers if name in {f"{stem}.acc" for stem in stems}]


def place(nest: Nest) -> Nest:
    """The nest with `at` of every buffer brought up to date with the tree."""
    buffers = {}
    for name, buffer in nest.buffers.items():
        if buffer.scope != "param":
            stmts = touching(nest, name)
            around = common_loops(nest.tree, stmts) if stmts else []
            if not buffer.pinned:
                around = _private(nest, name, stmts, around)
            at = around[-1].name if around else None
            buffer = buffer if buffer.at == at else replace(buffer, at=at)
        buffers[name] = buffer
    return replace(nest, buffers=buffers)


def _private(nest: Nest, buffer: str, stmts: list[str], around: list[Loop]) -> list[Loop]:
    """The outermost of the loops `around` whose iterations share no element of the buffer."""
    for depth, loop in enumerate(around):
        seen: set[Expr] = set()
        for name in stmts:
            for cell in cells(nest.stmts[name], buffer):
                value = in_coordinates(loop.values[name], cell, nest.stmts[name])
                if value is None:
                    return around[:depth]
                seen.add(value)
        if len(seen) > 1:
            return around[:depth]
    return around


def in_coordinates(value: Expr, cell: tuple[Expr, ...], stmt: Stmt) -> Expr | None:
    """A loop's value as an expression of the element's coordinates, if they determine it."""
    names: dict[Expr, Expr] = {}
    for n, coordinate in enumerate(cell):
        if isinstance(coordinate, Index):
            names.setdefault(coordinate, Index(f"d{n}"))
    repeated = set(stmt.dims[: repeats(stmt)])
    needed = [index for index in indices_of(value) if index not in repeated]
    if any(Index(index) not in names for index in needed):
        return None
    return substitute(value, names)


def repeats(stmt: Stmt) -> int:
    """How many of a statement's leading dims only say by which outer iteration it is repeated."""
    used = {index for expr in stmt.instance[1] for index in indices_of(expr)}
    count = 0
    while count < len(stmt.dims) and stmt.dims[count] not in used:
        count += 1
    return count
