"""Value flow: does every read see the value it wants, whatever copies lie between?

Dependences say that instances run in the right order. Once values live in copies, that is not
enough: for every access isl finds the last write before it, among all writes to the tensor and
all copies into the buffer that is read. That must exist, and be a write to the same piece of
storage: the same buffer, in the same iteration of the loop under which the buffer lives, and on a
GPU of the same block (`blocks`). Then the piece holds the newest value, by induction over time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...algo import isl
from ...algo.errors import ScheduleError
from ...algo.isl import raw
from ...algo.tensor_expr.expr import Expr
from .blocks import dividing, position
from .nest import Loop, Nest, Seq, Stmt, Tree, leaves
from .relations import domain, from_data, primed, symbols, text
from .storage import in_coordinates, reads
from .tree import around_stmt
from .witness import at, element, instance

END = "end"
"""Stands for the caller, who reads the outputs when everything has run."""
QUOTA = 4 * isl.QUOTA


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
    for tensor in dict.fromkeys(tensors):
        _check_tensor(nest, tensor, who)


def _check_tensor(nest: Nest, tensor: str, who: str) -> None:
    own = {name for name, buffer in nest.buffers.items() if buffer.tensor == tensor}
    writers = [Role(s, s.buffer, s.lhs) for s in nest.stmts.values() if s.buffer in own]
    data = next((w.stmt for w in writers if any(map(from_data, w.cell))), None)
    if data is not None:
        raise ScheduleError(
            f"{who}: elements of {tensor} are chosen by data when it is written{at(data)}, "
            "so its values cannot be followed; keep it in one place"
        )
    role = nest.kernel.tensors[tensor].role
    for reader in _readers(nest, own):
        if not (role == "input" and reader.buffer == tensor):
            _check_reader(nest, reader, _sources(nest, writers, reader.buffer), who)
    if role == "output":
        _check_end(nest, tensor, _sources(nest, writers, tensor), who)


def _readers(nest: Nest, own: set[str]) -> Iterator[Role]:
    for stmt in nest.stmts.values():
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


def _check_reader(nest: Nest, reader: Role, sources: list[Role], who: str) -> None:
    sizes = symbols(reader.stmt, *(s.stmt for s in sources), *nest.stmts.values())
    times = _times(nest.tree, [*sources, reader])
    try:
        with isl.quota(QUOTA):
            order = _union(_map(r, times[r], sizes) for r in (*sources, reader))
            writes = _union(_map(s, [text(e) for e in s.cell], sizes) for s in sources)
            flow = _flow(_reading(nest, reader, sizes), writes, order)
            stale = flow.get_must_no_source().domain()
            problem, remedy = "which nothing has written yet", ""
            if stale.is_empty():
                same = _union(
                    _same_storage(nest, reader, s, sizes)
                    for s in sources
                    if s.buffer == reader.buffer
                )
                last = flow.get_must_dependence().reverse()
                stale = last.subtract(same).domain()
                problem, remedy = "which does not hold the newest value", ""
                for axis in dividing(nest).get(reader.buffer, ()):
                    if stale.is_empty():
                        stale = _elsewhere(nest, reader, sources, last, axis, sizes)
                        problem, remedy = _another(nest, reader.buffer, axis)
            if stale.is_empty():
                return
            point = _first(stale, reader.stmt.dims)
    except isl.Exhausted:
        raise ScheduleError(
            f"{who}: could not prove which value {reader.buffer} holds when {reader.stmt.name} "
            f"reads it{at(reader.stmt)}; another loop, or sizes that are given, may help"
        ) from None
    cell = element(reader.buffer, reader.cell, point, point)
    stmt = reader.stmt
    who_reads = stmt.name if is_copy(nest, stmt) else instance(stmt, point, point)
    raise ScheduleError(f"{who}: {who_reads} reads {cell}, {problem}{at(stmt)}{remedy}")


def _check_end(nest: Nest, tensor: str, sources: list[Role], who: str) -> None:
    """Raises unless the caller's array holds the last value of every element in the end."""
    sizes = symbols(*(s.stmt for s in sources))
    times = _times(nest.tree, sources)
    rank = nest.buffers[tensor].rank
    cell = [f"d{n}" for n in range(rank)]
    try:
        with isl.quota(QUOTA):
            last = ["1", *["0"] * (max(map(len, times.values())) - 1)]
            order = _union(_map(s, times[s], sizes) for s in sources)
            order = order.union(isl.make_map(cell, last, (), sizes, (END, "")).to_union_map())
            writes = _union(_map(s, [text(e) for e in s.cell], sizes) for s in sources)
            reading = isl.make_map(cell, cell, (), sizes, (END, "")).to_union_map()
            true = [s for s in sources if not is_copy(nest, s.stmt)]
            written = _union(_map(s, [text(e) for e in s.cell], sizes) for s in true).range()
            flow = _flow(reading.intersect_range(written), writes, order)
            there = [s for s in sources if s.buffer == tensor]
            same = _union(_map(s, cell, sizes).domain().identity() for s in there).range()
            good = flow.get_must_dependence().intersect_domain(same).range()
            stale = reading.intersect_range(written).domain().subtract(good)
            if stale.is_empty():
                return
            point = _first(stale, cell)
    except isl.Exhausted:
        raise ScheduleError(
            f"{who}: could not prove that {tensor} holds its last values in the end; "
            "another loop, or sizes that are given, may help"
        ) from None
    shown = ",".join(str(point[dim]) for dim in cell)
    raise ScheduleError(f"{who}: {tensor}[{shown}] does not hold its last value in the end")


