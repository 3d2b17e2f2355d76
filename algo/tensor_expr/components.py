"""Which equations need each other, and an order in which those that do not can be computed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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
    reach = [0] * len(nodes)
    changed = True
    while changed:
        changed = False
        for node, n in place.items():
            found = reach[n]
            for other in needs.get(node, ()):
                if other in place:
                    found |= reach[place[other]] | 1 << place[other]
            changed |= found != reach[n]
            reach[n] = found
    parts: list[list[int]] = []
    part_of: dict[int, int] = {}
    for n in range(len(nodes)):
        if n not in part_of:
            mine = [m for m in range(n, len(nodes)) if m == n or reach[n] >> m & reach[m] >> n & 1]
            part_of |= dict.fromkeys(mine, len(parts))
            parts.append(mine)
    out: list[list[T]] = []
    done, left = 0, list(parts)
    while left:
        part = next(p for p in left if not reach[p[0]] & ~(done | _mask(p)))
        left.remove(part)
        done |= _mask(part)
        out.append([nodes[n] for n in part])
    return out


def _mask(numbers: Sequence[int]) -> int:
    return sum(1 << n for n in numbers)


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
