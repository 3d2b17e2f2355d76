"""The last write before a read: is it in the right place?

Questions are made of expressions alone and answered once, so what a primitive does not touch is
not asked again. Most are answered by a plain argument: a write to the right place comes before
the read in the same iteration of all loops around both, and no other place can be newer. isl's
value flow, which takes longer, answers the rest, and finds the instance that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...algo import isl
from ...algo.isl import raw
from ...algo.tensor_expr.build import add, compare
from ...algo.tensor_expr.expr import Call, Const, Expr, Size
from ...algo.tensor_expr.points import mapping, pairing, points
from .relations import primed, second

QUOTA = 4 * isl.QUOTA
PLAIN = isl.QUOTA // 10
"""Operations for the plain argument, before value flow is asked."""

START = "start@"
"""When loops start, as isl is told: it must not know."""

Conditions = tuple[Expr, ...]


@dataclass(frozen=True)
class Event:
    """All instances of a statement as writers or as readers of a cell, each at its time.

    `space` is what isl calls them. Times are compared from the first component on: constants are
    positions in sequences, and up to the first that differs, two events have the same loops.
    """

    space: str
    dims: tuple[str, ...]
    domain: Conditions
    cell: tuple[Expr, ...]
    time: tuple[Expr, ...]


@dataclass(frozen=True)
class Question:
    """A read, and the writes after which what it sees may be old.

    `right` are the sources that write where the read looks. All under the loop in each of whose
    iterations there is such a place have the conditions, over the reader's and their own (primed)
    dims, of being in the same one; others have None.
    """

    reader: Event
    sources: tuple[Event, ...]
    right: frozenset[int]
    together: tuple[Conditions | None, ...]
    sizes: tuple[str, ...]


@lru_cache(maxsize=512)
def stale(ask: Question) -> tuple[str, Mapping[str, int]] | None:
    """What is wrong with the first read that does not see the newest value, and its instance."""
    return None if is_plain(ask) else by_flow(ask)


@lru_cache(maxsize=512)
def by_flow(ask: Question) -> tuple[str, Mapping[str, int]] | None:
    """The same, asked of isl's value flow whatever the plain argument says."""
    never, last = last_writes(ask)
    same = union(_together(ask, n) for n in sorted(ask.right))
    with isl.quota(QUOTA):
        if not never.is_empty():
            return "which nothing has written yet", first(never, ask.reader.dims)
        wrong = last.subtract(same).domain()
        if not wrong.is_empty():
            return "which does not hold the newest value", first(wrong, ask.reader.dims)
    return None


@lru_cache(maxsize=512)
def last_writes(ask: Question) -> tuple[raw.UnionSet, raw.UnionMap]:
    """The reads before which nothing was written, and from the others to the last write."""
    order = _order((*ask.sources, ask.reader), ask.sizes)
    writes = union(touched(event, ask.sizes) for event in ask.sources)
    reading = touched(ask.reader, ask.sizes)
    with isl.quota(QUOTA):
        flow = _flow(reading, writes, order)
        return flow.get_must_no_source().domain(), flow.get_must_dependence().reverse()


@lru_cache(maxsize=512)
def lost(
    cells: Event,
    sources: tuple[Event, ...],
    there: frozenset[int],
    true: frozenset[int],
    sizes: tuple[str, ...],
) -> Mapping[str, int] | None:
    """The first of the cells whose last write, of those that count, is not one of those `there`.

    `true` sources compute values. The dims of `cells` are coordinates, and their time is the end.
    """
    others = [event for n, event in enumerate(sources) if n not in there]
    if all(_partnered(s, tuple(sources[n] for n in sorted(there)), sizes) for s in others):
        return None
    order = _order((*sources, cells), sizes)
    writes = union(touched(event, sizes) for event in sources)
    every = touched(cells, sizes)
    wanted = union(touched(sources[n], sizes) for n in sorted(true))
    same = union(touched(sources[n], sizes) for n in sorted(there))
    with isl.quota(QUOTA):
        asked = every.intersect_range(wanted.range())
        flow = _flow(asked, writes, order)
        good = flow.get_must_dependence().intersect_domain(same.domain()).range()
        wrong = asked.domain().subtract(good)
        return None if wrong.is_empty() else first(wrong, cells.dims)