def _flow(sink: raw.UnionMap, source: raw.UnionMap, order: raw.UnionMap) -> raw.UnionFlow:
    access = raw.UnionAccessInfo.from_sink(sink).set_must_source(source)
    return access.set_schedule_map(order).compute_flow()


def _map(role: Role, images: Sequence[str], sizes: Sequence[str]) -> raw.UnionMap:
    spaces = (role.space, "")
    return isl.make_map(role.stmt.dims, images, domain(role.stmt), sizes, spaces).to_union_map()


def _reading(nest: Nest, reader: Role, sizes: Sequence[str]) -> raw.UnionMap:
    """From instances to the elements read; all along a dimension that data decide."""
    shape = nest.kernel.tensors[nest.buffers[reader.buffer].tensor].shape
    images = [isl.ident(f"e{n}@") for n in range(len(reader.cell))]
    conditions = [*domain(reader.stmt), *map(text, reader.guards)]
    for image, part, size in zip(images, reader.cell, shape, strict=True):
        # In bounds, for a guard that is not affine may leave out what is not.
        conditions.append(f"0 <= {image} < {text(size)}")
        if not from_data(part):
            conditions.append(f"{image} = {text(part)}")
    spaces = (reader.space, "")
    return isl.make_map(reader.stmt.dims, images, conditions, sizes, spaces).to_union_map()


def _same_storage(nest: Nest, reader: Role, writer: Role, sizes: Sequence[str]) -> raw.UnionMap:
    """From reads to the instances of a writer in the same iteration of the buffer's loop."""
    at_loop = nest.buffers[reader.buffer].at
    second = primed(writer.stmt.dims)
    conditions = []
    if at_loop is not None:
        theirs = {loop.name: loop for loop in around_stmt(nest.tree, writer.stmt.name)}
        mine = around_stmt(nest.tree, reader.stmt.name)
        depth = [loop.name for loop in mine].index(at_loop) + 1
        for loop in mine[:depth]:
            if not _follows(loop, [reader, writer]):
                y = text(theirs[loop.name].values[writer.stmt.name], second)
                conditions.append(f"{text(loop.values[reader.stmt.name])} = {y}")
    dims = [dim + "'" for dim in writer.stmt.dims]
    images = [isl.ident(dim) for dim in dims]
    source = isl.tuple_text(reader.stmt.dims, reader.space)
    target = f"{isl.ident(writer.space)}[{', '.join(images)}]"
    such = f" : {' and '.join(conditions)}" if conditions else ""
    params = f"[{', '.join(map(isl.ident, sizes))}] -> " if sizes else ""
    return isl.parse_union_map(f"{params}{{ {source} -> {target}{such} }}")


def _elsewhere(
    nest: Nest,
    reader: Role,
    writers: list[Role],
    last: raw.UnionMap,
    axis: str,
    sizes: Sequence[str],
) -> raw.UnionSet:
    """The reads whose last writer ran at another position on a GPU axis.

    A writer whose position lowering chooses runs at the first of its readers, at best.
    """
    none = isl.parse_union_map("{ }")
    here = position(nest, reader.stmt.name, axis, sizes, reader.space)
    if here is None:
        return none.domain()
    reads = here.to_union_map()
    wrong = none
    for writer in writers:
        instances = _map(writer, ["0"], sizes).domain()
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


def _union(parts: Iterable[raw.UnionMap]) -> raw.UnionMap:
    total = isl.parse_union_map("{ }")
    for part in parts:
        total = total.union(part)
    return total


def _first(points: raw.UnionSet, dims: Sequence[str]) -> dict[str, int]:
    """Values of the dims (and sizes) at the first of the points."""
    some = points.get_set_list().get_at(0)
    for n, dim in enumerate(dims):
        some = some.set_dim_name(raw.dim_type.set, n, isl.ident(dim))
    return isl.first_point(some) or {}


def _follows(loop: Loop, roles: Sequence[Role]) -> bool:
    """Does the cell determine the loop's value, in one way for all roles under the loop?

    Then instances that meet in a cell are in one iteration, and the loop decides no order.
    """
    under = [role for role in roles if role.stmt.name in loop.values]
    seen = {in_coordinates(loop.values[r.stmt.name], r.cell, r.stmt) for r in under}
    return None not in seen and len(seen) <= 1


def _times(tree: Tree, roles: Sequence[Role]) -> dict[Role, list[str]]:
    """When each role runs: 0, then positions in sequences and values of loops, outermost first.

    Last comes 0 for reads and 1 for writes: within an instance all reads come first. Loops that
    decide nothing are left out.
    """
    named = {role.stmt.name for role in roles}
    times: dict[Role, list[str]] = {role: ["0"] for role in roles}

    def walk(part: Tree) -> None:
        if isinstance(part, Seq):
            below = [named & set(leaves(item)) for item in part.parts]
            for n, item in enumerate(part.parts):
                if sum(map(bool, below)) > 1:
                    for role in roles:
                        if role.stmt.name in below[n]:
                            times[role].append(str(n))
                if below[n]:
                    walk(item)
        elif isinstance(part, Loop):
            if not _follows(part, roles):
                for role in roles:
                    if role.stmt.name in part.values:
                        times[role].append(text(part.values[role.stmt.name]))
            walk(part.body)

    walk(tree)
    depth = max(map(len, times.values()))
    return {
        role: [*time, *["0"] * (depth - len(time)), "0" if role.mark else "1"]
        for role, time in times.items()
    }
