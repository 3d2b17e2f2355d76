"""Which equations need each other, and an order in which those that do not can be computed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeVar

from .expr import accesses
from .folds import groups
from .op import Equation, Op

T = TypeVar("T")


def components(nodes: Sequence[T], needs: Mapping[T, Collection[T]]) -> list[list[T]]:
    """The nodes that need each other, together; each component after those that it needs.

    Of those that may come next, the one with the first node is next; so nodes that need earlier
    ones only keep their order.
    """
    place = {node: n for n, node in enumerate(nodes)}
    after = [[place[m] for m in needs.get(node, ()) if m in place] for node in nodes]
    parts = _together(after)
    part_of = {n: k for k, part in enumerate(parts) for n in part}
    others = [{part_of[m] for n in part for m in after[n]} - {k} for k, part in enumerate(parts)]
    missing = [len(needed) for needed in others]
    waiting: list[list[int]] = [[] for _ in parts]
    for k, needed in enumerate(others):
        for other in needed:
            waiting[other].append(k)
    able = [(part[0], k) for k, part in enumerate(parts) if not missing[k]]
    heapify(able)
    out: list[list[T]] = []
    while able:
        _, done = heappop(able)
        out.append([nodes[n] for n in parts[done]])
        for k in waiting[done]:
            missing[k] -= 1
            if not missing[k]:
                heappush(able, (parts[k][0], k))
    return out


def _together(after: Sequence[Sequence[int]]) -> list[list[int]]:
    """Tarjan's strongly connected components, the nodes of each in order.

    `low` is the number, in the order of the search, of the first open node that a node leads to.
    """
    low: dict[int, int] = {}
    parts: list[list[int]] = []
    open_: dict[int, int] = {}  # nodes that are in no component yet, with their numbers
    for root in range(len(after)):
        way = [] if root in low else [(root, iter(after[root]))]
        if way:
            low[root] = open_[root] = len(low)
        while way:
            n, rest = way[-1]
            new = next((m for m in rest if m not in low), None)
            if new is not None:
                low[new] = open_[new] = len(low)
                way.append((new, iter(after[new])))
                continue
            way.pop()
            low[n] = min([low[n], *(low[m] for m in after[n] if m in open_)])
            if low[n] == open_[n]:
                part = [n]
                while (last := open_.popitem()[0]) != n:
                    part.append(last)
                parts.append(sorted(part))
    return parts


def cycles_of(
    reads: Sequence[tuple[str, Collection[str]]], joint: Iterable[Sequence[int]] = ()
) -> dict[str, int]:
    """The tensors that need themselves, directly or through others, by component.

    `reads` says of every equation in turn which tensor it defines and which it reads. Those of each
    of `joint` are computed together, so what needs the tensor of one needs those of all.
    """
    needs: dict[str, set[str]] = {}
    early = False
    for tensor, read in reversed(reads):
        early |= tensor in read or not needs.keys().isdisjoint(read)
        needs.setdefault(tensor, set()).update(read)
    if not early:
        return {}  # the usual case: every equation reads what those before it define
    found: dict[str, int] = {}
    tied = {tensor: set(read) for tensor, read in needs.items()}
    for group in joint:
        for n in group:
            tied[reads[n][0]] |= {reads[m][0] for m in group if m != n}
    for n, part in enumerate(components(list(tied), tied)):
        if any(not needs[tensor].isdisjoint(part) for tensor in part):
            found |= dict.fromkeys(part, n)
    return found


def recurrences(equations: Sequence[Equation]) -> dict[str, int]:
    """The tensors of equations that need themselves, by component."""
    return cycles_of([(eq.tensor, reads(eq)) for eq in equations], groups(equations))


def tensor_cycles(op: Op) -> dict[str, int]:
    """The defined tensors of an op that need themselves, by component."""
    return recurrences(op.equations)


def reads(eq: Equation) -> set[str]:
    """The tensors that an equation reads."""
    return {access.tensor for root in eq.roots for access in accesses(root)}


def units(op: Op, cycles: Mapping[str, int]) -> list[list[int]]:
    """The equations in an order in which they can be checked: those of a cycle of tensors
    together and those of a joint reduction, every other one alone."""
    unit_of = [
        ("cycle", cycles[op.equations[n].tensor])
        if op.equations[n].tensor in cycles
        else ("alone", group[0])
        for group in groups(op.equations)
        for n in group
    ]
    members: dict[tuple[str, int], list[int]] = {}
    for n, unit in enumerate(unit_of):
        members.setdefault(unit, []).append(n)
    defined: dict[str, set[tuple[str, int]]] = {}
    for eq, unit in zip(op.equations, unit_of, strict=True):
        defined.setdefault(eq.tensor, set()).add(unit)
    needs = {
        unit: {
            other
            for n in numbers
            for tensor in reads(op.equations[n])
            for other in defined.get(tensor, ())
        }
        for unit, numbers in members.items()
    }
    return [members[unit] for (unit,) in components(list(members), needs)]
