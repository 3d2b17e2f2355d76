"""Value flow: does every read see the value it wants, whatever copies lie between?

Dependences say that instances run in the right order. Once values live in copies, that is not
enough: for every access isl finds the last write before it, among all writes to the tensor and
all copies into the buffer that is read. That must exist, and be a write to the same piece of
storage: the same buffer, in the same iteration of the loop under which the buffer lives, and on a
GPU of the same block (`blocks`). Then the piece holds the newest value, by induction over time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ...algo import isl
from ...algo.errors import ScheduleError
from ...algo.isl import raw
from ...algo.tensor_expr.build import compare, const
from ...algo.tensor_expr.expr import Expr, Index, indices_of
from ...algo.tensor_expr.points import mapping, points
from .blocks import dividing, position
from .last_write import QUOTA, Event, Question, first, last_writes, lost, stale, union
from .nest import Loop, Nest, Seq, Stmt, Tree
from .order import same_iteration
from .relations import from_data, positive, sizes_in, symbols
from .storage import in_coordinates, reads, repeats, touching
from .tree import loops_to, parts_of
from .witness import at, element, instance

Axes = Mapping[str, Sequence[str]]
"""The GPU axes that divide each buffer, of those that some axis divides."""

END = "end"
"""Stands for the caller, who reads the outputs when everything has run."""


@dataclass(frozen=True)
class Role:
    """A statement as the writer or (marked) the reader of one cell."""

    stmt: Stmt
    buffer: str
    cell: tuple[Expr, ...]
    mark: str = ""
    guards: tuple[Expr, ...] = ()

    @property
    def space(self) -> str:
        """What isl calls its instances."""
        return self.stmt.name + self.mark


def check_flow(nest: Nest, tensors: Iterable[str], who: str) -> None:
    """Raises unless every read of the tensors, through whatever buffer, sees the right value."""
    axes, users = dividing(nest), touching(nest)
    order = {name: n for n, name in enumerate(nest.stmts)}
    own: dict[str, dict[str, list[str]]] = {}
    for name, buffer in nest.buffers.items():
        own.setdefault(buffer.tensor, {})[name] = users[name]
    for tensor in dict.fromkeys(tensors):
        names = set(chain.from_iterable(own[tensor].values()))
        stmts = [nest.stmts[name] for name in sorted(names, key=order.__getitem__)]
        _check_tensor(nest, tensor, own[tensor], stmts, axes, who)


def _check_tensor(
    nest: Nest, tensor: str, own: Collection[str], stmts: Sequence[Stmt], axes: Axes, who: str
) -> None:
    """`own` are the tensor's buffers, `stmts` the statements that use one."""
    writers = [Role(s, s.buffer, s.lhs) for s in stmts if s.buffer in own]
    data = next((w.stmt for w in writers if any(map(from_data, w.cell))), None)
    if data is not None:
        raise ScheduleError(
            f"{who}: elements of {tensor} are chosen by data when it is written{at(data)}, "
            "so its values cannot be followed; keep it in one place"
        )
    role = nest.kernel.tensors[tensor].role
    for reader in readers(stmts, own):
        if not (role == "input" and reader.buffer == tensor):
            sources = _sources(nest, writers, reader.buffer)
            _check_reader(nest, reader, sources, axes.get(reader.buffer, ()), who)
    if role == "output":
        _check_end(nest, tensor, _sources(nest, writers, tensor), who)


def readers(stmts: Iterable[Stmt], own: Collection[str]) -> Iterator[Role]:
    """The statements that read one of these buffers, which those of a reducer do that update it."""
    for stmt in stmts:
        for read in reads(stmt):
            if read.tensor in own:
                yield Role(stmt, read.tensor, read.indices, "@read", read.guards)
        if stmt.buffer in own and stmt.reducer is not None:
            yield Role(stmt, stmt.buffer, stmt.lhs, "@read")


def _sources(nest: Nest, writers: list[Role], buffer: str) -> list[Role]:
    """The writes after which a buffer may be out of date, and those that bring it up to date."""
    return [w for w in writers if w.buffer == buffer or not is_copy(nest, w.stmt)]


def is_copy(nest: Nest, stmt: Stmt) -> bool:
    """Does a statement move values rather than compute them?"""
    return all(stmt.name != stage.name for stage in nest.kernel.stages)


