"""Is a nest a product of matrices of bytes, which machines add up by words of four?

Rows are an index that moves one factor, columns one that moves the other, best along the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...algo.tensor_expr.affine import linear
from ...algo.tensor_expr.build import conjuncts
from ...algo.tensor_expr.expr import Access, Index, accesses, indices_of
from .access import Group
from .dot import factors
from .tile_model import bare

LEAST = 16
"""Products along the sum that are worth words."""


@dataclass(frozen=True, slots=True)
class Words:
    """Which loops of a nest are rows, columns and the sum, and what the first two move."""

    rows: str
    columns: str
    depth: str
    left: Access
    right: Access


def words_of(group: Group) -> Words | None:
    """How a nest is a product of matrices of bytes, or None where it is none."""
    main = group.main
    found = factors(main.value, group.kinds) if main.reducer == "sum" else None
    if found is None or main.carries or group.holes or group.fold is not None:
        return None
    if any(indices_of(end) for r in main.ranges for end in (r.lo, r.hi)):
        return None  # of a triangle hardly a word is whole
    reads = [accesses(factor) for factor in found]
    if any(len(part) != 1 for part in reads) or conjuncts(main.where):
        return None
    one, two = reads[0][0], reads[1][0]
    if group.kinds[one.tensor].is_float or one.tensor == two.tensor:
        return None
    outs = [i for i in group.outs if group.extents[i] > 1]
    apart = [
        [i for i in outs if group.stride(a, i) != 0 and group.stride(b, i) == 0]
        for a, b in ((one, two), (two, one))
    ]
    if not all(apart):
        return None
    run = next((i for i in reversed(outs) if group.store_stride(i) == 1), outs[-1])
    right = 0 if run in apart[0] else 1
    columns = run if run in apart[right] else apart[right][-1]
    a, b = (two, one) if right == 0 else (one, two)
    rows = max(apart[1 - right], key=lambda i: (bare(a, i) is not None, group.extents[i]))
    depths = [
        i
        for i in group.reds
        if group.stride(a, i) != 0 and bare(b, i) is not None and group.extents[i] >= LEAST
    ]
    if (
        not depths
        or len({Index(rows), Index(columns)} & set(main.lhs)) < 2
        or not _plain(b, columns)
    ):
        return None
    return Words(rows, columns, max(depths, key=lambda i: group.extents[i]), a, b)


def _plain(read: Access, index: str) -> bool:
    """Do neighbours along an index lie side by side in one dimension, and only there?"""
    forms = [linear(part) for part in read.indices]
    steps = [form.of(Index(index)) for form in forms if form is not None]
    return sorted(map(abs, steps)) == [*[0] * (len(forms) - 1), 1] and max(steps) == 1
