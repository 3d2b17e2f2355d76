"""The default nest: stages in program order, the loops as the operator is written.

The stages of a reduction share the loops of their output indices:
`for i: for j: {C.init; for k: C.update; C.final}`, with loops `C.i`, `C.j` and `C.k`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...algo.tensor_expr.build import compare, conjuncts
from ...algo.tensor_expr.expr import Expr, Index, Range
from ...algo.tensor_expr.op import Kernel, Stage
from .nest import Buffer, Leaf, Loop, Nest, Stmt, Tree
from .storage import place
from .tree import seq


def initial(kernel: Kernel) -> Nest:
    """The nest that runs the stages one after the other; every schedule starts from it."""
    stmts = {stage.name: statement(stage) for stage in kernel.stages}
    groups: list[list[Stage]] = []
    for stage in kernel.stages:
        if groups and _group(groups[-1][0]) == _group(stage) != stage.name:
            groups[-1].append(stage)
        else:
            groups.append([stage])
    taken: set[str] = set()
    parts = [_loops(_group(group[0]), group, taken) for group in groups]
    buffers = {
        t.name: Buffer(
            t.name, t.name, t.dtype, len(t.shape), "heap" if t.role == "temp" else "param"
        )
        for t in kernel.tensors.values()
    }
    return place(Nest(kernel, stmts, seq(parts), buffers))


def _group(stage: Stage) -> str:
    """`C` of `C.init`, `C.update` and `C.final`; any other stage is a group of its own."""
    stem, _, last = stage.name.rpartition(".")
    return stem if stem and last in ("init", "update", "final") else stage.name


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


def _loops(group: str, stages: list[Stage], taken: set[str]) -> Tree:
    shared = _shared([stage.ranges for stage in stages])
    parts: list[Tree] = []
    for stage in stages:
        body: Tree = Leaf(stage.name)
        # Only the update's own loops belong to the reduction as such: C.k, but H.init.d.
        owner = group if stage.reducer is not None or len(stages) == 1 else stage.name
        for r in reversed(stage.ranges[shared:]):
            body = Loop(_unique(owner, r.index, taken), {stage.name: Index(r.index)}, body)
        parts.append(body)
    tree = seq(parts)
    for r in reversed(stages[0].ranges[:shared]):
        values: dict[str, Expr] = {stage.name: Index(r.index) for stage in stages}
        tree = Loop(_unique(group, r.index, taken), values, tree)
    return tree


def _shared(ranges: Sequence[Sequence[Range]]) -> int:
    """How many outermost ranges are the same in all stages."""
    count = 0
    for level in zip(*ranges, strict=False):
        if any(r is not level[0] for r in level):
            break
        count += 1
    return count


def _unique(owner: str, index: str, taken: set[str]) -> str:
    """`owner.index`, numbered where an operator has several stages of that name."""
    name, n = f"{owner}.{index}", 2
    while name in taken:
        name, n = f"{owner}.{index}{n}", n + 1
    taken.add(name)
    return name
