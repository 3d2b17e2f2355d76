"""Folded storage: elements that are not needed at the same time share one place.

A buffer folded by n in a dimension keeps the elements whose coordinates there are equal modulo n
in one place. That is right where no element is written into the place of another between that
one's write and its last read. Asked for each dimension alone: elements n or more apart are told
from those nearer, and only a refusal looks at remainders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ...algo import isl
from ...algo.errors import InternalError, ScheduleError
from ...algo.forked import cached_property
from ...algo.isl import raw
from ...algo.tensor_expr.build import compare, const, mod, sub
from ...algo.tensor_expr.expr import Expr, Index
from ...algo.tensor_expr.points import mapping, pairing
from .flow import Role, event, readers, times
from .last_write import QUOTA, Event
from .moments import reach
from .nest import Buffer, Nest
from .relations import from_data, primed, symbols
from .tree import loop_named, loops_to
from .witness import at, element, instance


@dataclass(frozen=True)
class Life:
    """When the elements of a buffer are written and read, within one iteration of its loop.

    Elements are [values of the loops down to the buffer's, coordinates]; `outer` counts the first.
    """

    outer: int
    rank: int
    written: raw.Map
    read: raw.Map

    @cached_property
    def overlapping(self) -> raw.Map:
        """{ e -> f }: f is written after e is, and before e is read, in the same iteration."""
        after = self.written.lex_lt_map(self.written)
        before = self.written.lex_lt_map(self.read).reverse()
        found = after.intersect(before)
        for n in range(self.outer):
            found = found.equate(raw.dim_type.in_, n, raw.dim_type.out, n)
        return found

    def apart(self, pairs: raw.Map, dim: int, folded: Sequence[int]) -> raw.Map:
        """The pairs that differ in one dimension, and perhaps in those folded."""
        for n in range(self.rank):
            if n != dim and n not in folded:
                at = self.outer + n
                pairs = pairs.equate(raw.dim_type.in_, at, raw.dim_type.out, at)
        return pairs

    def reach(self, pairs: raw.Map, dim: int) -> float:
        """How far apart paired elements are in a dimension."""
        return reach(pairs.deltas(), self.outer + dim)


def live_window(nest: Nest, buffer: Buffer, *, rounded: bool = True) -> tuple[tuple[int, int], ...]:
    """The folds that keep what is needed at the same time: (dimension, how many).

    They are rounded up to powers of two, by which remainders are cheap, unless said otherwise.
    """
    found: list[tuple[int, int]] = []
    if not all(_roles(nest, buffer)):
        return ()
    try:
        with isl.quota(QUOTA):
            life = _life(nest, buffer, _sizes(nest, buffer))
            if life is None:
                return ()
            pairs, elements = life.overlapping, life.written.domain()
            everything = raw.Map.from_domain_and_range(elements, elements)
            for n in range(life.outer):
                everything = everything.equate(raw.dim_type.in_, n, raw.dim_type.out, n)
            for dim in range(buffer.rank):
                live = life.reach(life.apart(pairs, dim, [d for d, _ in found]), dim)
                if live < math.inf:
                    count = 1 << int(live).bit_length() if rounded else int(live) + 1
                    if count <= life.reach(everything, dim):
                        found.append((dim, count))
    except isl.Exhausted:
        return ()  # all of it is kept
    return tuple(found)


def check_folds(nest: Nest, who: str) -> None:
    """Raises unless every folded buffer keeps an element as long as it is needed."""
    for buffer in nest.buffers.values():
        if buffer.fold and all(_roles(nest, buffer)):
            _check(nest, buffer, who)


def _check(nest: Nest, buffer: Buffer, who: str) -> None:
    sizes = _sizes(nest, buffer)
    try:
        with isl.quota(QUOTA):
            life = _life(nest, buffer, sizes)
            if life is None:
                raise ScheduleError(
                    f"{who}: which elements of {buffer.tensor} are needed at once depends on data, "
                    "so it cannot be folded"
                )
            pairs = life.overlapping
            for dim, count in buffer.fold:
                close = life.apart(pairs, dim, [d for d, _ in buffer.fold])
                live = life.reach(close, dim)
                if live < count:
                    continue
                clash = close.intersect(_sharing(life, dim, buffer.fold))
                if not clash.is_empty():
                    found = _witness(nest, buffer, clash, sizes)
                    raise ScheduleError(f"{who}: {found}; {_advice(dim, live)}")
    except isl.Exhausted:
        raise ScheduleError(
            f"{who}: could not prove that {buffer.name}, folded, keeps its values long enough; "
            "sizes that are given may help"
        ) from None


def _sizes(nest: Nest, buffer: Buffer) -> list[str]:
    users = [s for s in nest.stmts.values() if s.buffer == buffer.name]
    return symbols(*users, *(role.stmt for role in readers(nest.stmts.values(), {buffer.name})))


def _roles(nest: Nest, buffer: Buffer) -> tuple[list[Role], list[Role]]:
    writers = [Role(s, s.buffer, s.lhs) for s in nest.stmts.values() if s.buffer == buffer.name]
    return writers, list(readers(nest.stmts.values(), {buffer.name}))


def _life(nest: Nest, buffer: Buffer, sizes: Sequence[str]) -> Life | None:
    """None where data decide which elements are touched."""
    writers, reading = _roles(nest, buffer)
    if any(from_data(part) for role in (*writers, *reading) for part in role.cell):
        return None
    outer = _outer(nest, buffer)
    when = times(nest.tree, [*writers, *reading], lambda loop: loop.name in outer)
    written, read = (
        tuple(replace(event(r, when), cell=_element(nest, r, outer)) for r in roles)
        for roles in (writers, reading)
    )
    return _lived(written, read, len(outer), tuple(sizes))


@lru_cache(maxsize=512)
def _lived(
    written: tuple[Event, ...], read: tuple[Event, ...], outer: int, sizes: tuple[str, ...]
) -> Life:
    """The life of elements that are the cells of events."""
    with isl.quota(QUOTA):
        maps = [_union([_times(one, sizes) for one in events]) for events in (written, read)]
        return Life(outer, len(written[0].cell) - outer, *maps)


def _outer(nest: Nest, buffer: Buffer) -> list[str]:
    return [loop.name for loop in loops_to(nest.tree, buffer.at)]


def _times(one: Event, sizes: Sequence[str]) -> raw.Map:
    """{ element -> times } of one access."""
    elements = mapping(one.dims, one.cell, one.domain, sizes)
    return elements.reverse().apply_range(mapping(one.dims, one.time, (), sizes))


def _element(nest: Nest, role: Role, outer: Sequence[str]) -> tuple[Expr, ...]:
    """What an instance touches: the values of the loops down to the buffer's, and coordinates."""
    values = [loop_named(nest.tree, name).values[role.stmt.name] for name in outer]
    return (*values, *role.cell)


def _touched(nest: Nest, role: Role, outer: Sequence[str], sizes: Sequence[str]) -> raw.Map:
    """{ instance -> element } of one access."""
    stmt = role.stmt
    return mapping(stmt.dims, _element(nest, role, outer), [*stmt.domain, *role.guards], sizes)


def _union(parts: Sequence[raw.Map]) -> raw.Map:
    total = parts[0]
    for part in parts[1:]:
        total = total.union(part)
    return total.coalesce()


def _sharing(life: Life, dim: int, folds: Sequence[tuple[int, int]]) -> raw.Map:
    """The pairs of elements in one place, as far as folds go, that differ in a dimension."""
    dims = [f"e{n}" for n in range(life.outer + life.rank)]
    others = [f"f{n}" for n in range(life.outer + life.rank)]
    ends = [(Index(dims[life.outer + n]), Index(others[life.outer + n])) for n in range(life.rank)]
    same = [compare("eq", mod(sub(*ends[n]), const(count)), const(0)) for n, count in folds]
    return pairing(dims, others, [*same, compare("ne", *ends[dim])])


def _witness(nest: Nest, buffer: Buffer, clash: raw.Map, sizes: Sequence[str]) -> str:
    """A reader, and the write that destroys what it wants."""
    writers, reading = _roles(nest, buffer)
    outer = _outer(nest, buffer)
    when = times(nest.tree, [*writers, *reading], lambda loop: loop.name in outer)
    for reader in reading:
        wants = _touched(nest, reader, outer, sizes).apply_range(clash)
        for writer in writers:
            pairs = wants.apply_range(_touched(nest, writer, outer, sizes).reverse())
            written = mapping(writer.stmt.dims, when[writer], (), sizes)
            read = mapping(reader.stmt.dims, when[reader], (), sizes)
            pairs = pairs.intersect(written.lex_lt_map(read).reverse())
            marked = primed(writer.stmt.dims)
            both = pairs.move_dims(
                raw.dim_type.in_, len(reader.stmt.dims), raw.dim_type.out, 0, len(marked)
            ).domain()
            found = isl.first_point(isl.named(both, (*reader.stmt.dims, *marked)))
            if found is not None:
                late = {dim: found[at] for dim, at in zip(writer.stmt.dims, marked, strict=True)}
                mine = element(buffer.tensor, reader.cell, found, found)
                other = element(buffer.tensor, writer.cell, late, found)
                return (
                    f"{instance(reader.stmt, found, found)} reads {mine} after {other} is written "
                    f"in its place{at(reader.stmt)}"
                )
    raise InternalError(f"no reader of {buffer.name} for elements that are in each other's way")


def _advice(dim: int, live: float) -> str:
    if live == math.inf:
        return f"d{dim} cannot be folded at all sizes"
    return f"fold d{dim} by {int(live) + 1} at least"
