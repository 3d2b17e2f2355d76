"""Dependences of a kernel: which instance must run before which.

Under single assignment a dependence is the write relation composed with the inverse of the read
relation; no order is needed to find it. The cells of a fold are written repeatedly: of its accesses
to one cell those of an earlier turn come first. The elements are those of the kernel's tensors, so
that copies and buffers do not matter here; value flow (`flow.py`) checks those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...algo.remembered import remembered
from ...algo.tensor_expr.build import const
from ...algo.tensor_expr.expr import Expr
from ...algo.tensor_expr.op import Kernel, Stage
from .reads import reads_in

Turns = tuple[tuple[Expr, ...], tuple[Expr, ...]]


@dataclass(frozen=True)
class Dependence:
    """Stage `src` writes `written`, the element of `tensor` that `dst` touches at `touched`.

    `kind` is "reads" or "updates". An element is written, then updated, then read; where only
    some instances of `dst` read it, `guards` hold for them. With `turns` the pair of instances
    matters where the turn of `src` is before that of `dst`; then `src` may be the one that reads,
    which `first` says, and `dst` writes.
    """

    src: str
    dst: str
    tensor: str
    written: tuple[Expr, ...]
    touched: tuple[Expr, ...]
    kind: str
    guards: tuple[Expr, ...] = ()
    turns: Turns | None = None
    first: str = "writes"


def dependences(kernel: Kernel, stages: Collection[str] | None = None) -> list[Dependence]:
    """All of a kernel's dependences, or those of some stages, each between two accesses."""
    found, places = _dependences(kernel)
    if stages is None:
        return found
    return [found[n] for n in sorted({n for name in stages for n in places.get(name, ())})]


@remembered(16)
def _dependences(kernel: Kernel) -> tuple[list[Dependence], Mapping[str, list[int]]]:
    """All dependences, by source and then destination, and the places of those of each stage."""
    partners: dict[str, dict[int, None]] = {}  # the stages that touch a tensor
    for n, stage in enumerate(kernel.stages):
        for tensor in _touched(stage):
            partners.setdefault(tensor, {})[n] = None
    found: list[Dependence] = []
    places: dict[str, list[int]] = {}
    for src in kernel.stages:
        # What `src` writes, or reads where it is the one of two turns that comes first.
        tensors = _touched(src) if src.turn is not None else (src.tensor,)
        for n in sorted({n for tensor in tensors for n in partners[tensor]}):
            for dep in _between(src, kernel.stages[n]):
                for name in {dep.src, dep.dst}:
                    places.setdefault(name, []).append(len(found))
                found.append(dep)
    return found, places


def _touched(stage: Stage) -> Iterable[str]:
    return dict.fromkeys((stage.tensor, *(r.tensor for r in reads_in((stage.value, *stage.lhs)))))


@remembered(16)
def folding(kernel: Kernel) -> frozenset[str]:
    """The stages that combine instances into the cells of a fold, which others gave a start."""
    turns = [(stage, stage.turn.at[0]) for stage in kernel.stages if stage.turn is not None]
    cells = {stage.tensor for stage, when in turns if when is const(0)}
    return frozenset(stage.name for stage, _ in turns if stage.tensor in cells) - frozenset(
        stage.name for stage, when in turns if when is const(0)
    )


def _between(src: Stage, dst: Stage) -> Iterator[Dependence]:
    turns = _turns(src, dst)
    does = "updates" if turns is not None else "writes"
    for read in reads_in((dst.value, *dst.lhs)):
        if read.tensor == src.tensor:
            own = turns if read.indices == src.lhs else None
            yield Dependence(
                src.name, dst.name, src.tensor, src.lhs, read.indices, "reads", read.guards, own,
                does,
            )  # fmt: skip
    if src.tensor == dst.tensor and src.reducer is None and dst.reducer is not None:
        yield Dependence(src.name, dst.name, src.tensor, src.lhs, dst.lhs, "updates")
    if turns is None:
        return
    if src.tensor == dst.tensor:
        yield Dependence(
            src.name, dst.name, src.tensor, src.lhs, dst.lhs, "updates", (), turns, does
        )
    for read in reads_in((src.value, *src.lhs)):
        if read.tensor == dst.tensor and read.indices == dst.lhs:
            yield Dependence(
                src.name, dst.name, dst.tensor, read.indices, dst.lhs, "updates", (), turns, "reads"
            )


def _turns(src: Stage, dst: Stage) -> Turns | None:
    """The turns of two stages of one fold."""
    if src.turn is None or dst.turn is None or src.turn.fold != dst.turn.fold:
        return None
    return src.turn.at, dst.turn.at
