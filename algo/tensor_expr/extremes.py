"""Refuses max, min, argmax and argmin of nothing: where a range is empty whatever the sizes are.

Those that only some sizes empty are refused when the sizes are known (`sizes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from .affine import is_affine
from .build import compare, conjuncts, const
from .domains import closure, counterexample, within
from .expr import Const, Expr, Index, Range, Reduce, Size, indices_of, walk
from .located import failure
from .op import Equation, Op

EXTREME = ("max", "min", "argmax", "argmin")


def check_extremes(op: Op, equations: Sequence[Equation]) -> None:
    """Raises `OpError` for the extreme value of nothing; `equations` are those of `op`, checked."""
    for n, eq in enumerate(equations):
        inner = [r for item in walk(eq.rhs) if isinstance(item, Reduce) for r in item.ranges]
        ranges = {r.index: r for r in (*eq.ranges, *inner)}
        for item in walk(eq.rhs):
            if not isinstance(item, Reduce) or item.reducer not in EXTREME or _is_plain(item):
                continue
            dims = closure(item.indices, ranges)
            held: list[Expr] = within(ranges[d] for d in dims)
            own = {*item.indices}
            said = [c for c in conjuncts(item.where) if own & {*indices_of(c)} and is_affine(c)]
            if said:
                dims = closure([*ranges], ranges)
                held = [*within(ranges[d] for d in dims), *said]
            first = ranges[item.indices[0]]
            if counterexample(dims, held, [compare("lt", Index(first.index), first.lo)]) is None:
                left = ", ".join(item.indices)
                raise failure(
                    op,
                    n,
                    f"{item.reducer} over {left} has no value: there is nothing in its range, "
                    f"whatever the sizes are; give {left} a range that is not empty",
                )


def _is_plain(item: Reduce) -> bool:
    return item.where is None and all(_from_nought(r) for r in item.ranges)


def _from_nought(r: Range) -> bool:
    """Is the range that of a whole dimension? Sizes are at least 1."""
    whole = isinstance(r.hi, Size) or (isinstance(r.hi, Const) and r.hi.value > 0)
    return r.lo is const(0) and whole
