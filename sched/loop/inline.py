"""`inline`: a pointwise temporary that is computed where it is read, and stored nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.affine import normalize
from ...algo.tensor_expr.expr import (
    Access,
    Call,
    Expr,
    Index,
    accesses,
    children,
    substitute,
    transform,
    walk,
)
from ...algo.tensor_expr.op import Stage
from .names import suggest_from
from .nest import Nest
from .primitive import Primitive
from .storage import place
from .tree import remove
from .validate import validate
from .witness import at

INLINE_BUDGET = 4096
"""Reads and operations that one element may take, for chains of inlined stages grow fast."""


@dataclass(frozen=True)
class Inline(Primitive):
    """Computes a temporary's element again wherever it is read; the temporary is gone.

        for i: T[i] = f(i)
        for i: Y[i] = g(T[i], T[i+1])   ==>   for i: Y[i] = g(f(i), f(i+1))

    For a temporary that one equation defines, without a reduction. Rounding to the temporary's
    type stays.
    """

    called: ClassVar[str] = "inline"
    stage: str

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.stage,), {}

    def legal(self, nest: Nest) -> None:
        tensor = nest.kernel.tensors.get(self.stage)
        if tensor is None or tensor.role == "input":
            known = sorted(t.name for t in nest.kernel.tensors.values() if t.role == "temp")
            raise ScheduleError(
                f"{self.who}: there is no stage {self.stage} between inputs and results"
                f"{suggest_from(self.stage, known)}"
            )
        if tensor.role == "output":
            raise ScheduleError(f"{self.who}: {self.stage} is returned, so it is stored")
        stages = [s for s in nest.kernel.stages if s.tensor == self.stage]
        stage = stages[0]
        loc = at(nest.stmts[stage.name])
        if any(s.reducer is not None or s.turn is not None for s in stages):
            raise ScheduleError(
                f"{self.who}: {self.stage} is a reduction{loc}, which has no one expression; use "
                "compute_at instead"
            )
        if len(stages) > 1:
            raise ScheduleError(
                f"{self.who}: {self.stage} is computed in parts{loc}; which of them an element "
                "belongs to would have to be asked at every read"
            )
        if any(item.tensor == self.stage for item in accesses(stage.value)):
            raise ScheduleError(
                f"{self.who}: {self.stage} is a recurrence{loc}, whose elements need each other"
            )
        if len(set(stage.lhs)) < len(stage.lhs) or not all(
            isinstance(part, Index) for part in stage.lhs
        ):
            raise ScheduleError(
                f"{self.who}: {self.stage} is written at places that are not bare indices{loc}; "
                "which instance gives an element is not one formula"
            )
        self._check_readers(nest)
        self._check_buffers(nest, stage)
        after = self.apply(nest)
        for other in after.kernel.stages:
            work = _work(other.value)
            if work > INLINE_BUDGET and other not in nest.kernel.stages:
                raise ScheduleError(
                    f"{self.who}: {other.name}{at(nest.stmts[other.name])} would take {work} reads "
                    f"and operations an element, over the budget of {INLINE_BUDGET}; keep "
                    f"{self.stage}, or use compute_at"
                )
        validate(place(after), self.who)

    def _check_readers(self, nest: Nest) -> None:
        for other in nest.kernel.stages:
            positions = [*other.lhs, *(e for a in accesses(other.value) for e in a.indices)]
            if any(a.tensor == self.stage for e in positions for a in accesses(e)):
                raise ScheduleError(
                    f"{self.who}: {other.name}{at(nest.stmts[other.name])} uses {self.stage} as an "
                    "index, which is checked where it is read from memory; leave it there"
                )
            if nest.kernel.tensors[self.stage].dtype.is_float and self._is_compared(other.value):
                raise ScheduleError(
                    f"{self.who}: {other.name}{at(nest.stmts[other.name])} asks whether "
                    f"{self.stage} equals a value, so all who read it must see the same bits; it "
                    "stays stored"
                )

    def _is_compared(self, expr: Expr) -> bool:
        """Is an element of the stage compared for equality, as argmax does?"""
        asked = [e for e in walk(expr) if isinstance(e, Call) and e.op in ("eq", "ne")]
        return any(a.tensor == self.stage for e in asked for a in accesses(e))

    def _check_buffers(self, nest: Nest, stage: Stage) -> None:
        staged = [
            name
            for name, buffer in nest.buffers.items()
            if buffer.tensor == self.stage and name != self.stage
        ]
        own = nest.stmts[stage.name]
        staged += [
            a.tensor for a in accesses(own.value) if nest.buffers[a.tensor].tensor != a.tensor
        ]
        if staged:
            raise ScheduleError(
                f"{self.who}: {staged[0]} holds a copy of {nest.buffers[staged[0]].tensor}"
                f"{at(own)}; inline before staging"
            )
        for item in accesses(own.value):
            buffer = nest.buffers[item.tensor]
            if buffer.pinned:
                raise ScheduleError(
                    f"{self.who}: {item.tensor}{at(own)} is computed at loop {buffer.at}, for "
                    f"{self.stage}; inline before compute_at"
                )

    def apply(self, nest: Nest) -> Nest:
        stage = next(s for s in nest.kernel.stages if s.tensor == self.stage)

        def value(item: Expr) -> Expr:
            if isinstance(item, Access) and item.tensor == self.stage:
                return substitute(stage.value, dict(zip(stage.lhs, item.indices, strict=True)))
            return item

        def inlined(expr: Expr) -> Expr:
            # Normal forms, so that what is computed at one place twice is one expression.
            return normalize(transform(expr, value))

        tree = remove(nest.tree, {stage.name})
        assert tree is not None  # an output is computed
        tensors = {name: t for name, t in nest.kernel.tensors.items() if name != self.stage}
        stages = tuple(
            replace(s, value=inlined(s.value), joined=joined)
            for s, joined in _without(nest.kernel.stages, stage)
        )
        stmts = {
            name: replace(s, value=inlined(s.value))
            for name, s in nest.stmts.items()
            if name != stage.name
        }
        kernel = replace(nest.kernel, tensors=tensors, stages=stages)
        buffers = {name: b for name, b in nest.buffers.items() if name != self.stage}
        return replace(nest, kernel=kernel, stmts=stmts, tree=tree, buffers=buffers)


def _without(stages: Sequence[Stage], gone: Stage) -> Iterator[tuple[Stage, int]]:
    """The other stages, and how many loops each shares with the one that comes before it then."""
    shared: int | None = None
    for stage in stages:
        if stage is gone:
            shared = stage.joined
            continue
        yield stage, stage.joined if shared is None else min(stage.joined, shared)
        shared = None


def _work(expr: Expr) -> int:
    """Reads and operations of an expression, each counted where it stands; positions are not."""
    work: dict[Expr, int] = {}
    for item in walk(expr):
        inside = () if isinstance(item, Access) else children(item)
        work[item] = isinstance(item, (Access, Call)) + sum(work[child] for child in inside)
    return work[expr]
