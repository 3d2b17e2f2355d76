"""Range inference in rounds: what values may each index of an equation take?

An access `x[i+k]` says that `i+k` stays inside `x`. Each round takes the uses in which exactly one
index is still unknown and solves that index for *all* values of the known ones, intersected over
all such uses (solving for some value of the others would read outside the tensor). What determined
nothing is proved afterwards. The method is that of Tensor Comprehensions (arXiv:1802.04730).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from .. import isl
from . import affine
from .affine import to_isl
from .build import add, both, compare, const, maximum, minimum
from .domains import always, closure, domain, interval, within
from .expr import Const, Expr, Index, Range, indices_of, sizes_of
from .printer import print_expr
from .uses import Use

Fail = Callable[[str], Exception]
Extent = Callable[[str, int], Expr | None]


def infer(
    indices: Sequence[str],
    outer: Sequence[str],
    given: Mapping[str, Range],
    uses: Sequence[Use],
    extent: Extent,
    fail: Fail,
) -> dict[str, Range]:
    """A range for every index. `extent` gives extents, None where one is not known yet.

    `outer` are the indices of the equation itself; the others are bound by reductions. `fail`
    makes the error for a message. An index on the left is at least 0 by being there.
    """
    known = {i: given[i] for i in indices if i in given}
    free = [u for u in uses if not u.guarded]
    while len(known) < len(indices):
        ready: dict[str, list[Use]] = {}
        complete: list[str] = []
        for index in (i for i in indices if i not in known):
            all_uses = [u for u in free if index in indices_of(u.expr)]
            mine = [u for u in all_uses if _unknown(u, known) == [index]]
            # A bound from above must come from somewhere; later rounds may still bring one.
            if any(extent(u.tensor, u.dim) is not None for u in mine):
                ready[index] = mine
                complete += [index] if len(mine) == len(all_uses) else []
        if not ready:
            raise fail(_undetermined([i for i in indices if i not in known], uses))
        # Where uses would be left over, reductions keep their extent and the outputs shrink.
        reduced = [i for i in ready if i not in outer]
        now = complete or reduced or list(ready)
        known |= {i: _solve(i, ready[i], known, extent, fail) for i in now}
    return {i: known[i] for i in indices}


def _unknown(use: Use, known: Mapping[str, Range]) -> list[str]:
    return [i for i in indices_of(use.expr) if i not in known]


def _undetermined(unknown: Sequence[str], uses: Sequence[Use]) -> str:
    index = unknown[0]
    mine = [u for u in uses if index in indices_of(u.expr) and not u.write]
    example = f"give it a range, as in `where {index} in 0:{index.upper()}`"
    if not mine:
        size = index.upper()
        return (
            f"nothing says how far index {index} goes; give it a range, as in `where {index} in "
            f"0:8`, or in 0:{size} where a header says that {size} is a size, as in "
            f"`f(x: [{size}])`"
        )
    if all(u.guarded for u in mine):
        return f"index {index} is used only where a condition guards the access; {example}"
    if len(unknown) > 1:
        return f"no access determines one of the indices {', '.join(unknown)} alone; {example}"
    return f"no access says how far index {index} goes; {example}"


def _solve(
    index: str, mine: Sequence[Use], known: Mapping[str, Range], extent: Extent, fail: Fail
) -> Range:
    lows: list[Expr] = []
    highs: list[Expr] = []
    shifted: list[Use] = []
    for use in mine:
        end = extent(use.tensor, use.dim)
        if isinstance(use.expr, Index):
            lows.append(const(0))
            highs += [] if end is None else [end]
        else:
            shifted.append(use)
    with isl.quota():
        values: isl.raw.Set | None = None
        for use in shifted:
            good = _allowed(index, use, known, extent(use.tensor, use.dim))
            values = good if values is None else values.intersect(good)
        found = ([], []) if values is None else interval(values)
    if found is None and highs:
        found = [], []  # the other uses give a range; this one is left to be proved
    if found is None:
        raise fail(
            f"{_names(shifted)} {_allow(shifted)} index {index} values that are not a range; "
            f"give it one, as in `where {index} in 0:{index.upper()}`"
        )
    lows += found[0]
    highs += [add(h, const(1)) for h in found[1]]
    if not lows or not highs:
        raise fail(
            f"{_names(shifted)} {_leave(shifted)} index {index} unbounded; "
            f"give it a range, as in `where {index} in 0:{index.upper()}`"
        )
    lo, hi = tightest(lows, maximum), tightest(highs, minimum)
    return Range(index, lo, hi)


def _allowed(index: str, use: Use, known: Mapping[str, Range], end: Expr | None) -> isl.raw.Set:
    """The values of `index` for which the use is in bounds whatever the known indices are."""
    others = closure([i for i in indices_of(use.expr) if i != index], known)
    inside = within(known[i] for i in others)
    held = [g for g in use.guards if set(indices_of(g)) <= {index, *others}]
    claim = both(
        compare("le", const(0), use.expr),
        None if end is None else compare("lt", use.expr, end),
    )
    assert claim is not None
    sizes = sizes_of([*inside, *held, claim])
    positive = [f"{isl.ident(s)} >= 1" for s in sizes]
    texts = [to_isl(c) for c in (*inside, *held)]
    bad = isl.make_set([index, *others], [*texts, f"not {to_isl(claim)}"], sizes)
    good = isl.make_set([index], positive, sizes).subtract(
        bad.project_out(isl.raw.dim_type.set, 1, len(others))
    )
    # Where the others have no value at all, anything goes; the formula is made for where they do.
    some = domain(others, inside).params() if others else isl.make_set([], positive, sizes).params()
    return good.intersect_params(some).gist_params(some)


def tightest(bounds: Iterable[Expr], combine: Callable[[Expr, Expr], Expr]) -> Expr:
    """The minimum (or maximum) of bounds, without those that never decide."""
    kept: list[Expr] = []
    op = "le" if combine is minimum else "ge"
    for bound in dict.fromkeys(affine.normalize(b) for b in bounds):
        if any(_certain(op, other, bound) for other in kept):
            continue
        kept = [k for k in kept if not _certain(op, bound, k)] + [bound]
    out = kept[0]
    for bound in kept[1:]:
        out = combine(out, bound)
    return affine.normalize(out)


def _certain(op: str, a: Expr, b: Expr) -> bool:
    claim = affine.normalize(compare(op, a, b))
    if isinstance(claim, Const):
        return claim.value is True
    return not indices_of(claim) and affine.is_affine(claim) and always(claim)


def _names(uses: Sequence[Use]) -> str:
    return " and ".join(dict.fromkeys(print_expr(u.access) for u in uses))


def _allow(uses: Sequence[Use]) -> str:
    return "allows" if len({u.access for u in uses}) == 1 else "allow"


def _leave(uses: Sequence[Use]) -> str:
    return "leaves" if len({u.access for u in uses}) == 1 else "leave"
