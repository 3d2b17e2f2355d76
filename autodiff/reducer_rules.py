"""Rules for derivatives that users give for reducers of their own.

A rule is one of the operator that a whole reduction is: its lift if it has one, else `whole`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..algo.errors import GradientError
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.expr import Access, Const, Index, Range, Reduce, Size
from ..algo.tensor_expr.fold_terms import Reducer
from ..algo.tensor_expr.folds import Fold, Part
from ..algo.tensor_expr.op import Equation, Op, Param, Rule
from .blocks import pull_of
from .lifted import AtOnce
from .rules import rule_of
from .statements import ordered
from .unfold import Component, Folded


def defvjp(self: Reducer, rule: Any) -> Reducer:
    """`Reducer.defvjp`, which says what a rule is."""
    return _given(self, "vjp", rule)


def defjvp(self: Reducer, rule: Any) -> Reducer:
    """`Reducer.defjvp`, which says what a rule is."""
    return _given(self, "jvp", rule)


def whole(fold: Fold) -> Op:
    """A whole reduction as an operator: `y = fold(x[i])`, numbered where there are several."""
    if fold.lift is not None:
        return replace(fold.lift, name=fold.name, rules=(), _memo={})
    count = len(fold.combine)
    numbers = [""] if count == 1 else [str(n) for n in range(count)]
    bodies = [Access(f"x{n}", (Index("i"),)) for n in numbers]
    equations = tuple(
        Equation(f"y{n}", (), Reduce(Part(fold, at), ("i",), body))
        for at, (n, body) in enumerate(zip(numbers, bodies, strict=True))
    )
    params = tuple(Param(body.tensor) for body in bodies)
    return Op(fold.name, params, equations, tuple(eq.tensor for eq in equations))


def components(fold: Fold) -> tuple[Component, ...]:
    """Components with as many indices of their own as `whole` says, of no tensors."""
    op = whole(fold)
    return tuple(
        Component("", tuple(Range(f"own{n}", Const(0), Size("N")) for n in range(len(shape))), (),
                  Const(0), None)
        for shape in (check(op).shapes[name] for name in op.returns)
    )  # fmt: skip


def _given(reducer: Reducer, kind: str, given: Any) -> Reducer:
    fold = reducer.fold
    if reducer.used:
        raise GradientError(
            f"def{kind} of {fold}: an operator uses {fold} already, and its derivatives would not "
            f"know of the rule; give rules where {fold} is defined"
        )
    made = rule_of(whole(fold), kind, given, fold.rule)
    if not _names_positions(fold, made):
        raise GradientError(
            f"the {kind} rule of {fold}: it has to be for any number of instances, so positions "
            "are bare indices, as in x[i]; expected equations without shifts, bounds or reducers "
            "of the user's over them"
        )
    reducer.fold = fold.but(rule=made)
    return reducer


def _names_positions(fold: Fold, rule: Rule) -> bool:
    """Does a rule name positions by bare indices alone, so that it serves for all instances?"""
    pull = pull_of(rule)
    checked = check(pull.op)
    parts = components(fold)
    of = dict(zip((*rule.params, *rule.results), (*parts, *parts), strict=True))
    bodies = {p: of[name] for p, name in pull.values.items() if name in rule.params}
    whole = {p: of[name] for p, name in (*pull.values.items(), *pull.cotangents.items())
             if name in rule.results}  # fmt: skip
    made = {given: of[p] for p, given in pull.gives.items()}
    reduction = Folded(fold, parts, (), (), None)
    at_once = AtOnce(reduction, checked, ordered(checked), bodies, whole, made, set())
    return at_once.fits() and at_once.serves()
