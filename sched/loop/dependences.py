"""Dependences of a kernel: which instance must run before which.

Under single assignment a dependence is the write relation composed with the inverse of the read
relation; no order is needed to find it. The cells of a fold are written repeatedly: of its accesses
to one cell those of an earlier turn come first. The elements are those of the kernel's tensors, so
that copies and buffers do not matter here; value flow (`flow.py`) checks those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...algo.tensor_expr.build import const
from ...algo.tensor_expr.expr import Expr
from ...algo.tensor_expr.op import Stage
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


@lru_cache(maxsize=256)
def dependences(stages: tuple[Stage, ...]) -> tuple[Dependence, ...]:
    """All of a kernel's dependences, each between accesses of two stages (or of one)."""
    return tuple(dep for src in stages for dst in stages for dep in _between(src, dst))


@lru_cache(maxsize=256)
def folding(stages: tuple[Stage, ...]) -> frozenset[str]:
    """The stages that combine instances into the cells of a fold, which others gave a start."""
    turns = [(stage, stage.turn.at[0]) for stage in stages if stage.turn is not None]
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