def is_plain(ask: Question) -> bool:
    """Is every read right by the plain argument?

    Some write to the right place comes before the read in the same iteration of the loop in each
    of which there is such a place, so the last write is none of another iteration. Nor is it one
    to another place: each such write is out of the way.
    """
    right = tuple(ask.sources[n] for n in sorted(ask.right))
    elsewhere = [n for n in range(len(ask.sources)) if n not in ask.right]
    if not all(_is_harmless(ask, n, right) for n in elsewhere):
        return False
    nearest: list[tuple[Event, Conditions]] = []
    rest: list[tuple[Event, Conditions]] = []
    for n in sorted(ask.right):
        such, source = ask.together[n], ask.sources[n]
        if such is not None:
            earlier = [way for way in _earlier(ask.reader, source) if not _excluded(way, such)]
            for nested, way in enumerate(reversed(earlier)):  # a window slides in inner loops
                (rest if nested else nearest).append((source, (*such, *way)))
    return _is_met(ask.reader, (*nearest, *rest), ask.sizes)


def _excluded(way: Sequence[Expr], such: Conditions) -> bool:
    """Is a value less that conditions say is equal?"""
    last = way[-1] if way else None
    return isinstance(last, Call) and last.op == "lt" and compare("eq", *last.args[::-1]) in such


def _is_harmless(ask: Question, n: int, right: tuple[Event, ...]) -> bool:
    """Is no write of a source to another place the last before a read?

    Either a write to the right place always follows it before any read, or it cannot come before
    the read in the same iteration.
    """
    such, source = ask.together[n], ask.sources[n]
    if such is None:
        return True
    apart = tuple(event for event in right if not _comes_between(ask.reader, source, event))
    if apart and _partnered(source, apart, ask.sizes):
        return True
    dims = (*ask.reader.dims, *primed(source.dims))
    meets = [*_pair(ask.reader, source), *such]
    try:
        for way in _earlier(ask.reader, source):
            with isl.quota(PLAIN):
                if not points(dims, [*meets, *way], ask.sizes).is_empty():
                    return False
    except isl.Exhausted:
        return False
    return True


@lru_cache(maxsize=2048)
def _partnered(event: Event, partners: tuple[Event, ...], sizes: tuple[str, ...]) -> bool:
    """Does some partner touch the cell later, in the same iteration of all loops around both?"""
    ways = [(other, *_in_turn(event, other)) for other in partners]
    return _is_met(event, tuple((o, shared) for o, order, shared in ways if order < 0), sizes)


@lru_cache(maxsize=2048)
def _is_met(
    event: Event, ways: tuple[tuple[Event, Conditions], ...], sizes: tuple[str, ...]
) -> bool:
    """Does every instance touch the cell of an instance of one of the events, conditions holding?

    The conditions are over the dims of both, those of the other primed.
    """
    left = points(event.dims, event.domain, sizes)
    for other, conditions in ways:
        dims = (*event.dims, *primed(other.dims))
        both = points(dims, [*_pair(event, other), *conditions], sizes)
        try:
            with isl.quota(PLAIN):
                met = both.project_out(raw.dim_type.set, len(event.dims), len(other.dims))
                left = left.subtract(met)
                if left.is_empty():
                    return True
        except isl.Exhausted:
            return False
    return False


def _pair(a: Event, b: Event) -> list[Expr]:
    """The conditions on instances of two events, the second primed, that touch one cell."""
    theirs = [second(condition, b.dims) for condition in b.domain]
    same = [compare("eq", x, second(y, b.dims)) for x, y in zip(a.cell, b.cell, strict=True)]
    return [*a.domain, *theirs, *same]


