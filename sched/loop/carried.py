"""Questions that primitives ask about dependences, and the refusals that answer them.

A refusal shows one pair of instances, the lexicographically first under the smallest sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.build import any_of
from ...algo.tensor_expr.expr import Access, Expr
from .dependences import Dependence, dependences, folding
from .names import index_of
from .nest import IN_ORDER, Loop, Nest, Stmt, leaves
from .order import other_iteration, relative, runs_before, same_iteration
from .relations import NO_FOLDS, differ, earlier, from_data, same_element, second
from .storage import in_coordinates, reads, repeats, touching
from .tree import around_loop, around_stmt, loops_around, loops_to, moved
from .witness import Pair, at, element, first_pair, instance, value


def check_order(before: Nest, after: Nest, who: str) -> None:
    """Raises unless every dependence still runs forwards; pairs whose order stayed are skipped."""
    changed = moved(before.tree, after.tree)
    for dep in dependences(after.kernel, changed):
        old = relative(before.tree, dep.src, dep.dst).signature(dep.src, dep.dst)
        new = relative(after.tree, dep.src, dep.dst).signature(dep.src, dep.dst)
        if old != new:
            check_dependence(after, dep, who)


def check_dependence(nest: Nest, dep: Dependence, who: str) -> None:
    """Raises unless the source runs before the destination, within one copy of the storage."""
    src, dst = nest.stmts[dep.src], nest.stmts[dep.dst]
    if dep.kind == "updates" and dep.turns is None and repeats(dst):
        return  # of several starts, the one of its own repetition matters: `check_repeated`
    # The reader is the first of the pair, so that the witness is the first reader that is wrong.
    order = relative(nest.tree, dst.name, src.name)
    wrong = [*same_element(dep.touched, dep.written, src.dims), *dep.guards]
    together = _storage_loops(nest, dep.tensor, order.loops)
    wrong += [same_iteration(loop, dst, src) for loop in together]
    if dep.turns is not None:
        wrong.append(_earlier(*dep.turns, src.dims))
    wrong.append(runs_before(order, dst, src, or_same=True))
    found = first_pair(dst, src, wrong, who)
    if found is not None:
        early = instance(dst, found.first, found.sizes)
        cell = element(dep.tensor, dep.touched, found.first, found.sizes)
        late = instance(src, found.second, found.sizes)
        does = "updates" if src.reducer else dep.first
        cause = "it is written" if late == cell else f"{late} {does} it"
        raise ScheduleError(f"{who}: {early} {dep.kind} {cell} before {cause}{at(dst)}")


def _earlier(src: Sequence[Expr], dst: Sequence[Expr], dims: tuple[str, ...]) -> Expr:
    """The condition that the turn of `src`, the second with these dims, is before that of `dst`."""
    return any_of(earlier([(second(a, dims), b) for a, b in zip(src, dst, strict=False)]))


def _storage_loops(nest: Nest, tensor: str, shared: tuple[Loop, ...]) -> list[Loop]:
    """The loops each of whose iterations has storage of its own for a tensor and its copies."""
    users = touching(nest, [n for n, buffer in nest.buffers.items() if buffer.tensor == tensor])
    depth = len(shared)
    for name, stmts in users.items():
        buffer = nest.buffers[name]
        if stmts:
            own = {loop.name for loop in loops_to(nest.tree, buffer.at)}
            depth = min(depth, sum(loop.name in own for loop in shared))
    return list(shared[:depth])


@dataclass(frozen=True)
class Touch:
    """One access of a statement to a buffer; `kind` is read, write, update or fold.

    A fold is the write of a statement that combines into cells and reads them itself.
    """

    stmt: Stmt
    cell: tuple[Expr, ...]
    kind: str
    guards: tuple[Expr, ...] = ()


def touches(nest: Nest, loop: Loop) -> Iterator[tuple[str, list[Touch]]]:
    """The accesses under a loop to each buffer that its iterations share."""
    within = [nest.stmts[name] for name in leaves(loop)]
    used = {name for stmt in within for name in (stmt.buffer, *(r.tensor for r in reads(stmt)))}
    folds = folding(nest.kernel)
    for name in nest.buffers:
        if name not in used or _private_to(nest, nest.buffers[name].at, loop):
            continue
        buffer = nest.buffers[name]
        found: list[Touch] = []
        for stmt in within:
            if stmt.buffer == buffer.name:
                plain = "fold" if stmt.name in folds else "write"
                found.append(Touch(stmt, stmt.lhs, "update" if stmt.reducer else plain))
            found += [
                Touch(stmt, r.indices, "read", r.guards)
                for r in reads(stmt)
                if r.tensor == buffer.name
            ]
        yield buffer.name, found


def _private_to(nest: Nest, at_loop: str | None, loop: Loop) -> bool:
    """Does a buffer that lives at `at_loop` exist once for every iteration of `loop`?"""
    return any(outer.name == loop.name for outer in loops_to(nest.tree, at_loop))


def conflict(nest: Nest, loop: Loop, skip: Callable[[Touch, Touch], bool], who: str) -> str | None:
    """One conflict between iterations of a loop that run at once, in words; None if there is none.

    Two accesses conflict where they touch one element and one of them writes it. `skip` says of
    which pairs this does not matter.
    """
    outer = around_loop(nest.tree, loop.name)
    for buffer, found in touches(nest, loop):
        folds = dict(nest.buffers[buffer].fold)
        both = [(a, b) for n, a in enumerate(found) for b in found[n:]]
        # One element first, for that is plainer than two elements in one place.
        for folded in (NO_FOLDS, folds) if folds else (NO_FOLDS,):
            for a, b in both:
                if a.kind == b.kind == "read" or skip(a, b):
                    continue
                wrong = [*same_element(a.cell, b.cell, b.stmt.dims, folded), *a.guards]
                wrong += [second(guard, b.stmt.dims) for guard in b.guards]
                wrong += [same_iteration(item, a.stmt, b.stmt) for item in outer]
                wrong.append(other_iteration(loop, a.stmt, b.stmt))
                pair = first_pair(a.stmt, b.stmt, wrong, who)
                if pair is not None:
                    return _sentence(nest.buffers[buffer].tensor, loop, a, b, pair)
    return None


def _sentence(tensor: str, loop: Loop, a: Touch, b: Touch, pair: Pair) -> str:
    index = index_of(loop.name)
    one = value(loop.values[a.stmt.name], pair.first, pair.sizes)
    two = value(loop.values[b.stmt.name], pair.second, pair.sizes)
    cell = element(tensor, a.cell, pair.first, pair.sizes)
    other = element(tensor, b.cell, pair.second, pair.sizes)
    if "?" in cell:
        cell = f"an element of {tensor}, chosen by data,"
    elif other != cell and "?" not in other:
        cell = f"the place of {cell} and {other}"
    verb = {"write": "written", "update": "updated", "fold": "updated", "read": "read"}
    if a.kind == b.kind:
        return f"{cell} is {verb[a.kind]} by {index}={one} and by {index}={two}{at(a.stmt)}"
    return (
        f"{cell} is {verb[a.kind]} by {index}={one} and {verb[b.kind]} by {index}={two}{at(b.stmt)}"
    )


def atomic(a: Touch, b: Touch) -> bool:
    """Are both atomic updates by one reducer, so that they may run at once?"""
    updates = a.kind == b.kind == "update" and a.stmt.atomic and b.stmt.atomic
    return updates and a.stmt.reducer == b.stmt.reducer


def meets(nest: Nest, stmt: Stmt) -> bool:
    """May iterations that run at once meet on an element by this atomic update?"""

    def other(a: Touch, b: Touch) -> bool:
        return stmt not in (a.stmt, b.stmt) or not atomic(a, b)

    def found(loop: Loop) -> bool:
        try:
            return conflict(nest, loop, other, stmt.name) is not None
        except ScheduleError:  # it could not be proved
            return True

    around = around_stmt(nest.tree, stmt.name) if stmt.atomic else []
    return any(found(loop) for loop in around if loop.kind not in (*IN_ORDER, "vector"))


def check_concurrent(nest: Nest, loop: Loop, who: str) -> None:
    """Raises unless the iterations of a loop may run at once, in any order."""
    found = conflict(nest, loop, atomic, who)
    if found is not None:
        raise ScheduleError(f"{who}: {found}; {_remedy(nest, loop, found, who)}")


def _remedy(nest: Nest, loop: Loop, found: str, who: str) -> str:
    able = (item for item in _candidates(nest, loop) if _is_free(nest, item, who))
    free = list(dict.fromkeys(index_of(item.name) for item in able))
    verb = who.partition("(")[0]
    if loop.kind != "serial":
        return f"loop {loop.name} is {loop.kind}: its iterations run at once"
    instead = f"{verb} on {' or '.join(free)}" if free else ""
    if _folds_over(nest, loop):
        rfactor = f"use rfactor({index_of(loop.name)})"
        return f"{rfactor}, or {instead}" if instead else rfactor
    if "updated by" in found and "and by" in found and not _combines(nest, loop):
        index = index_of(loop.name)
        ways = f"use rfactor({index})"
        if "chosen by data" in found:
            private = f"privatize({index}, copies=8) or " if verb == "parallel" else ""
            ways = f"use {private}atomic({index})"
        return f"{ways}, or {instead}" if instead else ways
    return f"use {instead}" if instead else "run the loop in order"


def _combines(nest: Nest, loop: Loop) -> bool:
    """Does a loop combine partial results, of which rfactor would make partial results again?"""
    updates = [nest.stmts[name] for name in leaves(loop) if nest.stmts[name].reducer is not None]
    return all(
        isinstance(stmt.value, Access)
        and stmt.value.tensor.startswith(f"{stmt.name.removesuffix('.update')}.rf")
        for stmt in updates
    )


def _folds_over(nest: Nest, loop: Loop) -> bool:
    """Does a statement under the loop combine what its iterations give, in order?"""
    names = set(leaves(loop)) & folding(nest.kernel)
    stmts = [nest.stmts[name] for name in names]
    return any(in_coordinates(loop.values[s.name], s.lhs, s) is None for s in stmts)


def _candidates(nest: Nest, loop: Loop) -> list[Loop]:
    """The serial loops of the same nest: those around the deepest statement under the loop."""
    chains = [around_stmt(nest.tree, stmt) for stmt in leaves(loop)]
    chain = max(chains, key=len)
    return [item for item in chain if item is not loop and item.kind == "serial"]


def _is_free(nest: Nest, loop: Loop, who: str) -> bool:
    try:
        return conflict(nest, loop, atomic, who) is None
    except ScheduleError:
        return False


def check_lanes(nest: Nest, loop: Loop, who: str) -> None:
    """Raises unless the iterations of a loop may run in lanes.

    An accumulation whose element is the same in all lanes is allowed: lanes are combined in the
    end, for reducers are commutative.
    """

    def horizontal(a: Touch, b: Touch) -> bool:
        return atomic(a, b) or (
            a.kind == b.kind == "update" and a.stmt is b.stmt and _one_element(nest, loop, a, who)
        )

    found = conflict(nest, loop, horizontal, who)
    if found is not None:
        raise ScheduleError(f"{who}: {found}; {_remedy(nest, loop, found, who)}")


def check_marks(nest: Nest, who: str, changed: Collection[str]) -> None:
    """Raises unless every loop that is marked so may run its iterations at once.

    Loops that use none of the buffers `changed` are not looked at.
    """
    users = {name for stmts in touching(nest, changed).values() for name in stmts}
    for loop in loops_around(nest.tree, users):
        if loop.kind == "vector":
            check_lanes(nest, loop, who)
        elif loop.kind not in IN_ORDER:
            check_concurrent(nest, loop, who)


def _one_element(nest: Nest, loop: Loop, touch: Touch, who: str) -> bool:
    """Do all lanes that differ in nothing else accumulate into one element?"""
    if any(map(from_data, touch.cell)):
        return False
    stmt = touch.stmt
    around = around_stmt(nest.tree, stmt.name)
    other = [same_iteration(item, stmt, stmt) for item in around if item is not loop]
    return first_pair(stmt, stmt, [*other, differ(touch.cell, stmt.dims)], who) is None
