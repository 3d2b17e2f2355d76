"""The default nest: stages in program order, the loops as the operator is written.

The stages of a reduction share the loops of their output indices:
`for i: for j: {C.init; for k: C.update; C.final}`, with loops `C.i`, `C.j` and `C.k`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...algo.tensor_expr.build import compare, conjuncts
from ...algo.tensor_expr.expr import Expr, Index
from ...algo.tensor_expr.op import Kernel, Stage
from .nest import Buffer, Leaf, Loop, Nest, Stmt, Tree
from .storage import place
from .tree import seq


def initial(kernel: Kernel) -> Nest:
    """The nest that runs the stages one after the other; every schedule starts from it."""
    stmts = {stage.name: statement(stage) for stage in kernel.stages}
    taken: set[str] = set()
    parts = [_loops(run, 0, taken) for run in _runs(kernel.stages, 0)]
    buffers = {
        t.name: Buffer(
            t.name, t.name, t.dtype, len(t.shape), "heap" if t.role == "temp" else "param"
        )
        for t in kernel.tensors.values()
    }
    return place(Nest(kernel, stmts, seq(parts), buffers))


def _runs(stages: Sequence[Stage], depth: int) -> list[list[Stage]]:
    """The stages cut where one shares no more than `depth` loops with the one before."""
    runs: list[list[Stage]] = []
    for stage in stages:
        if runs and stage.joined > depth:
            runs[-1].append(stage)
        else:
            runs.append([stage])
    return runs


def _loops(stages: Sequence[Stage], depth: int, taken: set[str]) -> Tree:
    """The loops, but the outermost `depth`, of stages that share at least one more."""
    first, shared = stages[0], min([stage.joined for stage in stages[1:]], default=None)
    if shared is None:
        end, inside = len(first.ranges), [Leaf(first.name)]
    else:
        end, inside = shared, [_loops(run, shared, taken) for run in _runs(stages, shared)]
    owner = _owner(first, shared is not None)
    tree = seq(inside)
    names = [_unique(owner, r.index, taken) for r in first.ranges[depth:end]]
    for level in reversed(range(depth, end)):
        values: dict[str, Expr] = {s.name: Index(s.ranges[level].index) for s in stages}
        tree = Loop(names[level - depth], values, tree)
    return tree


def _owner(stage: Stage, several: bool) -> str:
    """Whose loops they are: those of several stages, and an update's own, are the reduction's.

    So `C.i` is around C.init and C.update, and `C.k` around the update, but `H.init.d` alone.
    """
    stem, _, part = stage.name.rpartition(".")
    return stem if part == "update" or (several and part in ("init", "final")) else stage.name


def statement(stage: Stage) -> Stmt:
    """A stage as the statement of a nest."""
    dims = tuple(r.index for r in stage.ranges)
    domain: list[Expr] = []
    for r in stage.ranges:
        domain += [compare("le", r.lo, Index(r.index)), compare("lt", Index(r.index), r.hi)]
    domain += conjuncts(stage.where)
    instance = (stage.name, tuple(Index(dim) for dim in dims))
    return Stmt(
        stage.name, dims, tuple(domain), stage.tensor, stage.lhs, stage.value, stage.reducer,
        instance, stage.loc,
    )  # fmt: skip


def _unique(owner: str, index: str, taken: set[str]) -> str:
    """`owner.index`, numbered where an operator has several stages of that name."""
    name, n = f"{owner}.{index}", 2
    while name in taken:
        name, n = f"{owner}.{index}{n}", n + 1
    taken.add(name)
    return name
