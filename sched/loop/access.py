"""How the stages of a kernel walk through memory: groups of stages, strides, extents.

What the analytic model and the tuner's sketches know about an operator. Sizes are bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...algo.dtypes import DType
from ...algo.forked import cached_property
from ...algo.tensor_expr.affine import iterations, linear
from ...algo.tensor_expr.build import conjuncts, sub
from ...algo.tensor_expr.expr import Access, Call, Const, Expr, Index, accesses, indices_of, walk
from ...algo.tensor_expr.joined import parts
from ...algo.tensor_expr.op import Kernel, Stage
from ...algo.tensor_expr.operations import OPERATIONS
from .border import uncast
from .names import stem_and_part


@dataclass(frozen=True)
class Group:
    """The stages of one loop nest: a pointwise stage, or init, update and final of a reduction.

    `outs` are the loops shared by all of them, `reds` those of the reduction. `shapes`, `sizes` and
    `kinds` give extents, bytes of an element and its type of every tensor; `layouts` the order of
    the dimensions of those that do not lie as written, innermost last. Of a recurrence `outs`
    are the loops inside of those that run in order; `leads` says that it is the first in those.
    """

    name: str
    stages: tuple[Stage, ...]
    shapes: Mapping[str, tuple[int, ...]]
    sizes: Mapping[str, int]
    kinds: Mapping[str, DType]
    leads: bool = True
    layouts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def main(self) -> Stage:
        """The stage that does the work."""
        if self.fold is not None:
            return max(self.stages, key=lambda s: len(s.ranges))
        return next((s for s in self.stages if s.reducer is not None), self.stages[0])

    @cached_property
    def fold(self) -> str | None:
        """What the nest is called if it combines instances in order, by a user's reducer."""
        turn = self.stages[0].turn
        return None if turn is None else turn.fold

    @property
    def is_plain(self) -> bool:
        """Is it neither a recurrence nor a user's reduction, so that any order will do?"""
        return self.fold is None and not self.main.carries

    @cached_property
    def outs(self) -> tuple[str, ...]:
        """The indices of the output's loops, outermost first."""
        inner = {
            index for v in self.main.values[len(self.main.carries) :] for index in indices_of(v)
        }
        return tuple(index for index in self._shared if index in inner)

    @cached_property
    def reds(self) -> tuple[str, ...]:
        """The indices that only the main stage runs over."""
        return tuple(r.index for r in self.main.ranges if r.index not in self._shared)

    @cached_property
    def free(self) -> tuple[str, ...]:
        """The loops around a recurrence that carry nothing, if it has them first."""
        carries = zip(self.main.values, self.main.carries, strict=False)
        found = [v.name for v, carry in carries if isinstance(v, Index) and not carry]
        return tuple(found) if self.leads else ()

    @cached_property
    def rounds(self) -> int:
        """How often the loops of a recurrence start what is inside of them."""
        carries = zip(self.main.values, self.main.carries, strict=False)
        around = {index for v, _ in carries for index in indices_of(v)}
        return max(1, math.prod(self.extents[index] for index in around))

    @cached_property
    def _shared(self) -> tuple[str, ...]:
        shared = set.intersection(*({r.index for r in s.ranges} for s in self.stages))
        return tuple(r.index for r in self.main.ranges if r.index in shared)

    @cached_property
    def solved(self) -> tuple[str, ...]:
        """Indices of the output that equalities give from others by strides: y in 2*h + r == y.

        The adjoint of a strided access has them. As loops of one iteration, innermost, they leave
        the bounds of all others plain.
        """
        found: list[str] = []
        for condition in conjuncts(self.main.where):
            match condition:
                case Call("eq", (a, b)) if (form := linear(sub(a, b))) is not None:
                    steps = {index: form.of(Index(index)) for index in self.extents}
                    strided = any(abs(steps[index]) > 1 for index in self.reds)
                    ready = strided and not any(steps[index] for index in found)
                    found += [index for index in self.outs if ready and abs(steps[index]) == 1][:1]
        return tuple(found)

    @cached_property
    def holes(self) -> bool:
        """Does a condition leave iterations out in between, as i != j and i // 8 == j do?

        Every place in a tile is then scanned in pieces, which are too many to unroll.
        """
        apart = ("ne", "eq", "or", "not", "floordiv", "mod")
        return any(
            isinstance(item, Call) and item.op in apart
            for condition in conjuncts(self.main.where)
            for item in walk(condition)
        )

    @cached_property
    def scatters(self) -> bool:
        """Does a reduction go from cell to cell, as y[2*l + r] += does in its loops over l and r?

        A tile would hold all of those cells.
        """
        moved = {index for part in self.main.lhs for index in indices_of(part)}
        return not moved.isdisjoint(self.reds)

    @cached_property
    def shares(self) -> bool:
        """Is it a reduction in which what is loaded serves several cells?"""
        pairs = [(a, i) for a in self.operands for i in self.outs if self.extents[i] > 1]
        return bool(self.reds) and any(self.stride(a, i) == 0 for a, i in pairs)

    @cached_property
    def extents(self) -> Mapping[str, int]:
        """Iterations of each loop; the most there can be, where they depend on outer loops."""
        found = iterations(self.main.ranges)
        assert found is not None, f"{self.main.name} has sizes that are not bound"
        return {r.index: found[r.index] for r in self.main.ranges}

    @cached_property
    def work(self) -> int:
        """Instances of the main stage."""
        count = 1
        for extent in self.extents.values():
            count *= extent
        return count

    @cached_property
    def cells(self) -> int:
        """Elements of the tensor that is written."""
        return math.prod(self.shapes[self.main.tensor])

    @cached_property
    def footprint(self) -> int:
        """Bytes of all tensors that the main stage touches, each whole."""
        names = {self.main.tensor, *(a.tensor for a in self.reads)}
        return sum(math.prod(self.shapes[n]) * self.sizes[n] for n in names)

    @cached_property
    def widest(self) -> int:
        """Bytes of the widest element that the main stage touches."""
        return max(self.sizes[n] for n in (self.main.tensor, *(a.tensor for a in self.reads)))

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        """The distinct reads of the main stage."""
        return tuple(accesses(self.main.value))

    @cached_property
    def guarded(self) -> Mapping[Expr, Access]:
        """Reads beside a number, which a condition chooses: what `.zero` and `.fill` are.

        A staged copy holds the number too where the condition only says that the read is within
        the tensor's ends.
        """
        found: dict[Expr, Access] = {}
        for item in walk(self.main.value):
            match item:
                case Call("where", (_, chosen, Const())):
                    if isinstance(read := uncast(chosen), Access):
                        found[item] = read
        return found

    @cached_property
    def operands(self) -> tuple[Access, ...]:
        """The reads whose values are computed with, not only where others are read."""
        places = {a for read in self.reads for index in read.indices for a in accesses(index)}
        return tuple(a for a in self.reads if a not in places)

    @cached_property
    def cost(self) -> float:
        """Arithmetic of one instance, roughly in additions."""
        return 1.0 + sum(_price(item) for item in walk(self.main.value) if isinstance(item, Call))

    def stride(self, access: Access, index: str) -> int | None:
        """Elements between the cells read by neighbours along `index`; None if it varies."""
        return self._stride(access.tensor, access.indices, index)

    def store_stride(self, index: str) -> int | None:
        """The same of the cell that is written."""
        return self._stride(self.main.tensor, self.main.lhs, index)

    def collapse(self, outer: str, inner: str, extent: int) -> bool:
        """Does every access go on where it is when `outer` steps after `extent` steps of `inner`?

        Then the two loops are one walk through memory.
        """
        walks = [(self.stride(a, outer), self.stride(a, inner)) for a in self.reads]
        walks.append((self.store_stride(outer), self.store_stride(inner)))
        return all(a is not None and b is not None and a == b * extent for a, b in walks)

    def _stride(self, tensor: str, indices: tuple[Expr, ...], index: str) -> int | None:
        total, step, shape = 0, 1, self.shapes[tensor]
        for at in reversed(self.layouts.get(tensor, range(len(shape)))):
            form, extent = linear(indices[at]), shape[at]
            if form is None or any(
                Index(index) in walk(atom) and not isinstance(atom, Index) for atom in form.terms
            ):
                return None
            total += form.of(Index(index)) * step
            step *= extent
        return total


