"""In which step each element of tensors that need each other is computed.

The step of `T[.., at, ..]` is its place in one dimension of T, upwards or downwards, moved by as
many steps for all of T. Of some tensors a step may read what earlier steps gave, these carry the
recurrence; of all others it reads what it computes itself. That such moves exist is a question of
difference constraints, answered by shortest paths (Bellman and Ford). Source: Leiserson and
Saxe, "Retiming Synchronous Circuitry" (1991), where what is carried is a register.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..algo.tensor_expr.affine import Interval, bounds, linear, normalize
from ..algo.tensor_expr.build import add, sub
from ..algo.tensor_expr.expr import Access, Const, Expr, Index, Reduce, indices_of, walk
from ..algo.tensor_expr.folds import groups
from ..algo.tensor_expr.op import Equation
from .statements import reads

Shapes = Mapping[str, tuple[Expr, ...]]
Intervals = Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class Clock:
    """Of each tensor the dimension that counts steps, which place in it is step 0, and the
    `depths`: how many steps in a row have to be known to go on."""

    upwards: bool
    dims: Mapping[str, int]
    zeros: Mapping[str, Expr]
    depths: Mapping[str, int]

    @property
    def depth(self) -> int:
        """The first step that can go on from what is known of those before it."""
        return max(self.depths.values())

    def step(self, tensor: str, at: Expr) -> Expr:
        """The step in which the elements at a place are computed."""
        zero = self.zeros[tensor]
        return normalize(sub(at, zero) if self.upwards else sub(zero, at))

    def place(self, tensor: str, step: Expr) -> Expr:
        """Where the elements are that a step computes."""
        zero = self.zeros[tensor]
        return normalize(add(zero, step) if self.upwards else sub(zero, step))

    def end(self, tensor: str, extent: Expr) -> Expr:
        """How many steps there are to the last of a tensor, itself included."""
        last = normalize(sub(extent, Const(1))) if self.upwards else Const(0)
        return normalize(add(self.step(tensor, last), Const(1)))


@dataclass(frozen=True, slots=True)
class _Read:
    """An equation of `reader` reads `tensor` so many places before its own, at least and at most,
    in the dimensions chosen."""

    reader: str
    tensor: str
    least: int
    most: int


class Recurrence:
    """The equations of tensors that need each other."""

    def __init__(self, equations: Sequence[Equation], shapes: Shapes) -> None:
        self.equations = equations
        self.tensors = tuple(dict.fromkeys(eq.tensor for eq in equations))
        self.shapes = shapes
        joint = [[equations[n] for n in group] for group in groups(equations) if len(group) > 1]
        self.joint = [tuple(eq.tensor for eq in together) for together in joint]
        within = set(self.tensors)
        self._accesses = [
            (eq, a, bound) for eq, bound in zip(equations, map(_bound, equations), strict=True)
            for a in dict.fromkeys(reads(eq)) if a.tensor in within
        ]  # fmt: skip
        self._accesses += [  # what one reduction gives has one step
            (eq, Access(other.tensor, other.lhs), {})
            for together in joint for eq in together for other in together if other is not eq
        ]  # fmt: skip
        self._near: dict[str, list[tuple[Equation, Access, Intervals]]] = {}
        for each in self._accesses:
            for tensor in {each[0].tensor, each[1].tensor}:
                self._near.setdefault(tensor, []).append(each)

    def clock(self, carried: Collection[str]) -> Clock | None:
        """The first in which the tensors `carried` are all that is read of earlier steps."""
        first = next(t for t in self.tensors if t in carried)
        return next(filter(None, (self._timed(r, carried) for r in self._readings(first))), None)

    def carrying(self, wanted: Collection[str]) -> list[str] | None:
        """What else has to be carried where `wanted` are, rather what has a beginning of its own;
        None where no clock would do."""
        carried = list(self.tensors)
        if self.clock(carried) is None:
            return None
        begun = Counter(eq.tensor for eq in self.equations)
        for tensor in sorted(self.tensors, key=lambda t: (begun[t], -len(self.shapes[t]))):
            together = next((j for j in self.joint if tensor in j), (tensor,))
            less = [t for t in carried if t not in together]
            if tensor in carried and set(wanted).isdisjoint(together) and less:
                carried = less if self.clock(less) else carried
        return [t for t in carried if t not in wanted]

    def _readings(self, first: str) -> Iterator[tuple[bool, dict[str, int], list[_Read]]]:
        """The dimensions that may count steps, upwards and downwards, and how elements are read."""
        for dim in range(len(self.shapes[first])):
            dims = self._dims(first, dim)
            if dims is None:
                continue
            for upwards in (True, False):
                found = [
                    self._read(eq, dims[eq.tensor], a, dims[a.tensor], bound, upwards)
                    for eq, a, bound in self._accesses
                ]
                yield upwards, dims, [read for read in found if read is not None]

    def _dims(self, first: str, dim: int) -> dict[str, int] | None:
        """The dimensions in which all reads are as far away everywhere, with `dim` of `first`."""
        dims = {first: dim}
        todo = [first]
        while todo:
            tensor = todo.pop(0)
            near = ({eq.tensor, a.tensor} - dims.keys() for eq, a, _ in self._near.get(tensor, ()))
            for (other,) in filter(None, near):
                places = range(len(self.shapes[other]))
                found = next((d for d in places if self._fits(other, d, dims)), None)
                if found is None:
                    return None
                dims[other] = found
                todo.append(other)
        return dims if self._fits(first, dim, dims) else None

    def _fits(self, tensor: str, dim: int, dims: Mapping[str, int]) -> bool:
        dims = {**dims, tensor: dim}
        if not all(_unit(eq.lhs[dim]) for eq in self.equations if eq.tensor == tensor):
            return False
        return all(
            self._read(eq, dims[eq.tensor], a, dims[a.tensor], bound, True) is not None
            for eq, a, bound in self._near.get(tensor, ())
            if {eq.tensor, a.tensor} <= dims.keys()
        )

    def _read(
        self,
        eq: Equation,
        at: int,
        access: Access,
        dim: int,
        bound: Intervals,
        upwards: bool,
    ) -> _Read | None:
        one, other = (
            (eq.lhs[at], access.indices[dim]) if upwards else (access.indices[dim], eq.lhs[at])
        )
        distance = normalize(sub(one, other))
        if linear(distance) is None or not set(indices_of(distance)) <= bound.keys():
            return None
        least, most = bounds(distance, bound)
        return (
            None if least is None or most is None else _Read(eq.tensor, access.tensor, least, most)
        )

    def _timed(
        self, reading: tuple[bool, dict[str, int], list[_Read]], carried: Collection[str]
    ) -> Clock | None:
        """The clock by which everything is known when it is read."""
        upwards, dims, found = reading
        moves = self._moves(found, carried)
        if moves is None:
            return None
        depths = dict.fromkeys(self.tensors, 0)
        for r in found:
            back = r.most + moves[r.reader] - moves[r.tensor]
            depths[r.tensor] = max(depths[r.tensor], back)
        if not any(depths.values()):
            return None
        for tensor in carried:
            depths[tensor] = max(depths[tensor], 1)
        for together in self.joint:
            depths |= dict.fromkeys(together, max(depths[tensor] for tensor in together))
        return self._started(upwards, dims, moves, depths)

    def _moves(self, found: Sequence[_Read], carried: Collection[str]) -> dict[str, int] | None:
        """By how many steps each tensor is computed later than its places say; None where it cannot
        be."""
        limits = [(r.tensor, r.reader, r.least) for r in found]  # no more than the reader's + least
        limits += [(r.reader, r.tensor, -r.most) for r in found if r.tensor not in carried]
        moves = dict.fromkeys(self.tensors, 0)
        for _ in range(len(self.tensors) + 1):
            before = dict(moves)
            for one, other, more in limits:
                moves[one] = min(moves[one], moves[other] + more)
            if moves == before:
                return moves
        return None

    def _started(
        self, upwards: bool, dims: dict[str, int], moves: Mapping[str, int], depths: dict[str, int]
    ) -> Clock | None:
        """The clock that starts where the first of the steps that are known is there."""
        carried = [tensor for tensor, depth in depths.items() if depth]
        start = Const(0) if upwards else sub(self.shapes[carried[0]][dims[carried[0]]], Const(1))
        zeros = {t: normalize((sub if upwards else add)(start, Const(moves[t]))) for t in dims}
        clock = Clock(upwards, dims, zeros, depths)
        early: list[int] = []
        for t in carried:
            first = clock.step(t, Const(0) if upwards else sub(self.shapes[t][dims[t]], Const(1)))
            if not isinstance(first, Const):
                return None
            early.append(int(first.value) - clock.depth + depths[t])
        by = Const(max(early))
        zeros = {t: normalize((add if upwards else sub)(zero, by)) for t, zero in zeros.items()}
        return Clock(upwards, dims, zeros, depths)


def _unit(at: Expr) -> bool:
    """Is a place a formula over sizes, plus or minus one index?"""
    form = linear(at)
    if form is None:
        return False
    mine = [atom for atom in form.terms if indices_of(atom)]
    return not mine or (
        len(mine) == 1 and isinstance(mine[0], Index) and abs(form.of(mine[0])) == 1
    )


def _bound(eq: Equation) -> Intervals:
    """The values of the indices over which an equation reduces, where they are numbers."""
    found: dict[str, Interval] = {}
    for reduce in (item for item in walk(eq.rhs) if isinstance(item, Reduce)):
        for r in reduce.ranges:
            if isinstance(r.lo, Const) and isinstance(r.hi, Const):
                found[r.index] = (int(r.lo.value), int(r.hi.value) - 1)
    return found
