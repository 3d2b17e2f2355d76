"""Reductions by users' reducers that have a rule for their derivatives.

The rule speaks of one reduction: of a whole block of instances, as a lift does. Here it becomes
equations over all instances of all reductions, which give the cotangent of what each instance is;
the rest is as for any statement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ..algo.dtypes import DType
from ..algo.errors import GradientError
from ..algo.tensor_expr.build import conjuncts
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.expr import Access, Expr, Index, Reduce, walk
from ..algo.tensor_expr.op import Equation, Rule
from .blocks import Applied, Pull, moves, pull_of, without
from .derivatives import smooth_reads
from .lifted import AtOnce
from .statements import Ruled, Statement, ordered, reads
from .tidy import needed
from .unfold import Component


class RuledFold:
    """A reduction whose derivative is a rule: which tensors it takes and gives."""

    def __init__(self, name: str, ruled: Ruled) -> None:
        self.name, self.reduction, self.owner = name, ruled.reduction, ruled.owner
        rule = ruled.reduction.fold.rule
        assert rule is not None
        self.rule: Rule = rule
        self.results = [c.tensor for c in self.reduction.components]
        reads_of = [smooth_reads(c.body) for c in self.reduction.components]
        self.reads = dict(zip(rule.params, reads_of, strict=True))
        self.params = [name for found in reads_of for name in found]

    def pulled(
        self,
        active: Collection[str],
        cotangents: Mapping[str, str],
        dtypes: Mapping[str, DType],
        fresh: Callable[[str], str],
        taken: set[str],
    ) -> tuple[Applied, list[tuple[Statement, Expr]]]:
        """The equations that the rule needs, and for each component that depends on what is
        `active` the statement that says what it combines, with the cotangent of that; from the
        `cotangents` of results (absent: zero)."""
        pull = pull_of(self.rule)
        components = dict(zip(self.rule.params, self.reduction.components, strict=True))
        wanted = [p for p in self.rule.params if not self.reads[p].isdisjoint(active)]
        self._refuse_missing(pull, wanted)
        results = dict(zip(self.rule.results, self.reduction.components, strict=True))
        checked = check(pull.op)
        gives = {p: pull.gives[p] for p in wanted}
        equations = needed(ordered(checked), gives.values())
        whole: dict[str, Component] = {
            p: results[name] for p, name in pull.values.items() if name in results
        }
        for p, name in pull.cotangents.items():
            c = results[name]
            if c.tensor in cotangents:
                whole[p] = Component(cotangents[c.tensor], c.own, c.lhs, c.body, c.dtype)
            else:
                equations = [without(eq, p, dtypes.get(c.tensor)) for eq in equations]
                whole[p] = c
        bodies = {p: components[name] for p, name in pull.values.items() if name in components}
        made = {given: components[p] for p, given in gives.items()}
        at_once = AtOnce(self.reduction, checked, equations, bodies, whole, made, taken)
        self._refuse_indices(at_once)
        inline = {eq.tensor: eq for eq in equations
                  if eq.tensor in made and _is_plain(eq, equations)}  # fmt: skip
        at_once.equations = [eq for eq in equations if eq.tensor not in inline]
        found = at_once.unfolded()
        out: list[tuple[Statement, Expr]] = []
        for p, given in gives.items():
            c, eq = components[p], inline.get(given)
            statement = self._statement(c)
            at = tuple(Index(r.index) for r in statement.ranges)
            amount = Access(at_once.names[given], at) if eq is None else at_once.amount(eq, c)
            out.append((statement, amount))
        return Applied(found.equations, found.inside, ()), out

    def _statement(self, c: Component) -> Statement:
        """What one component combines, for every instance."""
        ranges = (*self.reduction.shared, *self.reduction.reduced, *c.own)
        at = tuple(Index(r.index) for r in ranges)
        equation = Equation(c.tensor, at, c.body, ranges, self.reduction.where)
        where = tuple(conjuncts(self.reduction.where))
        return Statement(c.tensor, at, ranges, where, c.body, None, equation)

    def _refuse_missing(self, pull: Pull, wanted: Sequence[str]) -> None:
        missing = [p for p in wanted if p not in pull.gives]
        if missing:
            called = moves(self.rule)
            kind, verb = ("vjp", "returns") if self.rule.vjp else ("jvp", "takes")
            given = ", ".join(called[p] for p in pull.gives)
            raise GradientError(
                f"gradient of {self.name}: missing rule: the {kind} rule of "
                f"{self.reduction.fold} {verb} {given} and no {called[missing[0]]}; give the rule "
                f"{called[missing[0]]}, or stop the gradient of what {missing[0]} is here"
            )

    def _refuse_indices(self, at_once: AtOnce) -> None:
        if at_once.fits():
            return
        own = ", ".join(
            f"{c.tensor}[{', '.join(r.index for r in c.own)}]" for c in self.reduction.components
        )
        raise GradientError(
            f"gradient of {self.name}: the rule of {self.reduction.fold} is for components with "
            f"other indices of their own than those here, {own}; give {self.reduction.fold} a "
            "lift, whose parameters say which they have"
        )


def _is_plain(eq: Equation, equations: Sequence[Equation]) -> bool:
    """Is it arithmetic at each place, which nothing else reads?"""
    if any(isinstance(item, Reduce) for item in walk(eq.rhs)) or eq.where is not None:
        return False
    return not any(a.tensor == eq.tensor for other in equations for a in reads(other))
