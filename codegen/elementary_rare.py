"""A branch around code that few arguments need."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from .lanes import Lanes
from .values import frozen, lanes_of


def where_any(
    x: Lanes, cond: ir.Value, slow: Callable[[], list[ir.Value]], quick: list[ir.Value]
) -> list[Lanes]:
    """The values of `slow` if the condition holds in some lane, else those of `quick`."""
    ib = x.ib
    cond = frozen(ib, cond)
    if lanes_of(cond) > 1:
        bits = ir.IntType(lanes_of(cond))
        cond = ib.icmp_unsigned("!=", ib.bitcast(cond, bits), bits(0))
    before = ib.block
    there, after = ib.append_basic_block("large"), ib.append_basic_block("reduced")
    ib.cbranch(cond, there, after)
    ib.position_at_end(there)
    other = slow()
    end = ib.block
    ib.branch(after)
    ib.position_at_end(after)
    merged = []
    for mine, its in zip(quick, other, strict=True):
        phi = ib.phi(mine.type)
        phi.add_incoming(mine, before)
        phi.add_incoming(its, end)
        merged.append(x.make(phi))
    return merged
