"""Where buffers live: each under the deepest loop around all its accesses that its values allow.

A temporary that is written and read within one iteration of a loop needs storage for what that
iteration touches only: the accumulator of a reduction is one element. Which values cross
iterations is decided by the accesses as they are written: the loop's value must follow from the
element's coordinates, in the same way for every access, or be a repetition of the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from ...algo.remembered import remembered
from ...algo.tensor_expr.expr import Expr, Index, accesses, indices_of, substitute
from ...algo.tensor_expr.op import Kernel
from .nest import Buffer, Loop, Nest, Stmt
from .reads import Read, reads_in
from .tree import around_stmt, common_loops, moved


def touching(nest: Nest, buffers: Collection[str] | None = None) -> dict[str, list[str]]:
    """The statements that read or write each buffer (or each of `buffers`), in the order of the
    nest."""
    users = _users(nest.stmts)
    return {name: users.get(name, []) for name in (nest.buffers if buffers is None else buffers)}


@remembered(16)
def _users(stmts: Mapping[str, Stmt]) -> Mapping[str, list[str]]:
    """The statements that read or write each buffer."""
    found: dict[str, list[str]] = {}
    for name, stmt in stmts.items():
        for buffer in dict.fromkeys((stmt.buffer, *_accesses(stmt))):
            found.setdefault(buffer, []).append(name)
    return found


def cells(stmt: Stmt, buffer: str) -> Iterator[tuple[Expr, ...]]:
    """The coordinates at which a statement touches a buffer: written first, then read."""
    if stmt.buffer == buffer:
        yield stmt.lhs
    yield from _accesses(stmt).get(buffer, ())


def _accesses(stmt: Stmt) -> Mapping[str, list[tuple[Expr, ...]]]:
    """What a statement reads, by buffer."""
    return _accesses_in((stmt.value, *stmt.lhs))


@lru_cache(maxsize=4096)
def _accesses_in(exprs: tuple[Expr, ...]) -> Mapping[str, list[tuple[Expr, ...]]]:
    """What expressions read, by tensor."""
    found: dict[str, list[tuple[Expr, ...]]] = {}
    for expr in exprs:
        for item in accesses(expr):
            found.setdefault(item.tensor, []).append(item.indices)
    return found


def reads(stmt: Stmt) -> tuple[Read, ...]:
    """Everything that a statement reads, except the accumulation into its own element."""
    return reads_in((stmt.value, *stmt.lhs))


def accumulators(nest: Nest, tensor: str) -> list[str]:
    """The temporaries in which the reductions that give a tensor accumulate: `C.acc`, `C.1.acc`."""
    stems = [s.name.removesuffix(".final") for s in nest.kernel.stages if s.tensor == tensor]
    return [name for name in nest.buffers if name in {f"{stem}.acc" for stem in stems}]


def family(nest: Nest, tensor: str) -> list[str]:
    """The tensor, and the temporaries in which what it is reduced from is accumulated.

    Those are the accumulators and, after rfactor, the partial results: `C.acc`, `C.rf`.
    """
    found = [tensor, *accumulators(nest, tensor)]
    for name in found:
        for stage in nest.kernel.stages:
            if stage.tensor == name and stage.reducer is not None:
                stem = stage.name.removesuffix(".update")
                combined = (a.tensor for a in accesses(stage.value))
                found += [t for t in combined if t.startswith(f"{stem}.rf") and t not in found]
    return found


def place(nest: Nest, before: Nest | None = None) -> Nest:
    """The nest with `at` of every buffer brought up to date with the tree.

    `before` is a nest that was so already and of which this one was made: buffers whose accesses
    stand under the same loops as there stay where they are.
    """
    users = touching(nest, displaced(before, nest))
    computed = _computed(nest.kernel)
    found: dict[str, Buffer] = {}
    for name, stmts in users.items():
        buffer = nest.buffers[name]
        if buffer.scope == "param":
            continue
        around = common_loops([around_stmt(nest.tree, stmt) for stmt in stmts])
        if buffer.pinned:
            around = _down_to(around, buffer.at)
        else:
            anew = not computed.get(name, set()).isdisjoint(stmts)
            around = _private(nest, name, stmts, around, anew)
        at = around[-1].name if around else None
        if buffer.at != at:
            found[name] = replace(buffer, at=at)
    return replace(nest, buffers={**nest.buffers, **found}) if found else nest


@remembered(16)
def _computed(kernel: Kernel) -> Mapping[str, set[str]]:
    """The stages that compute each tensor."""
    found: dict[str, set[str]] = {}
    for stage in kernel.stages:
        found.setdefault(stage.tensor, set()).add(stage.name)
    return found


def displaced(before: Nest | None, nest: Nest) -> Collection[str]:
    """The buffers whose place or values may be others than in a nest of which this one was made."""
    if before is None or before.kernel is not nest.kernel:
        return nest.buffers
    old, new = before.stmts, nest.stmts
    names = moved(before.tree, nest.tree)
    if old is not new:
        names |= {name for name in {**old, **new} if old.get(name) is not new.get(name)}
    changed = [stmts[name] for stmts in (old, new) for name in names if name in stmts]
    found = {buffer for stmt in changed for buffer in (stmt.buffer, *_accesses(stmt))}
    was, now = before.buffers, nest.buffers
    if was is not now:
        found |= {name for name, item in now.items() if was.get(name) is not item}
    return found & now.keys()


def rehomed(nest: Nest, homes: Mapping[str, str | None]) -> Nest:
    """The nest with buffers of loops that have become others under those: `yo` became `yoi`."""
    found = {
        name: replace(buffer, at=homes[buffer.at])
        for name, buffer in nest.buffers.items()
        if buffer.at is not None and buffer.at in homes
    }
    return replace(nest, buffers={**nest.buffers, **found}) if found else nest


def _down_to(around: list[Loop], at: str | None) -> list[Loop]:
    """The loops around down to the one where a primitive put a buffer, as far as it is there."""
    if at is None:
        return []
    depth = next((n for n, loop in enumerate(around) if loop.name == at), len(around) - 1)
    return around[: depth + 1]


def _private(
    nest: Nest, buffer: str, stmts: list[str], around: list[Loop], anew: bool
) -> list[Loop]:
    """The outermost of the loops `around` whose iterations share no element of the buffer.

    What is computed `anew` in every repetition is not shared by them; what copies bring back is.
    """
    for depth, loop in enumerate(around):
        seen: set[Expr] = set()
        for name in stmts:
            for cell in cells(nest.stmts[name], buffer):
                told = in_coordinates if anew else by_coordinates
                value = told(loop.values[name], cell, nest.stmts[name])
                if value is None:
                    return around[:depth]
                seen.add(value)
        if len(seen) > 1:
            return around[:depth]
    return around


def in_coordinates(value: Expr, cell: tuple[Expr, ...], stmt: Stmt) -> Expr | None:
    """A loop's value as an expression of the element's coordinates, if they determine it.

    A dim that only says by which outer iteration the statement is repeated may stay in it.
    """
    return _in_coordinates(value, cell, stmt.dims[: repeats(stmt)])


def by_coordinates(value: Expr, cell: tuple[Expr, ...], stmt: Stmt) -> Expr | None:
    """The same, for a loop by which the element is not repeated."""
    return _in_coordinates(value, cell, ())


@lru_cache(maxsize=1 << 14)
def _in_coordinates(value: Expr, cell: tuple[Expr, ...], repeated: tuple[str, ...]) -> Expr | None:
    names: dict[Expr, Expr] = {}
    for n, coordinate in enumerate(cell):
        if isinstance(coordinate, Index):
            names.setdefault(coordinate, Index(f"d{n}"))
    needed = [index for index in indices_of(value) if index not in repeated]
    if any(Index(index) not in names for index in needed):
        return None
    return substitute(value, names)


def repeats(stmt: Stmt) -> int:
    """How many of a statement's leading dims only say by which outer iteration it is repeated."""
    return _repeats(stmt.dims, stmt.instance[1])


@lru_cache(maxsize=4096)
def _repeats(dims: tuple[str, ...], indices: tuple[Expr, ...]) -> int:
    used = {index for expr in indices for index in indices_of(expr)}
    return next((n for n, dim in enumerate(dims) if dim in used), len(dims))
