"""Joint reductions as written: the equations of one, brought to the same indices and condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import counted
from .binding import OPEN, stays
from .build import both
from .expr import Access, Call, Expr, Range, Reduce, accesses, indices_of, walk
from .folds import Part, is_joint, part_of

if TYPE_CHECKING:
    from .surface import Draft


def unified(drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts, those of a joint reduction with its indices, ranges and condition in each.

    Raises where one component stands without the others, or where they cannot be combined.
    """
    out: list[Draft] = []
    while len(out) < len(drafts):
        draft = drafts[len(out)]
        _check_types(draft)
        part = part_of(draft.rhs)
        if part is None or not is_joint(draft.rhs):
            lost = next((e for e in walk(draft.rhs) if is_joint(e)), None)
            if lost is not None and isinstance(lost, Reduce):
                raise _alone(draft, lost.reducer)
            out.append(draft)
            continue
        members = drafts[len(out) : len(out) + len(part.fold.combine)]
        parts = [part_of(member.rhs) for member in members]
        if parts != [Part(part.fold, n) for n in range(len(part.fold.combine))]:
            raise _alone(draft, part)
        out += _together(part, members)
    return out


def _check_types(draft: Draft) -> None:
    for item in walk(draft.rhs):
        if part_of(item) is not None and isinstance(item, Reduce) and item.dtype is not None:
            raise draft.error(
                f"{item.reducer} keeps the types of what it combines; to have another type cast "
                f"that: {item.dtype}(...)",
                str(item.reducer),
            )


def _alone(draft: Draft, part: object) -> Exception:
    assert isinstance(part, Part)
    count = len(part.fold.combine)
    names = ", ".join(f"{name}[...]" for name in part.fold.left)
    return draft.error(
        f"{part} gives {counted(count, 'result')} together; define all of them at once: "
        f"{names} = {part}(...)",
        str(part),
    )


def _together(part: Part, members: Sequence[Draft]) -> list[Draft]:
    first, fold = members[0], part.fold
    for n, member in enumerate(members):
        if member.tensor in [other.tensor for other in members[:n]]:
            raise member.error(
                f"{member.tensor} stands twice on the left; {part} gives "
                f"{counted(len(members), 'result')}, each a tensor of its own",
                member.tensor,
            )
    reduces = [member.rhs for member in members if isinstance(member.rhs, Reduce)]
    left = [[name for e in member.lhs for name in indices_of(e)] for member in members]
    every = list(dict.fromkeys(name for names in left for name in names))
    where = reduces[0].where
    for condition in dict.fromkeys(c for member in members for c in member.conditions):
        where = both(where, condition)
    given = dict.fromkeys(r for member in members for r in member.ranges)
    own = reduces[0].indices
    if own == OPEN:
        body = Call("tuple", tuple(item.body for item in reduces))
        own = tuple(stays(Reduce(part, OPEN, body, reduces[0].ranges, where), every))
        own += tuple(r.index for r in given if r.index not in (*own, *every))
        if not own:
            raise first.error(
                f"{part} reduces over nothing: its indices are on the left; name its index with "
                f"over=",
                str(part),
            )
    for name in own:
        if name in every:
            raise first.error(
                f"{part} reduces over {name}, which the equation itself runs over; "
                f"use another name",
                name,
            )
    ranges = (*reduces[0].ranges, *(r for r in given if r.index in own))
    _check_common(first, part, members, where, ranges, [*own, *set(left[0]).intersection(*left)])
    for n, member in enumerate(members):
        for other in fold.needs(n):
            missing = [name for name in left[other] if name not in left[n]]
            if missing:
                raise member.error(
                    f"{member.tensor} is combined from {members[other].tensor}, which has index "
                    f"{missing[0]} and {member.tensor} has not; a component of {part} may need "
                    f"only components whose indices it has",
                    member.tensor,
                )
        read = set(accesses(member.rhs))
        for other_member in members:
            if Access(other_member.tensor, other_member.lhs) in read:
                raise member.error(
                    f"{other_member.tensor} is read by the reduction that defines it; "
                    f"read it in a later equation",
                    other_member.tensor,
                )
    return [
        replace(
            member,
            rhs=Reduce(Part(fold, n), own, reduces[n].body, ranges, where, None),
            ranges=tuple(r for r in given if r.index in left[n]),
            conditions=(),
        )
        for n, member in enumerate(members)
    ]


def _check_common(
    first: Draft,
    part: Part,
    members: Sequence[Draft],
    where: Expr | None,
    ranges: Sequence[Range],
    common: Sequence[str],
) -> None:
    """The instances are the same for all components, so what chooses them is known to all."""
    chosen = [e for r in ranges for e in (r.lo, r.hi)] + ([] if where is None else [where])
    for name in (name for e in chosen for name in indices_of(e)):
        if name not in common:
            targets = ", ".join(member.tensor for member in members)
            raise first.error(
                f"{part} combines the same instances into each of {targets}, and index {name}, "
                f"which chooses them, is not an index of all",
                name,
            )