def _in_turn(a: Event, b: Event) -> tuple[int, Conditions]:
    """Which event is first where they share all loops around both: -1 `a`, 1 `b`, 0 neither.

    Also the conditions, the dims of `b` primed, under which two instances share those loops.
    """
    shared: list[Expr] = []
    for x, y in zip(a.time, b.time, strict=True):
        if isinstance(x, Const) and isinstance(y, Const):
            if x is not y:
                return (-1 if x.value < y.value else 1), tuple(shared)
        else:
            shared.append(compare("eq", x, second(y, b.dims)))
    return 0, tuple(shared)


def _earlier(a: Event, b: Event) -> Iterator[list[Expr]]:
    """The ways in which an instance of `b` (primed) comes before one of `a`."""
    shared: list[Expr] = []
    for x, y in zip(a.time, b.time, strict=True):
        if isinstance(x, Const) and isinstance(y, Const):
            if x is not y:
                if y.value < x.value:
                    yield shared
                return
        else:
            theirs = second(y, b.dims)
            yield [*shared, compare("lt", theirs, x)]
            shared = [*shared, compare("eq", x, theirs)]


def _comes_between(middle: Event, a: Event, b: Event) -> bool:
    """May an event come between `a` and a later `b` that shares all loops around both with it?"""
    for x, y, z in zip(a.time, middle.time, b.time, strict=True):
        if isinstance(x, Const) and isinstance(y, Const) and isinstance(z, Const):
            if x is not z:
                return bool(x.value <= y.value <= z.value)
            if x is not y:
                return False
    return True


def _together(ask: Question, n: int) -> raw.UnionMap:
    """From reads to the instances of a source in the same piece of storage."""
    writer = ask.sources[n]
    spaces = (ask.reader.space, writer.space)
    such = ask.together[n] or ()
    return pairing(ask.reader.dims, primed(writer.dims), such, ask.sizes, spaces).to_union_map()


def _flow(sink: raw.UnionMap, source: raw.UnionMap, order: raw.UnionMap) -> raw.UnionFlow:
    access = raw.UnionAccessInfo.from_sink(sink).set_must_source(source)
    return access.set_schedule_map(order).compute_flow()


def touched(event: Event, sizes: tuple[str, ...]) -> raw.UnionMap:
    """From instances to the cell of each."""
    spaces = (event.space, "")
    return mapping(event.dims, event.cell, event.domain, sizes, spaces).to_union_map()


def _order(events: Sequence[Event], sizes: tuple[str, ...]) -> raw.UnionMap:
    """From instances to times.

    isl's value flow takes a component for a position in a sequence wherever it is a number, and
    then forgets that for other events it is a loop: where two of three had numbers (isl 2026.2),
    their order was lost. So loops are counted from an unknown start, the same for all events.
    """
    columns = zip(*(event.time for event in events), strict=True)
    loops = [not all(isinstance(part, Const) for part in column) for column in columns]
    known = (*sizes, START) if any(loops) else sizes

    def timed(event: Event) -> raw.UnionMap:
        time = [
            add(part, Size(START)) if is_loop else part
            for part, is_loop in zip(event.time, loops, strict=True)
        ]
        return mapping(event.dims, time, event.domain, known, (event.space, "")).to_union_map()

    return union(map(timed, events))


def union(parts: Iterable[raw.UnionMap]) -> raw.UnionMap:
    """All pairs of all parts."""
    total = isl.parse_union_map("{ }")
    for part in parts:
        total = total.union(part)
    return total


def first(found: raw.UnionSet, dims: tuple[str, ...]) -> Mapping[str, int]:
    """Values of the dims (and sizes) at the first of the points."""
    some = found.get_set_list().get_at(0)
    start = some.find_dim_by_name(raw.dim_type.param, isl.ident(START))
    if start >= 0:  # it has no least value, and so there would be no first point
        some = some.project_out(raw.dim_type.param, start, 1)
    return isl.first_point(isl.named(some, dims)) or {}
