"""What a stage computes at its new place: its instances, and the values of the loops around it.

In each loop around, a statement is either repeated for what an iteration needs of it (and gets a
dimension that says by which), or run once, in the first iteration that needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ...algo import isl
from ...algo.errors import ScheduleError
from ...algo.tensor_expr.affine import normalize
from ...algo.tensor_expr.build import compare, const, sub
from ...algo.tensor_expr.expr import Const, Expr, Index, Size, indices_of, sizes_of, substitute
from ...algo.tensor_expr.points import points
from .extent import stays_within
from .flow import is_copy
from .moments import Tie, moment
from .names import index_of, where
from .nest import PARALLEL, Loop, Nest, Stmt, leaves
from .regions import region
from .relations import agree, differ, primed, same_element, second, sizes_in, symbols
from .storage import by_coordinates, cells, family, in_coordinates, repeats
from .witness import at


@dataclass(frozen=True)
class Placed:
    """Statements as they are at their new place, and all loops around them."""

    stmts: Mapping[str, Stmt]
    around: tuple[Loop, ...]


def group_of(nest: Nest, stage: str, who: str) -> list[Stmt]:
    """The statements that compute a tensor and what it is reduced from, in program order."""
    wanted = family(nest, stage)
    for stmt in nest.stmts.values():
        apart = stmt.buffer not in wanted and nest.buffers[stmt.buffer].tensor in wanted
        if apart and not is_copy(nest, stmt):
            raise ScheduleError(
                f"{who}: {stmt.name}{at(stmt)} writes to {stmt.buffer}, where "
                f"{nest.buffers[stmt.buffer].tensor} is staged; {who.partition('(')[0]} before "
                "stage"
            )
    return [stmt for stmt in nest.stmts.values() if stmt.buffer in wanted]


def needed(
    nest: Nest,
    group: Sequence[Stmt],
    around: Sequence[Loop],
    dims: Mapping[str, str],
    kept: Collection[str],
    who: str,
    *,
    whole: bool = False,
) -> Placed:
    """The statements of `group` for what is needed under the last of the loops `around`.

    Backwards: what is needed of an accumulator follows from what the final stage computes. `dims`
    names a dim for each loop by which statements are repeated; loops `kept` do not repeat them, for
    the values are kept over their iterations. All instances stay if `whole`, else those whose
    elements are needed.
    """
    moved = {stmt.name for stmt in group}
    users = [nest.stmts[name] for name in leaves(around[-1]) if name not in moved]
    levels = list(around)
    made: dict[str, Stmt] = {}
    for stmt in reversed(group):
        base, free = _unrepeated(stmt, levels, kept)
        values = {
            loop.name: loop.values.get(stmt.name, Index(dims[loop.name]))
            for loop in levels
            if loop not in free
        }
        fixed = [loop for loop in levels if loop not in free]
        if not whole:
            outer = [loop for loop in fixed if loop.name not in kept]
            _check_whole(base, outer, who)
            base = _restricted(nest, base, users, outer, dims, values, who)
        ties = [Tie(base.lhs, user, cell) for user in users for cell in cells(user, base.buffer)]
        if not ties:
            raise ScheduleError(
                f"{who}: nothing under loop {around[-1].name} reads {base.buffer}{at(base)}"
            )
        values |= _moments(base, ties, [(values[x.name], x) for x in fixed], free, who)
        base = _with_sizes(base, values)
        levels = [_valued(nest, loop, base, values[loop.name], who) for loop in levels]
        users.append(base)
        made[base.name] = base
    return Placed(made, tuple(levels))


def once(
    nest: Nest, stmt: Stmt, ties: Sequence[Tie], around: Sequence[Loop], who: str, *, last: bool
) -> Placed:
    """A statement whose instances run once, in the first or last iteration that has a tied one."""
    fixed = [(loop.values[stmt.name], loop) for loop in around if stmt.name in loop.values]
    free = [loop for loop in around if stmt.name not in loop.values]
    values = _moments(stmt, ties, fixed, free, who, last=last)
    stmt = _with_sizes(stmt, values)
    levels = (
        _valued(nest, loop, stmt, values[loop.name], who) if loop.name in values else loop
        for loop in around
    )
    return Placed({stmt.name: stmt}, tuple(levels))


def _moments(
    stmt: Stmt,
    ties: Sequence[Tie],
    fixed: Sequence[tuple[Expr, Loop]],
    free: Sequence[Loop],
    who: str,
    *,
    last: bool = False,
) -> dict[str, Expr]:
    """The values of the free loops, by name: those that the element determines as they are."""
    known = {loop.name: _by_element(ties, loop) for loop in free}
    told = [(value, loop) for loop in free if (value := known[loop.name]) is not None]
    free = [loop for loop in free if known[loop.name] is None]
    found = moment(stmt, ties, [*fixed, *told], free, who, last=last)
    if found is None:
        which, needs = ("last", "gives what is read by") if last else ("first", "needs")
        raise ScheduleError(
            f"{who}: which iteration of {_listed(free)} {needs} an element of {stmt.buffer} "
            f"{which} is no one expression of its indices{at(stmt)}"
        )
    values = {loop.name: value for value, loop in told}
    return values | {loop.name: value for loop, value in zip(free, found, strict=True)}


def _by_element(ties: Sequence[Tie], loop: Loop) -> Expr | None:
    """The loop's value by the element, if it is the same for all that touch it."""
    seen: set[Expr | None] = set()
    for tie in ties:
        value = by_coordinates(loop.values[tie.other.name], tie.theirs, tie.other)
        names: dict[Expr, Expr] = {Index(f"d{n}"): part for n, part in enumerate(tie.cell)}
        seen.add(None if value is None else substitute(value, names))
    return seen.pop() if len(seen) == 1 else None


