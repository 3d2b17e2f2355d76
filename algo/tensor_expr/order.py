"""An order for recurrences: equations that need elements which they define themselves.

Equations that need each other run in common loops, as Allen and Kennedy distribute them: a level
gives each equation a loop value such that nothing is needed from a later value. What is needed
from the same value decides what comes next inside: equations one after the other, or, where they
still need each other, one more common loop. Values are the written indices, in the written order
where that will do, with as few reversed as possible; else isl's scheduler skews (`skew.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from .. import isl
from .affine import is_affine, to_isl
from .components import components
from .coverage import writes
from .domains import relation, within
from .expr import Call, Expr, Index, Range, indices_of, sizes_of
from .op import Equation, Step
from .order_joint import Needs, in_common, joint_needs, of_members, whole
from .order_refused import names_of, no_order
from .printer import print_expr
from .skew import completed, skewed
from .uses import Read, reads_of

Fail = Callable[[int, str], Exception]
QUOTA = 5 * isl.QUOTA
_MOST = 5  # indices of which all combinations are tried upwards and downwards


def arranged(
    equations: Mapping[int, Equation],
    ranges: Mapping[int, Mapping[str, Range]],
    together: Sequence[Sequence[int]],
    fail: Fail,
) -> tuple[dict[int, Equation], list[Step]]:
    """The equations of a cycle of tensors, each with its loops in order, and how they run.

    `ranges` hold those of reductions too; `together` are the numbers of the equations, those of
    each joint reduction as one. Raises what `fail` makes of an equation and a message where no
    order is found. Remembered, for gradients compute recurrences again as they are written.
    """
    numbers = sorted(equations)
    places = {n: place for place, n in enumerate(numbers)}
    parts = (_Part(places[n], eq, tuple(ranges[n].values())) for n, eq in equations.items())
    groups = (tuple(places[n] for n in group) for group in together)
    try:
        found = _arranged(tuple(parts), tuple(groups))
    except Refused as refused:
        place, message = refused.args
        raise fail(numbers[place], message) from None
    steps = [replace(step, equation=numbers[step.equation]) for _, step in found]
    return {step.equation: eq for (eq, _), step in zip(found, steps, strict=True)}, steps


class _Part(NamedTuple):
    """An equation of a cycle, by its place among them."""

    place: int
    equation: Equation
    ranges: tuple[Range, ...]


class Refused(Exception):
    """No order, by the place of an equation and a message."""


@lru_cache(maxsize=512)
def _arranged(
    parts: tuple[_Part, ...], together: tuple[tuple[int, ...], ...]
) -> tuple[tuple[Equation, Step], ...]:
    equations = {part.place: part.equation for part in parts}
    ranges = {part.place: {r.index: r for r in part.ranges} for part in parts}
    wholes = {group[0]: whole([equations[n] for n in group]) for group in together}
    members = {group[0]: group for group in together}
    equations = {n: in_common(equations[n], wholes[m]) for m in members for n in members[m]}
    try:
        with isl.quota(QUOTA):
            needs = joint_needs(_needs(equations, ranges), equations, members)
            steps = _ordered(wholes, needs)
            if steps is None:
                raise Refused(*no_order(wholes, needs))
    except isl.Exhausted:
        tensors = names_of(eq.tensor for eq in equations.values())
        message = f"could not find an order in which {tensors} can be computed"
        raise Refused(0, message) from None
    return tuple(
        _in_order(equations[each.equation], each)
        for step in steps
        for each in of_members(step, members[step.equation])
    )


def _needs(
    equations: Mapping[int, Equation], ranges: Mapping[int, Mapping[str, Range]]
) -> dict[tuple[int, int], isl.raw.Map]:
    written = {n: writes(eq) for n, eq in equations.items()}
    defined = {eq.tensor for eq in equations.values()}
    found: dict[tuple[int, int], isl.raw.Map] = {}
    for n, eq in equations.items():
        for read in (r for r in reads_of(eq) if r.access.tensor in defined):
            elements = _read(n, eq, read, ranges[n])
            for m, other in equations.items():
                if other.tensor == read.access.tensor:
                    need = elements.apply_range(written[m].reverse())
                    if not need.is_empty():
                        found[n, m] = found[n, m].union(need) if (n, m) in found else need
    return {pair: need.coalesce() for pair, need in found.items()}


def _read(n: int, eq: Equation, read: Read, ranges: Mapping[str, Range]) -> isl.raw.Map:
    """From the instances of an equation to the elements that one access reads."""
    access, scope, guards = read
    if not all(map(is_affine, access.indices)):
        raise Refused(n, f"{print_expr(access)} reads its own tensor where data says")
    outer = [r.index for r in eq.ranges]
    held = [*within(ranges[d] for d in (*outer, *scope)), *guards]
    if eq.where is not None:
        held.append(eq.where)
    elements = relation([*outer, *scope], access.indices, held)
    return elements.project_out(isl.raw.dim_type.in_, len(outer), len(scope))


def _ordered(equations: Mapping[int, Equation], needs: Needs) -> list[Step] | None:
    """How the equations run: with written indices as loops if that will do, else skewed."""
    for downwards in _reversals(equations):
        steps = _Arranger(equations, downwards, skew=False).run(needs)
        if steps is not None:
            return steps
    return _Arranger(equations, frozenset(), skew=True).run(needs)


def _reversals(equations: Mapping[int, Equation]) -> Iterator[frozenset[str]]:
    """Sets of indices to run downwards, small ones first."""
    names = list(dict.fromkeys(r.index for eq in equations.values() for r in eq.ranges))
    counts = range(len(names) + 1) if len(names) <= _MOST else (0, 1, 2)
    for count in counts:
        yield from map(frozenset, itertools.combinations(names, count))


class _Arranger:
    """One attempt; `downwards` are the indices whose loops run downwards."""

    def __init__(
        self, equations: Mapping[int, Equation], downwards: frozenset[str], skew: bool
    ) -> None:
        self.equations, self.downwards, self.skew = equations, downwards, skew
        self.rows: dict[int, list[Expr]] = {n: [] for n in equations}
        self.carries: dict[int, list[bool]] = {n: [] for n in equations}

    def run(self, needs: Needs) -> list[Step] | None:
        """The steps, None where a level has no value for a loop."""
        order = self._arrange(list(self.equations), needs, 0, 0)
        if order is None:
            return None
        return [Step(n, joined, tuple(self.carries[n]), self._loops(n)) for n, joined in order]

    def _loops(self, n: int) -> tuple[Expr, ...]:
        return completed(self.rows[n], self.equations[n].ranges)

    def _arrange(
        self, members: Sequence[int], needs: Needs, depth: int, joined: int
    ) -> list[tuple[int, int]] | None:
        """Equations in order, each with how many loops it shares with the one before it."""
        wanted = {n: [b for a, b in needs if a == n] for n in members}
        out: list[tuple[int, int]] = []
        for part in components(members, wanted):
            shared = depth if out else joined
            inner = {(a, b): need for (a, b), need in needs.items() if a in part and b in part}
            if not inner:
                out.append((part[0], shared))
                continue
            left = self._level(part, inner)
            below = None if left is None else self._arrange(part, left, depth + 1, shared)
            if below is None:
                return None
            out += below
        return out

    def _level(self, part: Sequence[int], needs: Needs) -> Needs | None:
        """Chooses a loop for equations that need each other; what it leaves to inner loops."""
        values = next(self._assignments(part, needs, {}), None)
        if values is None and self.skew:
            values = skewed({n: self.equations[n] for n in part}, needs)
        if values is None:
            return None
        left = {}
        carries = False
        for (a, b), need in needs.items():
            same = need.intersect(_places(self, a, b, values, "same"))
            carries |= not need.is_subset(same)
            if not same.is_empty():
                left[a, b] = same
        for n in part:
            self.rows[n].append(values[n])
            self.carries[n].append(carries)
        return left

    def _assignments(
        self, part: Sequence[int], needs: Needs, chosen: dict[int, Expr]
    ) -> Iterator[dict[int, Expr]]:
        """Values for all equations of a part such that none needs a later value."""
        if len(chosen) == len(part):
            yield chosen
            return
        n = part[len(chosen)]
        leader = next(iter(chosen.values()), None)
        candidates = self._candidates(n)
        for value in sorted(candidates, key=lambda v: leader is not None and v is not leader):
            values = {**chosen, n: value}
            if leader is not None and isinstance(leader, Index) != isinstance(value, Index):
                continue
            new = [p for p in needs if n in p and p[0] in values and p[1] in values]
            if all(needs[a, b].is_disjoint(_places(self, a, b, values, "later")) for a, b in new):
                yield from self._assignments(part, needs, values)

    def _candidates(self, n: int) -> list[Expr]:
        used = {i for row in self.rows[n] for i in indices_of(row)}
        out: list[Expr] = []
        for r in self.equations[n].ranges:
            if r.index not in used and set(indices_of(r.lo) + indices_of(r.hi)) <= used:
                down = r.index in self.downwards
                out.append(Call("neg", (Index(r.index),)) if down else Index(r.index))
        return out

    def names(self, n: int) -> list[str]:
        """The indices of an equation."""
        return [r.index for r in self.equations[n].ranges]


def _places(
    arranger: _Arranger, a: int, b: int, values: Mapping[int, Expr], which: str
) -> isl.raw.Map:
    """The pairs of instances of which the second has the same, or a later, loop value."""
    one = isl.make_map(arranger.names(a), [to_isl(values[a])], params=_sizes(values[a]))
    two = isl.make_map(arranger.names(b), [to_isl(values[b])], params=_sizes(values[b]))
    return one.apply_range(two.reverse()) if which == "same" else one.lex_lt_map(two)


def _sizes(expr: Expr) -> list[str]:
    return sizes_of([expr])


def _in_order(eq: Equation, step: Step) -> tuple[Equation, Step]:
    """The ranges in the order of the loops, which the step then says only where they are more."""
    mine = [indices_of(value) for value in step.loops]
    if any(len(indices) != 1 for indices in mine):
        return eq, step
    by_name = {r.index: r for r in eq.ranges}
    ranges = tuple(by_name.pop(index) for index in dict.fromkeys(index for (index,) in mine))
    ranges += tuple(by_name.values())
    eq = Equation(eq.tensor, eq.lhs, eq.rhs, ranges, eq.where, eq.reducer)
    if len(mine) == len(ranges) and all(isinstance(value, Index) for value in step.loops):
        step = replace(step, loops=())
    return eq, step
