"""Reductions over vector lanes keep one partial result a lane, combined once at the end.

    for k.strip in 0 .. n:                          alloc s.lanes: register f32[64]:
        for k in 0 .. 64 vector:                        for v in 0 .. 64 vector: s.lanes[v] = 0
            s[i] sum= x[k.strip*64 + k]     ==>         for k.strip in 0 .. n:
                                                            for k in 0 .. 64 vector:
                                                                s.lanes[k] sum= x[k.strip*64 + k]
                                                        for v in 0 .. 16 vector: s[i] sum= ...

The partial results live around the outermost loops that only accumulate into the cell. Four
vectors of them are four independent sums, which hides the latency of the additions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...algo.tensor_expr.affine import Interval, bounds
from ...algo.tensor_expr.build import add, const
from ...algo.tensor_expr.expr import Access, Const, Expr, Index, accesses, indices_of
from ...algo.tensor_expr.reducers import REDUCERS
from ...sched.loop.machine import Machine
from ...sched.loop.nest import PARALLEL
from ..ir import (
    AXES,
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    If,
    Let,
    Stmt,
    Store,
    Update,
    allocate,
    block,
    contiguous,
    expressions,
    rebuild,
)
from ..ir import children as inner_statements
from ..ranges import span_of, values_of

Known = Mapping[str, Interval]


@dataclass(slots=True)
class _Use:
    """What a statement does with a buffer. Spoiled: not only adding to cells that lanes share."""

    reducer: str | None = None
    cells: dict[tuple[Expr, ...], int] = field(default_factory=dict)  # and how many lanes do
    updates: int = 0
    looped: bool = False
    used: bool = False
    spoiled: bool = False
    atomic: bool = False


def accumulate(function: Function, machine: Machine) -> Function:
    """The function with partial results a lane; expects vector loops that start at 0."""
    buffers = {param.name: param for param in function.params}
    body = _Accumulating(machine).body(function.body, buffers, {})
    return Function(function.name, function.params, body)


class _Accumulating:
    def __init__(self, machine: Machine) -> None:
        self.machine, self.count = machine, 0

    def body(self, stmt: Stmt, buffers: Mapping[str, Buffer], known: Known) -> Stmt:
        """A body, in which runs of statements that accumulate into a cell get partial results."""
        parts = list(stmt.stmts) if isinstance(stmt, Block) else [stmt]
        for name in _candidates(parts, buffers):
            uses = [_use(part, buffers[name], known) for part in parts]
            run = _run(uses)
            if run is None or not self.pays(uses[run[0] : run[1]], buffers[name]):
                continue
            start, stop = run
            inside = self.partial(parts[start:stop], buffers[name], uses[start:stop])
            return self.body(block(*parts[:start], inside, *parts[stop:]), buffers, known)
        return block(*(self.inner(part, buffers, known) for part in parts))

    def inner(self, stmt: Stmt, buffers: Mapping[str, Buffer], known: Known) -> Stmt:
        match stmt:
            case For(var=var):
                known = {**known, var: values_of(stmt, known)}
            case Let(var, value, _):
                known = {**known, var: bounds(value, known)}
            case Alloc(own, _):
                buffers = {**buffers, **{buffer.name: buffer for buffer in own}}
        return rebuild(stmt, lambda item: self.body(item, buffers, known))

    def native(self, buffer: Buffer) -> int:
        return self.machine.lanes(buffer.dtype.itemsize)

    def pays(self, uses: list[_Use], buffer: Buffer) -> bool:
        """One update of a cell by one vector, in no loop, is better combined where it stands."""
        wide = any(width > self.native(buffer) for use in uses for width in use.cells.values())
        cells = {cell for use in uses for cell in use.cells}
        many = sum(use.updates for use in uses) > len(cells)
        return many or wide or any(use.looped for use in uses)

    def partial(self, parts: list[Stmt], buffer: Buffer, uses: list[_Use]) -> Stmt:
        """The statements with each shared cell's updates going to lanes of its own."""
        reducer = next(use.reducer for use in uses if use.reducer is not None)
        native = self.native(buffer)
        widths: dict[tuple[Expr, ...], int] = {}
        for use in uses:
            for cell, width in use.cells.items():
                widths[cell] = max(widths.get(cell, 0), width)
        lanes: dict[tuple[Expr, ...], Buffer] = {}
        for cell, width in widths.items():
            size = -(-width // native) * native if width > native else 1 << (width - 1).bit_length()
            name = f"{buffer.name}.lanes" + (str(self.count) if self.count else "")
            self.count += 1
            shape = (size,)
            lanes[cell] = Buffer(name, buffer.dtype, shape, contiguous(shape), "register", 64)
        atomic = any(use.atomic for use in uses)
        identity = Const(REDUCERS[reducer].identity(buffer.dtype), buffer.dtype)
        before = [
            _each(b.name, b.shape[0], Store(b.name, (_lane(b),), identity)) for b in lanes.values()
        ]
        after = [
            _combine(b, min(native, b.shape[0]), buffer.name, cell, reducer, atomic)
            for cell, b in lanes.items()
        ]
        middle = [_redirect(part, buffer.name, lanes, None) for part in parts]
        return allocate(lanes.values(), block(*before, *middle, *after))


def _candidates(parts: list[Stmt], buffers: Mapping[str, Buffer]) -> list[str]:
    """Buffers from outside that are updated somewhere in `parts`, under a vector loop."""
    found: dict[str, None] = {}
    stack: list[tuple[Stmt, bool]] = [(part, False) for part in reversed(parts)]
    while stack:
        stmt, vector = stack.pop()
        if isinstance(stmt, Update) and vector and stmt.buffer in buffers:
            found[stmt.buffer] = None
        vector = vector or (isinstance(stmt, For) and stmt.kind == "vector")
        stack.extend((inner, vector) for inner in reversed(inner_statements(stmt)))
    return list(found)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands: what is bound around it within the statements looked at.

    `certain`: it is executed whenever they are, so its cell lies inside the buffer then.
    """

    known: Known
    bound: frozenset[str] = frozenset()
    vector: For | None = None
    looped: bool = False
    certain: bool = True


def _use(stmt: Stmt, buffer: Buffer, known: Known) -> _Use:
    use = _Use()
    _collect(stmt, buffer, _Place(known), use)
    return use


def _collect(stmt: Stmt, buffer: Buffer, place: _Place, use: _Use) -> None:
    """Adds what `stmt` does with the buffer."""
    if any(item.tensor == buffer.name for expr in expressions(stmt) for item in accesses(expr)):
        use.used = use.spoiled = True
    match stmt:
        case Store(name, _, _) if name == buffer.name:
            use.used = use.spoiled = True
        case Update(name, index, reducer, _, atomic) if name == buffer.name:
            use.used = True
            use.atomic |= atomic
            use.spoiled |= use.reducer not in (None, reducer)
            use.reducer = reducer
            _collect_cell(index, buffer, place, use)
        case Alloc(inner, _) if any(own.name == buffer.name for own in inner):
            use.spoiled = True
        case For(kind=kind) if kind in PARALLEL or kind in AXES:
            inside = _use(stmt.body, buffer, place.known)
            use.used |= inside.used
            use.spoiled |= inside.used
        case For(var=var, kind=kind):
            least = span_of(stmt, place.known)[0]
            vector = stmt if kind == "vector" else place.vector
            place = _Place(
                {**place.known, var: values_of(stmt, place.known)},
                place.bound | {var},
                vector,
                place.looped or vector is None,
                place.certain and least is not None and least > 0,
            )
        case If():
            place = replace(place, certain=False)
        case Let(var, value, _):
            known = {**place.known, var: bounds(value, place.known)}
            place = replace(place, known=known, bound=place.bound | {var})
    for inner_stmt in inner_statements(stmt):
        _collect(inner_stmt, buffer, place, use)


def _collect_cell(index: tuple[Expr, ...], buffer: Buffer, place: _Place, use: _Use) -> None:
    names = {name for part in index for name in indices_of(part)}
    if place.vector is None or place.vector.var in names:
        return
    most = bounds(place.vector.hi, place.known)[1]
    data = any(accesses(part) for part in index)
    inside = place.certain or _within(index, buffer, place.known)
    if most is None or data or names & place.bound or not inside:
        use.spoiled = True
    use.cells[index] = max(use.cells.get(index, 1), most or 1)
    use.updates += 1
    use.looped |= place.looped


def _within(index: tuple[Expr, ...], buffer: Buffer, known: Known) -> bool:
    """Does a cell certainly lie inside the buffer, even where its update is not executed?"""
    for part, extent in zip(index, buffer.shape, strict=True):
        low, high = bounds(part, known)
        if low is None or low < 0 or high is None or high >= extent:
            return False
    return True


def _run(uses: list[_Use]) -> tuple[int, int] | None:
    """The first longest range of statements that only accumulate, and do so from lanes."""
    start = 0
    for stop in range(len(uses) + 1):
        if stop == len(uses) or uses[stop].spoiled or not _agree(uses[start : stop + 1]):
            inside = [n for n in range(start, stop) if uses[n].cells]
            if inside:
                return inside[0], inside[-1] + 1
            start = stop + (stop < len(uses) and uses[stop].spoiled)
    return None


def _agree(uses: list[_Use]) -> bool:
    return len({use.reducer for use in uses if use.reducer is not None}) <= 1


def _lane(buffer: Buffer) -> Expr:
    return Index(f"{buffer.name}.v")


def _each(name: str, count: int, body: Stmt) -> Stmt:
    return For(f"{name}.v", const(0), const(count), body, "vector")


def _combine(
    lanes: Buffer,
    native: int,
    target: str,
    cell: tuple[Expr, ...],
    reducer: str,
    atomic: bool,
) -> Stmt:
    """All lanes' values into the cell: vectors first, then across the lanes of one."""
    lane = _lane(lanes)
    parts = [
        _each(
            lanes.name,
            native,
            Update(lanes.name, (lane,), reducer, Access(lanes.name, (add(lane, const(start)),))),
        )
        for start in range(native, lanes.shape[0], native)
    ]
    value = Access(lanes.name, (lane,))
    return block(*parts, _each(lanes.name, native, Update(target, cell, reducer, value, atomic)))


def _redirect(
    stmt: Stmt, name: str, lanes: Mapping[tuple[Expr, ...], Buffer], vector: str | None
) -> Stmt:
    match stmt:
        case For(var=var, kind="vector"):
            vector = var
        case Update(buffer, index, reducer, value, _) if (
            buffer == name and vector is not None and index in lanes
        ):
            return Update(lanes[index].name, (Index(vector),), reducer, value)
    return rebuild(stmt, lambda inner: _redirect(inner, name, lanes, vector))