def _with_sizes(stmt: Stmt, values: Mapping[str, Expr]) -> Stmt:
    """The statement, with sizes that only its loops mention said to be what moments take them
    for: at least 1. (The last block of K is K-1 // 8.)"""
    new = set(sizes_of(values.values())) - set(symbols(stmt))
    known = tuple(compare("le", const(1), Size(size)) for size in sorted(new))
    return replace(stmt, domain=(*stmt.domain, *known)) if known else stmt


def _unrepeated(
    stmt: Stmt, around: Sequence[Loop], kept: Collection[str]
) -> tuple[Stmt, list[Loop]]:
    """The statement without the dims by which loops `kept` repeat it, and those of these loops
    whose values it does not determine itself."""
    own = set(stmt.dims[: repeats(stmt)])
    free: list[Loop] = []
    gone: set[str] = set()
    for loop in around:
        value = loop.values.get(stmt.name)
        if loop.name in kept and (
            value is None or (isinstance(value, Index) and value.name in own)
        ):
            free.append(loop)
            gone |= {value.name} if isinstance(value, Index) else set()
    if not gone:
        return stmt, free
    domain = tuple(cond for cond in stmt.domain if gone.isdisjoint(indices_of(cond)))
    dims = tuple(dim for dim in stmt.dims if dim not in gone)
    return replace(stmt, dims=dims, domain=domain), free


def _check_whole(stmt: Stmt, around: Sequence[Loop], who: str) -> None:
    """Raises where an element is complete only after several iterations of loops around: what one
    of them needs is not all in it."""
    own = stmt.dims[: repeats(stmt)]
    for loop in around:
        value = loop.values.get(stmt.name)
        if value is None or in_coordinates(value, stmt.lhs, stmt) is not None:
            continue
        both = (*stmt.dims, *primed(stmt.dims))
        domain = [*stmt.domain, *(second(cond, stmt.dims) for cond in stmt.domain)]
        same = [*agree(tuple(map(Index, own)), stmt.dims)]
        same += same_element(stmt.lhs, stmt.lhs, stmt.dims)
        apart = differ([value], stmt.dims)
        sizes = sizes_in([*domain, *same, apart])
        if isl.is_empty(points(both, [*domain, *same, apart], sizes)) is not isl.Answer.YES:
            raise ScheduleError(
                f"{who}: an element of {stmt.buffer} is updated in several iterations of loop "
                f"{loop.name}{at(stmt)}, which goes around; choose a loop outside of it"
            )


def _restricted(
    nest: Nest,
    stmt: Stmt,
    users: Sequence[Stmt],
    around: Sequence[Loop],
    dims: Mapping[str, str],
    values: Mapping[str, Expr],
    who: str,
) -> Stmt:
    """The statement for the elements that one iteration of the loops around needs of it."""
    coordinates = tuple(f"d{n}" for n in range(len(stmt.lhs)))
    outer = tuple(dims[loop.name] for loop in around)
    touched = [(user, cell) for user in users for cell in cells(user, stmt.buffer)]
    tensor = nest.buffers[stmt.buffer].tensor
    found = region(nest, tensor, touched, around, (outer, coordinates), who)
    put: dict[Expr, Expr] = {Index(dims[loop.name]): values[loop.name] for loop in around}
    put |= {Index(d): e for d, e in zip(coordinates, stmt.lhs, strict=True)}
    extra = tuple(substitute(condition, put) for condition in found.conditions)
    new = tuple(dims[loop.name] for loop in around if values[loop.name] is Index(dims[loop.name]))
    return replace(stmt, dims=(*new, *stmt.dims), domain=(*stmt.domain, *extra))


def _valued(nest: Nest, loop: Loop, stmt: Stmt, value: Expr, who: str) -> Loop:
    """The loop with its value for one statement, which may start it earlier or end it later."""
    if loop.values.get(stmt.name) is value:
        return loop
    loop = replace(loop, values={**loop.values, stmt.name: value})
    if loop.extent is None or stays_within(stmt, value, loop.extent):
        return loop
    if loop.kind not in ("serial", *PARALLEL):
        raise ScheduleError(
            f"{who}: loop {loop.name}{where(nest, loop)} is {loop.kind}, and would run "
            f"{stmt.buffer} in more than its {loop.extent} iterations; mark it afterwards"
        )
    return replace(loop, extent=None, tail="guard")


def runs_once(loop: Loop, around: Sequence[Loop]) -> bool:
    """Is the loop's value that of one of the loops around it, but for a constant?"""
    return any(
        all(
            stmt in outer.values and isinstance(normalize(sub(outer.values[stmt], value)), Const)
            for stmt, value in loop.values.items()
        )
        for outer in around
    )


def _listed(free: Sequence[Loop]) -> str:
    names = " and ".join(index_of(loop.name) for loop in free)
    return f"loop{'s' if len(free) > 1 else ''} {names}"
