"""Collectives between the replicas of one process, by our own compiled kernels.

The order in which values are combined is the order of the replicas, whatever the timing, so
results are the same in every run and in every replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..algo.dtypes import DType
from ..algo.tensor_expr.expr import Access, Call, Cast, Expr, Index
from ..algo.tensor_expr.op import Equation, Op, Param
from ..algo.tensor_expr.reducers import REDUCERS

Array = np.ndarray[Any, Any]


class AllReduce:
    """One replica's side of an all_reduce over a run of elements of its arena, in place.

    Each replica reduces its chunk of the run over all replicas, then takes the other chunks from
    those who reduced them.
    """

    def __init__(
        self,
        run: Array,
        dtype: DType,
        reducer: str,
        replica: int,
        replicas: int,
        compile: Callable[..., Callable[..., None]],
    ) -> None:
        chunk = -(-len(run) // (replicas * 16)) * 16  # whole vectors
        self.run = run
        self.part = slice(min(replica * chunk, len(run)), min((replica + 1) * chunk, len(run)))
        count = self.part.stop - self.part.start
        self.reduced = np.empty(count, run.dtype)
        self.kernel = None
        if count:
            op = reduction(reducer, dtype, replicas)
            self.kernel = compile(op, [(dtype, (count,))] * replicas, None)

    def __call__(self, all_: Sequence[AllReduce], meet: Callable[[], None]) -> None:
        """Runs it; `all_` are the sides of all replicas, `meet` waits for them."""
        meet()  # every partial value is there
        if self.kernel is not None:
            self.kernel([side.run[self.part] for side in all_], [self.reduced])
        meet()  # nobody reads partial values any more
        for side in all_:
            np.copyto(self.run[side.part], side.reduced)


def reduction(reducer: str, dtype: DType, count: int) -> Op:
    """y[i] = a0[i] + a1[i] + ..., in the accumulator's type."""
    rule = REDUCERS[reducer]
    wide = rule.accumulator(dtype)
    index = (Index("i"),)

    def read(name: str) -> Expr:
        return Access(name, index) if wide is dtype else Cast(wide, Access(name, index))

    names = [f"a{replica}" for replica in range(count)]
    total = read(names[0])
    for name in names[1:]:
        total = Call(rule.combine, (total, read(name)))
    value = total if wide is dtype else Cast(dtype, total)
    params = tuple(Param(name) for name in names)
    return Op(f"all_reduce_{reducer}", params, (Equation("y", index, value),), ("y",))


def all_gather(
    target: Array, sources: Callable[[], Sequence[Array]], dim: int, meet: Callable[[], None]
) -> None:
    """target = the sources of all replicas, one after the other along `dim`.

    `sources` is asked once every replica is here, and so has bound the arrays of this call.
    """
    meet()
    parts = sources()
    size = parts[0].shape[dim]
    for replica, part in enumerate(parts):
        at = slice(replica * size, (replica + 1) * size)
        np.copyto(target[(slice(None),) * dim + (at,)], part)
    meet()  # nobody reads the parts any more
