"""Cells of buffers into which vector loops combine a value of every lane."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, groupby

from ..algo.tensor_expr.affine import Interval, bounds
from ..algo.tensor_expr.expr import Expr, accesses, indices_of
from ..sched.loop.nest import PARALLEL
from .ir import (
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
    children,
    expressions,
    rebuild,
)
from .ranges import inside, span_of

Known = Mapping[str, Interval]
Buffers = Mapping[str, Buffer]


@dataclass(slots=True)
class Use:
    """What a statement does with a buffer. `cells` are those that lanes share, and how many do;
    spoiled: it does other things than combining values into them."""

    reducer: str | None = None
    cells: dict[tuple[Expr, ...], int] = field(default_factory=dict)
    updates: int = 0
    looped: bool = False
    spoiled: bool = False
    atomic: bool = False


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


def _uses(stmt: Stmt, buffers: Mapping[str, Buffer], known: Known) -> dict[str, Use]:
    """What a statement does with those buffers from outside that it uses."""
    return _Uses(buffers).collect(stmt, _Place(known))


class _Uses:
    def __init__(self, buffers: Mapping[str, Buffer]) -> None:
        self.buffers = buffers
        self.found: dict[str, Use] = {}

    def of(self, name: str) -> Use:
        return self.found.setdefault(name, Use())

    def collect(self, stmt: Stmt, place: _Place) -> dict[str, Use]:
        """Adds what `stmt` does."""
        for expr in expressions(stmt):
            for item in accesses(expr):
                if item.tensor in self.buffers:
                    self.of(item.tensor).spoiled = True
        within = replace(place, known=inside(stmt, place.known))
        match stmt:
            case Store(name, _, _) if name in self.buffers:
                self.of(name).spoiled = True
            case Update(name, index, reducer, _, atomic) if name in self.buffers:
                use = self.of(name)
                use.atomic |= atomic
                use.spoiled |= use.reducer not in (None, reducer)
                use.reducer = reducer
                _collect_cell(index, self.buffers[name], place, use)
            case Alloc(own, _):
                for name in {buffer.name for buffer in own} & self.buffers.keys():
                    self.of(name).spoiled = True
            case For(kind=kind) if kind in PARALLEL or kind in AXES:
                for name in _uses(stmt.body, self.buffers, place.known):
                    self.of(name).spoiled = True
                return self.found
            case For(var=var, kind=kind):
                least = span_of(stmt, place.known)[0]
                vector = stmt if kind == "vector" else place.vector
                within = _Place(
                    within.known,
                    place.bound | {var},
                    vector,
                    place.looped or vector is None,
                    place.certain and least is not None and least > 0,
                )
            case If():
                within = replace(place, certain=False)
            case Let(var, _, _):
                within = replace(within, bound=place.bound | {var})
        for inner in children(stmt):
            self.collect(inner, within)
        return self.found


def _collect_cell(index: tuple[Expr, ...], buffer: Buffer, place: _Place, use: Use) -> None:
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


def _runs(uses: list[tuple[int, Use]]) -> Iterator[list[tuple[int, Use]]]:
    """Statements one after the other that only accumulate into a buffer, in one way, from the first
    that does so from lanes to the last. `uses` are those of all that use it, in order."""
    for way, items in groupby(uses, lambda item: None if item[1].spoiled else item[1].reducer):
        run = list(items)
        shared = [n for n, (_, use) in enumerate(run) if use.cells]
        if way is not None and shared:
            yield run[shared[0] : shared[-1] + 1]


@dataclass(frozen=True, slots=True)
class Partial:
    """What a run of statements accumulates into instead of a buffer's cells.

    `before` and `after` stand around the run; `update` makes of an update of the buffer, given
    the variable of the vector loop around it, what takes its place.
    """

    buffers: Collection[Buffer]
    before: list[Stmt]
    after: list[Stmt]
    update: Callable[[Update, str | None], Stmt]


@dataclass(frozen=True, slots=True)
class _Life:
    """Buffers that live from one of the parts of a body to another."""

    first: int
    last: int
    buffers: list[Buffer]


def _apart(lives: list[_Life]) -> list[_Life]:
    """Those that overlap made one, in order."""
    found: list[_Life] = []
    for life in sorted(lives, key=lambda life: life.first):
        if found and life.first <= found[-1].last:
            before = found.pop()
            last = max(before.last, life.last)
            life = _Life(before.first, last, before.buffers + life.buffers)
        found.append(life)
    return found


class Partials(ABC):
    """A walk that gives partial results to runs of statements that accumulate from lanes."""

    def function(self, function: Function) -> Function:
        """The function with partial results."""
        buffers = {param.name: param for param in function.params}
        return Function(function.name, function.params, self.body(function.body, buffers, {}))

    @abstractmethod
    def partial(
        self, parts: list[Stmt], uses: list[Use], buffer: str, buffers: Buffers, known: Known
    ) -> Partial | None:
        """What the statements of a run, which use a buffer so, have instead of it, if they should
        have something. `buffers` are those visible."""

    def body(self, stmt: Stmt, buffers: Buffers, known: Known) -> Stmt:
        """A body in which runs have what `partial` gives them."""
        parts = stmt.stmts if isinstance(stmt, Block) else (stmt,)
        tables = [_uses(part, buffers, known) for part in parts]
        names = dict.fromkeys(name for table in tables for name, use in table.items() if use.cells)
        around: list[tuple[list[Stmt], list[Stmt]]] = [([], []) for _ in parts]
        updates: list[dict[str, Callable[[Update, str | None], Stmt]]] = [{} for _ in parts]
        lives: list[_Life] = []
        for name in names:
            for run in _runs([(n, table[name]) for n, table in enumerate(tables) if name in table]):
                places, uses = [n for n, _ in run], [use for _, use in run]
                found = self.partial([parts[n] for n in places], uses, name, buffers, known)
                if found is None:
                    continue
                lives.append(_Life(places[0], places[-1], list(found.buffers)))
                around[places[0]][0].extend(found.before)
                around[places[-1]][1].extend(found.after)
                for n in places:
                    updates[n][name] = found.update
        done: list[list[Stmt]] = []
        for part, (before, after), instead in zip(parts, around, updates, strict=True):
            part = _updated(part, instead, None) if instead else part
            done.append([*before, self._inner(part, buffers, known), *after])
        stmts: list[Stmt] = []
        end = 0
        for life in _apart(lives):
            stmts += chain.from_iterable(done[end : life.first])
            end = life.last + 1
            inside = block(*chain.from_iterable(done[life.first : end]))
            stmts.append(allocate(life.buffers, inside))
        return block(*stmts, *chain.from_iterable(done[end:]))

    def _inner(self, stmt: Stmt, buffers: Buffers, known: Known) -> Stmt:
        if isinstance(stmt, Alloc):
            buffers = {**buffers, **{buffer.name: buffer for buffer in stmt.buffers}}
        within = inside(stmt, known)
        return rebuild(stmt, lambda item: self.body(item, buffers, within))


def _updated(
    stmt: Stmt, instead: Mapping[str, Callable[[Update, str | None], Stmt]], vector: str | None
) -> Stmt:
    match stmt:
        case For(var=var, kind="vector"):
            vector = var
        case Update(buffer=name) if name in instead:
            return instead[name](stmt, vector)
    return rebuild(stmt, lambda inner: _updated(inner, instead, vector))
