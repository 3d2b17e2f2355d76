"""Results that are computed side by side: what they walk through is read once.

    dx[i,j] = f(x[i,j], dy[i,j])            for i: for j: dx = ..
    dg[j] = sum(x[i,j] * dy[i,j])     ==>   and for the same i and j: dg += .., db += ..
    db[j] = sum(dy[i,j])

Each alone would read all of `x` and `dy` from memory again. Temporaries that all of them read are
then computed inside of the one loop over rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .access import Group
from .default_joins import reads_of
from .machine import Machine
from .sketch import Choice

RUN = 8
"""Vectors of a row, at least: shorter ones had better be made one walk with those around."""


@dataclass(frozen=True, slots=True)
class Company:
    """Nests in the order in which they run, all with loops over the same indices in one order.

    The last of them is what the loops are called by.
    """

    groups: tuple[Group, ...]
    order: tuple[str, ...]

    @property
    def host(self) -> str:
        """The nest that has the loops."""
        return self.groups[-1].name

    def choices(self, machine: Machine) -> Mapping[str, Choice]:
        """Lanes along the memory; threads share rows, in blocks where a nest sums over these.

        A block's sums lie in memory of their own, where vectors do not cross lines.
        """
        first, chunk = self.order[0], 0
        if any(first in group.reds for group in self.groups):
            chunk = -(-self.groups[-1].extents[first] // (4 * machine.threads))
        chosen = Choice(vector=self.order[-1], outer=first, chunk=chunk)
        names = tuple(group.name for group in self.groups[:-1])
        return dict.fromkeys(names, chosen) | {self.host: replace(chosen, beside=names)}


def company(found: Sequence[Group], temps: Collection[str], machine: Machine) -> Company | None:
    """The results, two or more, that walk through one large tensor, or through what is computed
    from one, none of which another needs."""
    needs: dict[str, set[str]] = {}
    for group in found:
        read = {a.tensor for a in reads_of(group)}
        needs[group.main.tensor] = read.union(*(needs.get(t, set()) for t in read))
    last = found[-1]
    sizes = {t: math.prod(last.shapes[t]) * last.sizes[t] for t in last.shapes}
    large = {t for t in needs[last.main.tensor] if sizes[t] > machine.l2}
    for order in _walks(last, machine):
        together = [
            g
            for g in found
            if _plain(g, temps)
            and order in _walks(g, machine)
            and g.extents == last.extents
            and needs[g.main.tensor] & large
        ]
        written = {g.main.tensor for g in together}
        apart = len(written) == len(together) and not any(needs[t] & written for t in written)
        if len(together) > 1 and together[-1] is last and apart:
            return Company(tuple(together), order)
    return None


def _plain(group: Group, temps: Collection[str]) -> bool:
    """Is it a result that is neither a recurrence nor a fold, nor one by an equality?"""
    plain = group.is_plain and not group.solved and not group.holes
    return plain and group.main.tensor.removesuffix(".acc") not in temps


def _walks(group: Group, machine: Machine) -> Iterator[tuple[str, ...]]:
    """The loops of a nest in the order in which it goes through a tensor that no cache holds, of
    which each instance reads an element of its own, row by row in many vectors."""
    every = [i for i in (*group.outs, *group.reds) if group.extents[i] > 1]
    for read in group.reads:
        elements = math.prod(group.shapes[read.tensor])
        steps = {i: group.stride(read, i) for i in every}
        whole = elements == group.work and elements * group.sizes[read.tensor] > machine.l2
        if whole and len(every) > 1 and all(steps.values()):
            order = tuple(sorted(every, key=lambda i: -(steps[i] or 0)))
            if group.extents[order[-1]] >= RUN * machine.lanes(group.widest):
                yield order