def groups(kernel: Kernel) -> list[Group]:
    """The kernel's loop nests in program order, as the initial nest has them."""
    shapes = {t.name: tuple(_int(e) for e in t.shape) for t in kernel.tensors.values()}
    found: list[list[Stage]] = []
    for stage in kernel.stages:
        last = found[-1][0] if found else None
        turns = (last and last.turn, stage.turn)
        if last is not None and (
            stem_and_part(last.name)[0] == stem_and_part(stage.name)[0] != stage.name
            or (turns[0] and turns[1] and turns[0].fold == turns[1].fold)
        ):
            found[-1].append(stage)
        else:
            found.append([stage])
    kinds = {t.name: t.dtype for t in kernel.tensors.values()}
    sizes = {name: dtype.itemsize for name, dtype in kinds.items()}
    own = {eq.tensor for eq in kernel.checked.equations}
    nests = parts(kernel.stages, 0)
    leads = {next((s for s in part if s.tensor in own), part[0]).name for part in nests}
    return [
        Group(
            _name(stages), tuple(stages), shapes, sizes, kinds, any(s.name in leads for s in stages)
        )
        for stages in found
    ]


def _name(stages: Sequence[Stage]) -> str:
    turn = stages[0].turn
    return stem_and_part(stages[0].name)[0] if turn is None else turn.fold


def _int(expr: Expr) -> int:
    assert isinstance(expr, Const), f"{expr} is not bound"
    return int(expr.value)


SLOW = {"div", "sqrt", "rsqrt", "floordiv", "mod"}
LIGHT = {"floor", "ceil"}
HEAVY = {name for name, op in OPERATIONS.items() if op.result == "float"} - SLOW - LIGHT | {"pow"}


def _price(call: Call) -> float:
    """Additions that an operation takes the time of, roughly."""
    if call.op == "pow" and isinstance(n := call.args[1], Const) and n.value in range(5):
        return 0.5 * int(n.value).bit_length()  # it multiplies
    return 12.0 if call.op in HEAVY else 5.0 if call.op in SLOW else 0.5
