"""The default nest: stages in program order, the loops as the operator is written.

The stages of a reduction share the loops of their output indices:
`for i: for j: {C.init; for k: C.update; C.final}`, with loops `C.i`, `C.j` and `C.k`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...algo.tensor_expr.build import compare, conjuncts
from ...algo.tensor_expr.expr import Expr, Index, indices_of
from ...algo.tensor_expr.joined import parts
from ...algo.tensor_expr.op import Kernel, Stage
from ...algo.tensor_expr.skew import loop_names
from .names import stem_and_part
from .nest import Buffer, Leaf, Loop, Nest, Stmt, Tree
from .storage import place
from .tree import seq


def initial(kernel: Kernel) -> Nest:
    """The nest that runs the stages one after the other; every schedule starts from it."""
    stmts = {stage.name: statement(stage) for stage in kernel.stages}
    taken: set[str] = set()
    own = {eq.tensor for eq in kernel.checked.equations}
    trees = [_loops(part, 0, own, taken) for part in parts(kernel.stages, 0)]
    buffers = {
        t.name: Buffer(
            t.name, t.name, t.dtype, len(t.shape), "heap" if t.role == "temp" else "param"
        )
        for t in kernel.tensors.values()
    }
    return place(Nest(kernel, stmts, seq(trees), buffers))


def _loops(stages: Sequence[Stage], depth: int, own: set[str], taken: set[str]) -> Tree:
    """The loops, but the outermost `depth`, of stages that share at least one more."""
    first, shared = stages[0], min([stage.joined for stage in stages[1:]], default=None)
    end = len(first.values) if shared is None else shared
    inside: list[Tree] = [Leaf(first.name)]
    if shared is not None:
        inside = [_loops(part, shared, own, taken) for part in parts(stages, shared)]
    tree = seq(inside)
    owner, whose = _owner(stages, own)
    # A border that is computed in one iteration has no index to call that loop by.
    turning = (s for s in (whose, *stages) if all(map(indices_of, s.values[depth:end])))
    named = next(turning, whose)
    called = loop_names(named.ranges, named.values)
    names = [_unique(owner, index, taken) for index in called[depth:end]]
    for level in reversed(range(depth, end)):
        values = {s.name: s.values[level] for s in stages}
        tree = Loop(names[level - depth], values, tree)
    return tree


def _owner(stages: Sequence[Stage], own: set[str]) -> tuple[str, Stage]:
    """Whose loops they are, by name, and a stage that has them.

    Those of several stages, and an update's own, are the reduction's: `C.i` is around C.init and
    C.update, and `C.k` around the update, but `H.init.d` alone. Those of a recurrence are of the
    first equation in it, whose temporaries may come before.
    """
    whose = next((stage for stage in stages if stage.tensor in own), stages[0])
    if len(stages) > 1 and whose.turn is not None:
        return whose.turn.fold, whose
    stem, part = stem_and_part(whose.name)
    return (stem if part == "update" or len(stages) > 1 else whose.name), whose


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
