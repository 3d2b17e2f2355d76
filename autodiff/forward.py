"""Forward mode by transposing twice.

A gradient operator is linear in its cotangents; its own adjoint by them maps tangents of the
parameters to tangents of the results. So forward mode needs no rules of its own, and is right
where reverse mode is. Source: Radul et al., "You only linearize once" (arXiv:2204.10923), which
goes the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..algo.dtypes import TensorType
from ..algo.errors import GradientError
from ..algo.tensor_expr.annotation import annotation
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.expr import Expr, Reduce, transform
from ..algo.tensor_expr.folds import Part, part_of
from ..algo.tensor_expr.op import Op, Param, Rule
from ..algo.tensor_expr.uses import map_exprs
from .blocks import reads_value
from .degree import has_steps
from .derivatives import EVEN
from .naming import fresh_name, named
from .reverse import adjoint
from .tidy import renamed


def tangent(op: Op, wrt: tuple[str, ...] | str, ties: str = EVEN) -> Op:
    """The operator that gives the tangents of the results from those of the parameters `wrt`.

    Its parameters are those of `op` that it needs, results of `op` of which it needs the type, then
    `dA`, of its type, for every A of `wrt`; it returns `dC` for every returned tensor C. Raises
    what `adjoint` raises.
    """
    names = (wrt,) if isinstance(wrt, str) else tuple(wrt)
    made: Op = op.memo(f"tangent {names} {ties}", lambda: _tangent(op, names, ties))
    return made


def _tangent(op: Op, names: tuple[str, ...], ties: str) -> Op:
    op = by_jvp(op)
    shapes = check(op).shapes
    back = adjoint(op, names, ties=ties)
    seeds = back.params[len(back.params) - len(op.returns) :]
    known = {p.name: p for p in back.params}
    # With every parameter of `op` in reach, no cotangent is kept for the sizes that it says.
    primal = [
        known.get(p.name) or Param(p.name, annotation(p.type.dtype, shapes[p.name]))
        for p in op.params
    ]
    formulas = {p.name: shapes[p.name] for p in primal if p.type.dims is None}
    extents = {**formulas, **back.shapes}
    whole = replace(back, params=(*primal, *seeds), shapes=extents, _memo={})
    forth = adjoint(whole, tuple(seed.name for seed in seeds))
    if op.rules or any(op.rules_of_reducers):
        _refuse_nonlinear(op, back, forth, [seed.name for seed in seeds])
    # Linear in the seeds, it reads of one at most the type, which the result has too.
    new = {seed.name: name for seed, name in zip(seeds, op.returns, strict=True)}
    defined = {eq.tensor for eq in forth.equations}
    taken = {new.get(p.name, p.name) for p in forth.params} | defined
    tangents = forth.params[len(forth.params) - len(names) :]
    for old, wanted in [
        *zip((p.name for p in tangents), (f"d{name}" for name in names), strict=True),
        *zip(forth.returns, (f"d{name}" for name in op.returns), strict=True),
    ]:
        new[old] = fresh_name(wanted, taken)
        taken.add(new[old])
    own = {p.name: p.type.dtype for p in op.params}
    params = forth.params[: len(forth.params) - len(names)] + tuple(  # of the parameters' types
        Param(p.name, TensorType(own[name], p.type.dims))
        for p, name in zip(tangents, names, strict=True)
    )
    return Op(
        f"{op.name}_tangent",
        tuple(
            Param(new.get(p.name, p.name), p.type) for p in params if new.get(p.name) not in defined
        ),
        tuple(named(renamed(eq, new), (), taken) for eq in forth.equations),
        tuple(new.get(name, name) for name in forth.returns),
        {new.get(name, name): shape for name, shape in forth.shapes.items()},
        rules=tuple(rule.called(new) for rule in forth.rules),
    )


def by_jvp(op: Op) -> Op:
    """The operator without those rules of which there is one for forward mode."""
    rules = tuple(map(_forward, op.rules))
    equations = op.equations
    if any(op.rules_of_reducers):
        equations = tuple(map_exprs(eq, lambda e: transform(e, _by_jvp)) for eq in equations)
    if rules == op.rules and equations == op.equations:
        return op
    return replace(op, rules=rules, equations=equations, _memo={})


def _forward(rule: Rule) -> Rule:
    return replace(rule, vjp=None) if rule.jvp else rule


def _by_jvp(item: Expr) -> Expr:
    part = part_of(item)
    if part is None or part.fold.rule is None:
        return item
    assert isinstance(item, Reduce)
    fold = part.fold.but(rule=_forward(part.fold.rule))
    return Reduce(
        Part(fold, part.number), item.indices, item.body, item.ranges, item.where, item.dtype
    )


def _refuse_nonlinear(op: Op, back: Op, forth: Op, seeds: Sequence[str]) -> None:
    """A rule need not be linear in the cotangents, but then it has no transpose."""
    read = [name for name in seeds if reads_value(forth, name) or has_steps(back, name)]
    if read:
        raise GradientError(
            f"tangent of {op.name}: its vjp rule is not linear in {read[0]}, so that it says "
            "nothing of forward mode; give a jvp rule too"
        )
