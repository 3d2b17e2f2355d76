"""An order for recurrences: equations that need elements which they define themselves.

Equations that need each other run in common loops, as Allen and Kennedy distribute them: a level
gives each equation a loop value such that nothing is needed from a later value. What is needed
from the same value decides what comes next inside: equations one after the other, or, where they
still need each other, one more common loop. Values are the written indices, in the written order
where that will do, with as few reversed as possible; else isl's scheduler skews (`skew.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from .. import isl
from .affine import is_affine, normalize, to_isl
from .components import components
from .coverage import at_sizes, writes
from .domains import relation, within
from .expr import Access, Call, Const, Expr, Index, Range, Size, indices_of, sizes_of, substitute
from .op import Equation, Step
from .order_joint import Needs, in_common, joint_needs, of_members, whole
from .printer import print_expr
from .skew import completed, skewed
from .uses import Use

Fail = Callable[[int, str], Exception]
QUOTA = 5 * isl.QUOTA
_MOST = 5  # indices of which all combinations are tried upwards and downwards


def arranged(
    equations: Mapping[int, Equation],
    uses: Mapping[int, Sequence[Use]],
    ranges: Mapping[int, Mapping[str, Range]],
    together: Sequence[Sequence[int]],
    fail: Fail,
) -> tuple[dict[int, Equation], list[Step]]:
    """The equations of a cycle of tensors, each with its loops in order, and how they run.

    `ranges` hold those of reductions too; `together` are the numbers of the equations, those of
    each joint reduction as one. Raises what `fail` makes of an equation and a message where no
    order is found.
    """
    first = min(equations)
    wholes = {group[0]: whole([equations[n] for n in group]) for group in together}
    members = {group[0]: group for group in together}
    equations = {n: in_common(equations[n], wholes[m]) for m in members for n in members[m]}
    try:
        with isl.quota(QUOTA):
            needs = joint_needs(_needs(equations, uses, ranges, fail), equations, members)
            steps = _ordered(wholes, needs)
            if steps is None:
                raise _no_order(wholes, needs, fail)
    except isl.Exhausted:
        tensors = _names(eq.tensor for eq in equations.values())
        raise fail(first, f"could not find an order in which {tensors} can be computed") from None
    found = [
        _in_order(equations[each.equation], each)
        for step in steps
        for each in of_members(step, members[step.equation])
    ]
    return {step.equation: eq for eq, step in found}, [step for _, step in found]


def _needs(
    equations: Mapping[int, Equation],
    uses: Mapping[int, Sequence[Use]],
    ranges: Mapping[int, Mapping[str, Range]],
    fail: Fail,
) -> dict[tuple[int, int], isl.raw.Map]:
    written = {n: writes(eq) for n, eq in equations.items()}
    defined = {eq.tensor for eq in equations.values()}
    found: dict[tuple[int, int], isl.raw.Map] = {}
    for n, eq in equations.items():
        reads = dict.fromkeys(
            (u.access, u.scope, u.guards) for u in uses[n] if u.tensor in defined and not u.write
        )
        for read in reads:
            elements = _read(n, eq, read, ranges[n], fail)
            for m, other in equations.items():
                if other.tensor == read[0].tensor:
                    need = elements.apply_range(written[m].reverse())
                    if not need.is_empty():
                        found[n, m] = found[n, m].union(need) if (n, m) in found else need
    return {pair: need.coalesce() for pair, need in found.items()}


def _read(
    n: int,
    eq: Equation,
    read: tuple[Access, tuple[str, ...], tuple[Expr, ...]],
    ranges: Mapping[str, Range],
    fail: Fail,
) -> isl.raw.Map:
    """From the instances of an equation to the elements that one access reads."""
    access, scope, guards = read
    if not all(map(is_affine, access.indices)):
        raise fail(n, f"{print_expr(access)} reads its own tensor where data says")
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
    ranges = tuple(by_name.pop(index) for (index,) in mine)
    ranges += tuple(by_name.values())
    eq = Equation(eq.tensor, eq.lhs, eq.rhs, ranges, eq.where, eq.reducer)
    if all(isinstance(value, Index) for value in step.loops):
        step = replace(step, loops=())
    return eq, step


def _no_order(equations: Mapping[int, Equation], needs: Needs, fail: Fail) -> Exception:
    """The error, with instances that need each other where two such are found."""
    n = min(a for a, _ in needs)
    circle = _circle(equations, needs)
    if circle is not None:
        return fail(*circle)
    names = dict.fromkeys(r.index for eq in equations.values() for r in eq.ranges)
    tensors = dict.fromkeys(equations[a].tensor for a, _ in needs)
    what = "reads its own elements" if len(tensors) == 1 else "read each other's elements"
    return fail(
        n,
        f"{_names(tensors)} {what} and no affine order of {', '.join(names)} was found that "
        f"computes each before it is read; several equations, one a region, may have one",
    )


def _circle(equations: Mapping[int, Equation], needs: Needs) -> tuple[int, str] | None:
    """An instance that needs itself, directly or by one other, in words."""
    for (a, b), need in needs.items():
        eq = equations[a]
        if a == b:
            same = isl.raw.Map.identity(need.get_space())
            point = isl.first_point(_named(need.intersect(same).domain(), eq))
            if point is not None:
                sizes = at_sizes(point, [r.index for r in eq.ranges])
                return a, f"{_element(eq, point)} needs itself{sizes}, so nothing can compute it"
        if (b, a) not in needs:
            continue
        both = need.intersect(needs[b, a].reverse())
        one = isl.first_point(_named(both.domain(), eq))
        if one is None:
            continue
        sizes = at_sizes(one, [r.index for r in eq.ranges])
        here = _named(both.domain(), eq)
        for at, r in enumerate(eq.ranges):
            here = here.fix_val(isl.raw.dim_type.set, at, isl.raw.Val(one[r.index]))
        two = isl.first_point(_named(here.apply(both), equations[b]))
        assert two is not None
        x, y = _element(eq, one), _element(equations[b], two)
        return a, f"{x} needs {y}, which needs {x}{sizes}, so no order computes them"
    return None


def _named(points: isl.raw.Set, eq: Equation) -> isl.raw.Set:
    return isl.named(points, [r.index for r in eq.ranges])


def _element(eq: Equation, point: Mapping[str, int]) -> str:
    known: dict[Expr, Expr] = {Index(r.index): Const(point[r.index]) for r in eq.ranges}
    known |= {Size(name): Const(n) for name, n in point.items()}
    cell = [print_expr(normalize(substitute(e, known))) for e in eq.lhs]
    return f"{eq.tensor}[{','.join(cell)}]"


def _names(tensors: Iterable[str]) -> str:
    names = list(dict.fromkeys(tensors))
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
