"""Users' reducers as stages: folds, whose cells are written again by every instance.

    for i: { m.init; s.init; for d: o.init
             for j: { for d: o.update; s.update; m.update }
             m.final ... }

Each component is updated after those that need its old value; where the needs are cyclic, its new
value is kept aside (`re.new`). An update is an ordinary statement that reads its own cell; its
`turn` says which accesses of the cell it comes after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .affine import is_affine
from .build import both, const
from .expr import Access, Call, Expr, Index, Range, substitute
from .fold_types import identity, typed_combine
from .folds import Joint, Member, Part, order
from .op import Turn


@dataclass(frozen=True, slots=True)
class Written:
    """A stage of a fold, but for what all its stages have in common."""

    name: str
    tensor: str
    ranges: tuple[Range, ...]
    where: Expr | None
    lhs: tuple[Expr, ...]
    value: Expr
    turn: Turn


def loops(members: Sequence[Member]) -> list[tuple[tuple[Range, ...], tuple[Range, ...]]]:
    """The ranges of each component: those that all have, in one order, and the rest."""
    shared = tuple(r for r in members[0].ranges if all(r in m.ranges for m in members))
    return [(shared, tuple(r for r in m.ranges if r not in shared)) for m in members]


def start(joint: Joint) -> Iterator[Written]:
    """The stages that give every component its identity."""
    turn = Turn(joint, (const(0),))
    pairs = zip(joint.members, loops(joint.members), strict=True)
    for n, (member, (shared, rest)) in enumerate(pairs):
        value = identity(Part(joint.fold, n), member.acc)
        name = f"{member.stem}.init"
        yield Written(
            name, member.tensor, (*shared, *rest), member.where, member.place, value, turn
        )


def updates(joint: Joint, kept: Mapping[int, Access]) -> Iterator[Written]:
    """The stages that combine one instance into every component, in a legal order.

    `kept` says where the new values lie that are kept aside.
    """
    fold, members, reduced = joint.fold, joint.members, joint.reduced
    conditions = joint.conditions
    combine = typed_combine(fold, tuple(m.acc for m in members))
    scalars: dict[Expr, Expr] = {}
    for left, right, member in zip(fold.left, fold.right, members, strict=True):
        scalars |= {Access(left, ()): member.cell, Access(right, ()): member.body}
    where: Expr | None = None
    for condition in (c for c in conditions if is_affine(c)):
        where = both(where, condition)
    done, aside = order(fold)
    position = 0
    ranges = [(*shared, *reduced, *rest) for shared, rest in loops(members)]

    def written(n: int, name: str, cell: Access, value: Expr) -> Written:
        nonlocal position
        at = (const(1), *(Index(r.index) for r in reduced), const(position))
        position += 1
        turn = Turn(joint, at)
        return Written(name, cell.tensor, ranges[n], where, cell.indices, value, turn)

    def value(n: int) -> Expr:
        fresh = substitute(combine[n], scalars)
        for condition in (c for c in conditions if not is_affine(c)):
            fresh = Call("where", (condition, fresh, members[n].cell))
        return fresh

    for n in aside:
        yield written(n, f"{members[n].stem}.new", kept[n], value(n))
    for n in done:
        yield written(n, f"{members[n].stem}.update", members[n].cell, value(n))
    for n in aside:
        yield written(n, f"{members[n].stem}.update", members[n].cell, kept[n])


def end(turn: Turn) -> Turn:
    """When the stages that finish the results of a fold have their turn."""
    return Turn(turn.joint, (const(2),))
