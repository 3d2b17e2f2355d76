"""Dependences of a kernel: which instance must run before which.

Under single assignment a dependence is the write relation composed with the inverse of the read
relation; no order is needed to find it. The elements are those of the kernel's tensors, so that
copies and buffers do not matter here; value flow (`validate.py`) checks those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...algo.tensor_expr.expr import Expr
from ...algo.tensor_expr.op import Stage
from .reads import reads_in


@dataclass(frozen=True)
class Dependence:
    """Stage `src` writes `written`, the element of `tensor` that `dst` touches at `touched`.

    `kind` is "reads" or "updates". An element is written, then updated, then read; where only
    some instances of `dst` read it, `guards` hold for them.
    """

    src: str
    dst: str
    tensor: str
    written: tuple[Expr, ...]
    touched: tuple[Expr, ...]
    kind: str
    guards: tuple[Expr, ...] = ()


@lru_cache(maxsize=256)
def dependences(stages: tuple[Stage, ...]) -> tuple[Dependence, ...]:
    """All of a kernel's dependences, each between accesses of two stages (or of one)."""
    return tuple(dep for src in stages for dst in stages for dep in _between(src, dst))


def _between(src: Stage, dst: Stage) -> Iterator[Dependence]:
    for read in reads_in((dst.value, *dst.lhs)):
        if read.tensor == src.tensor:
            yield Dependence(
                src.name, dst.name, src.tensor, src.lhs, read.indices, "reads", read.guards
            )
    if src.tensor == dst.tensor and src.reducer is None and dst.reducer is not None:
        yield Dependence(src.name, dst.name, src.tensor, src.lhs, dst.lhs, "updates")