def _check_reader(
    nest: Nest, reader: Role, sources: list[Role], axes: Sequence[str], who: str
) -> None:
    ask = _question(nest, reader, sources)
    remedy = ""
    try:
        found = stale(ask)
        for axis in axes:
            if found is None:
                problem, remedy = _another(nest, reader.buffer, axis)
                with isl.quota(QUOTA):
                    wrong = _elsewhere(nest, ask, reader, sources, axis)
                    if not wrong.is_empty():
                        found = problem, first(wrong, ask.reader.dims)
    except isl.Exhausted:
        raise ScheduleError(
            f"{who}: could not prove which value {reader.buffer} holds when {reader.stmt.name} "
            f"reads it{at(reader.stmt)}; another loop, or sizes that are given, may help"
        ) from None
    if found is None:
        return
    problem, point = found
    stmt, cell = reader.stmt, element(reader.buffer, reader.cell, point, point)
    who_reads = stmt.name if is_copy(nest, stmt) else instance(stmt, point, point)
    raise ScheduleError(f"{who}: {who_reads} reads {cell}, {problem}{at(stmt)}{remedy}")


def _question(nest: Nest, reader: Role, sources: list[Role]) -> Question:
    when = times(nest.tree, [*sources, reader])
    buffer = nest.buffers[reader.buffer]
    shape = () if buffer.border else nest.kernel.tensors[buffer.tensor].shape
    reads = _reading(event(reader, when), shape)
    writes = tuple(event(source, when) for source in sources)
    sizes = _sizes((reads, *writes))
    return Question(
        replace(reads, domain=(*reads.domain, *positive(sizes))),
        writes,
        frozenset(n for n, source in enumerate(sources) if source.buffer == reader.buffer),
        tuple(_together(nest, reader, source) for source in sources),
        sizes,
    )


def _sizes(events: Iterable[Event]) -> tuple[str, ...]:
    return tuple(sizes_in(e for item in events for e in (*item.domain, *item.cell, *item.time)))


def event(role: Role, times: Mapping[Role, tuple[Expr, ...]]) -> Event:
    stmt = role.stmt
    return Event(role.space, stmt.dims, (*stmt.domain, *role.guards), role.cell, times[role])


def _reading(event: Event, shape: Sequence[Expr]) -> Event:
    """A read in bounds, and all along a dimension in which data decide what is read.

    A guard that is not affine may leave out what is not in bounds. A border has no `shape`.
    """
    cell = tuple(Index(f"e{n}@") if from_data(part) else part for n, part in enumerate(event.cell))
    free = tuple(part.name for part in cell if isinstance(part, Index) and part.name[-1] == "@")
    inside = [
        condition
        for part, size in zip(cell, shape, strict=bool(shape))
        for condition in (compare("ge", part, const(0)), compare("lt", part, size))
    ]
    domain = tuple(dict.fromkeys([*event.domain, *inside]))
    return replace(event, dims=(*event.dims, *free), domain=domain, cell=cell)


def _check_end(nest: Nest, tensor: str, sources: list[Role], who: str) -> None:
    """Raises unless the caller's array holds the last value of every element in the end."""
    when = times(nest.tree, sources)
    rank = nest.buffers[tensor].rank
    cell = tuple(f"d{n}" for n in range(rank))
    last = (const(1), *[const(0)] * (max(map(len, when.values())) - 1))
    events = [event(source, when) for source in sources]
    there = frozenset(n for n, source in enumerate(sources) if source.buffer == tensor)
    true = frozenset(n for n, source in enumerate(sources) if not is_copy(nest, source.stmt))
    sizes = _sizes(events)
    reader = Event(END, cell, tuple(positive(sizes)), tuple(map(Index, cell)), last)
    try:
        point = lost(reader, tuple(events), there, true, sizes)
    except isl.Exhausted:
        raise ScheduleError(
            f"{who}: could not prove that {tensor} holds its last values in the end; "
            "another loop, or sizes that are given, may help"
        ) from None
    if point is not None:
        shown = ",".join(str(point[dim]) for dim in cell)
        raise ScheduleError(f"{who}: {tensor}[{shown}] does not hold its last value in the end")


