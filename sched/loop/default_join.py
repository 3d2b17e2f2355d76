"""Blocks of a loop in which temporaries are computed, where contractions among them use them.

    for i: s[i,:] = .., y[i,:] = sum(s[i,j] * V[j,:])
        ==>   for ib: for 64 rows: s = .. in tiles; for 64 rows: y = .. in tiles

Row by row each load would serve one row. A block of rows is as long as the temporaries that belong
to it stay in the second cache; attention is computed so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .access import Group
from .default_contract import contraction
from .machine import Machine
from .sketch import Choice

ROWS = 64
"""The longest block: by then a tile's loads serve many times."""


def blocked(
    found: Sequence[Group],
    choices: Mapping[str, Choice],
    lanes: Mapping[str, int],
    machine: Machine,
) -> dict[str, Choice]:
    """The choices, with blocks of the consumer's loop around what is joined to it."""
    changed = dict(choices)
    last = found[-1]
    for index in reversed(last.outs):
        joined = [g for g in found if choices[g.name].join == (last.name, index)]
        tiled = {g.name: c for g in joined if (c := _tiled(g, last, index, lanes, machine))}
        rows = _whole_tiles(
            _rows(joined, last, index, machine), last.outs.index(index), joined, tiled
        )
        mine = choices[last.name]
        if not tiled or rows < 2 or last.reds or mine.vector == index or mine.merge:
            continue
        for name, choice in tiled.items():
            changed[name] = replace(choice, join=(last.name, index))
        if mine.outer == index:
            changed[last.name] = replace(mine, chunk=rows)
        else:
            changed[last.name] = replace(mine, blocks=((index, rows),))
        break
    return changed


def _tiled(
    group: Group, last: Group, index: str, lanes: Mapping[str, int], machine: Machine
) -> Choice | None:
    """The choice for a contraction in which several rows share what is loaded."""
    row = group.outs[last.outs.index(index)]
    shared = any(group.stride(a, row) == 0 for a in group.reads)
    if not group.reds or not shared or not group.is_plain or group.holes or group.scatters:
        return None
    found = contraction(group, lanes[group.name], machine)
    if found is None or not found.tile or found.vector not in group.outs:
        return None
    return replace(found, outer=None, blocks=())


def _whole_tiles(
    rows: int, depth: int, joined: Sequence[Group], tiled: Mapping[str, Choice]
) -> int:
    """Rows of a block that tiles along them divide: others would be cut at both of its ends."""
    unit = 1
    for group in joined:
        heights = dict(tiled[group.name].tile) if group.name in tiled else {}
        height = heights.get(group.outs[depth], 1)
        unit = height if math.lcm(unit, height) > rows else math.lcm(unit, height)
    return max(unit, rows - rows % unit)


def _rows(joined: Sequence[Group], last: Group, index: str, machine: Machine) -> int:
    """Rows of a block: what they need of temporaries fits half of the second cache."""
    depth = last.outs.index(index) + 1
    each = sum(
        math.prod(g.shapes[g.name][depth:]) * g.sizes[g.name] for g in joined if g.name in g.shapes
    )
    extent = last.extents[index]
    shared = -(-extent // machine.threads) if depth == 1 else extent
    return min(ROWS, shared, machine.l2 // 2 // max(1, each))
