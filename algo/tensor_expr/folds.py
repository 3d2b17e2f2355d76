"""Users' own reducers: how two tuples of values become one, and from what identity.

A `Fold` has one or several components. `combine` says each component of the result over the
scalars named in `left` (what was accumulated so far) and in `right` (one more instance, or another
partial result), read as tensors of rank 0. It is associative. Instances are combined in ascending
lexicographic order of the reduction's indices; `commutative` allows other orders.

In an equation a `Part` stands where the name of a reducer of the language would: component
`number` of a fold. A fold of one component may stand anywhere. One of several stands alone on the
right sides of as many neighbouring equations, one a component and in order: these make one joint
reduction, over the same indices under the same condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ..dtypes import DType
from ..node import node
from .expr import Access, Cast, Const, Expr, Range, Reduce, accesses

if TYPE_CHECKING:
    from typing import Any

    from .op import Equation, Op, Rule
    from .surface import Draft


@node
class Fold:
    """See the module. `lift` gives the components of a whole block at once: an operator that
    takes one tensor a component, indexed by the position in the block, then as the component is.
    `rule` says how a reduction is differentiated, in the names of `whole`.
    """

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    combine: tuple[Expr, ...]
    identity: tuple[Const, ...]
    commutative: bool = True
    lift: Op | None = None
    rule: Rule | None = None

    def __str__(self) -> str:
        return self.name

    def called(self, name: str) -> Fold:
        """The same under another name."""
        return self.but(name=name)

    def but(self, **changes: Any) -> Fold:
        """The same with other fields."""
        names = ("name", "left", "right", "combine", "identity", "commutative", "lift", "rule")
        return Fold(*(changes.get(name, getattr(self, name)) for name in names))

    def needs(self, number: int) -> tuple[int, ...]:
        """The other components whose values one component is combined from, in order."""
        return _needs(self)[number]


@node
class Part:
    """Component `number` of a fold, the reducer of a `Reduce`."""

    fold: Fold
    number: int

    def __str__(self) -> str:
        return self.fold.name


@dataclass(frozen=True, slots=True)
class Member:
    """One component of a reduction in stages: their stem, its cell and own indices, what it takes.

    `where` says which cells there are.
    """

    stem: str
    tensor: str
    place: tuple[Expr, ...]
    ranges: tuple[Range, ...]
    acc: DType
    body: Expr
    where: Expr | None = None

    @property
    def cell(self) -> Access:
        """Where it is accumulated."""
        return Access(self.tensor, self.place)


@dataclass(frozen=True, slots=True)
class Joint:
    """A reduction by a fold, in stages: for all `reduced` where all `conditions`."""

    fold: Fold
    members: tuple[Member, ...]
    reduced: tuple[Range, ...]
    conditions: tuple[Expr, ...]

    @property
    def name(self) -> str:
        """What it and its loops are called: by the component of the most indices."""
        return max(self.members, key=lambda member: len(member.ranges)).stem


@lru_cache(maxsize=256)
def _needs(fold: Fold) -> tuple[tuple[int, ...], ...]:
    every = []
    for number, expr in enumerate(fold.combine):
        read = {access.tensor for access in accesses(expr)}
        pairs = enumerate(zip(fold.left, fold.right, strict=True))
        every.append(tuple(n for n, pair in pairs if n != number and not read.isdisjoint(pair)))
    return tuple(every)


def order(fold: Fold) -> tuple[list[int], list[int]]:
    """The components in an order in which each is updated after those that need its old value.

    Second: those whose new value must be kept aside until then, where the needs are cyclic.
    """
    left = list(range(len(fold.combine)))
    done: list[int] = []
    aside: list[int] = []
    while left:
        free = [n for n in left if not any(n in fold.needs(m) for m in left if m != n)]
        if free:
            done.append(free[-1])
            left.remove(free[-1])
        else:  # what is kept aside is computed first, so that it needs nobody's old value any more
            aside.append(left.pop(0))
    return done, aside


def part_of(expr: Expr) -> Part | None:
    """The component of a fold that an expression is, if it is a reduction by one."""
    if isinstance(expr, Reduce) and isinstance(expr.reducer, Part):
        return expr.reducer
    return None


def folded(reduce: Reduce) -> Fold:
    """The fold that a reduction is a component of."""
    assert isinstance(reduce.reducer, Part)
    return reduce.reducer.fold


def uncast(typed: Expr) -> Reduce:
    """The reduction that a typed right side is, but for a cast of its result."""
    reduce = typed.arg if isinstance(typed, Cast) else typed
    assert isinstance(reduce, Reduce)
    return reduce


def is_joint(expr: Expr) -> bool:
    """Is it one of several components, so that it has meaning only with its neighbours?"""
    part = part_of(expr)
    return part is not None and len(part.fold.combine) > 1


def together(number: int, equations: Sequence[Equation]) -> range:
    """The numbers of the equations that are computed with this one, those of a joint reduction
    with its first: none for the others."""
    part = part_of(equations[number].rhs)
    count = 1 if part is None else len(part.fold.combine)
    return range(number, number if part is not None and part.number else number + count)


def groups(equations: Sequence[Equation | Draft]) -> list[tuple[int, ...]]:
    """The numbers of the equations, those of a joint reduction together."""
    out: list[tuple[int, ...]] = []
    at = 0
    while at < len(equations):
        part = part_of(equations[at].rhs)
        count = len(part.fold.combine) if part is not None else 1
        out.append(tuple(range(at, at + count)))
        at += count
    return out