def _together(nest: Nest, reader: Role, writer: Role) -> tuple[Expr, ...] | None:
    """The conditions that a writer runs in the same iteration of the loop of the reader's buffer.

    None where it is not under that loop.
    """
    at_loop = nest.buffers[reader.buffer].at
    if at_loop is None:
        return ()
    loops = loops_to(nest.tree, at_loop)
    if writer.stmt.name not in loops[-1].values:
        return None
    return tuple(
        same_iteration(loop, reader.stmt, writer.stmt)
        for loop in loops
        if not _follows(loop, [reader, writer])
    )


def _elsewhere(
    nest: Nest, ask: Question, reader: Role, writers: list[Role], axis: str
) -> raw.UnionSet:
    """The reads whose last writer ran at another position on a GPU axis.

    A writer whose position lowering chooses runs at the first of its readers, at best.
    """
    none, last = union(()), last_writes(ask)[1]
    sizes = list(dict.fromkeys([*ask.sizes, *symbols(*nest.stmts.values())]))
    here = position(nest, reader.stmt.name, axis, sizes, reader.space)
    if here is None:
        return none.domain()
    dims = [Index(dim) for dim in reader.stmt.dims]  # of those of the question
    there_too = (reader.space, reader.space)
    reads = mapping(ask.reader.dims, dims, (), sizes, there_too).apply_range(here).to_union_map()
    wrong = none
    for writer in writers:
        instances = points(writer.stmt.dims, writer.stmt.domain, sizes, writer.space)
        seen = last.intersect_range(instances)
        there = position(nest, writer.stmt.name, axis, sizes, writer.space)
        wanted = seen.reverse().apply_range(reads)
        written = wanted.lexmin() if there is None else there.to_union_map()
        wrong = wrong.union(seen.subtract(reads.apply_range(written.reverse())))
    return wrong.domain()


def _another(nest: Nest, buffer: str, axis: str) -> tuple[str, str]:
    """What is wrong where values are at another position on an axis, and what helps."""
    owner, scope = axis.partition(".")[0], nest.buffers[buffer].scope
    wider = ", or use scope shared" if owner == "thread" else ""
    whose = "thread" if scope in ("register", "local") else "block"
    return (
        f"which another {owner} has written to its own",
        f"; a {scope} buffer is one {whose}'s: bind the loops "
        f"of all that use it to {axis}, or stage it inside of them{wider}",
    )


def _follows(loop: Loop, roles: Sequence[Role]) -> bool:
    """Does the cell determine the loop's value, in one way for all roles under the loop?

    Then instances that meet in a cell are in one iteration, and the loop decides no order.
    """
    under = [role for role in roles if role.stmt.name in loop.values]
    if any(_repeats_copy(role.stmt, loop) for role in under):
        return False  # a repetition may move what another one has computed
    seen = {in_coordinates(loop.values[r.stmt.name], r.cell, r.stmt) for r in under}
    return None not in seen and len(seen) <= 1


def _repeats_copy(stmt: Stmt, loop: Loop) -> bool:
    """Does a loop only say by which repetition of a copy elements are moved?"""
    is_copied = stmt.instance[0] != stmt.name
    repeated = stmt.dims[: repeats(stmt)] if is_copied else ()
    return not set(repeated).isdisjoint(indices_of(loop.values[stmt.name]))


def times(
    tree: Tree, roles: Sequence[Role], decided: Callable[[Loop], bool] | None = None
) -> dict[Role, tuple[Expr, ...]]:
    """When each role runs: 0, then positions in sequences and values of loops, outermost first.

    Last comes 0 for reads and 1 for writes: within an instance all reads come first. Loops that
    decide nothing are left out; for instances that meet in a cell those are the loops whose
    values follow from it, for others the caller says which are `decided`.
    """
    named = {role.stmt.name for role in roles}
    decided = decided or (lambda loop: _follows(loop, roles))
    times: dict[Role, list[Expr]] = {role: [const(0)] for role in roles}

    def walk(part: Tree) -> None:
        if isinstance(part, Seq):
            parts = parts_of(part, named)
            for role in roles if len(parts) > 1 else ():
                times[role] += map(const, parts_of(part, [role.stmt.name]))
            for n in parts:
                walk(part.parts[n])
        elif isinstance(part, Loop):
            if not decided(part):
                for role in roles:
                    if role.stmt.name in part.values:
                        times[role].append(part.values[role.stmt.name])
            walk(part.body)

    walk(tree)
    depth = max(map(len, times.values()))
    return {
        role: (*time, *[const(0)] * (depth - len(time)), const(0 if role.mark else 1))
        for role, time in times.items()
    }
