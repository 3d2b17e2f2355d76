"""Parts of an operator that are differentiated by a rule that somebody gave.

Reverse mode takes such a part, a block, as one step: from the cotangents of its results the rule
computes those of what it takes, by equations that become part of the gradient operator. They are
differentiated in turn as any others; what the block computes keeps its rule there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..algo.dtypes import DType
from ..algo.errors import GradientError
from ..algo.tensor_expr.affine import normalize
from ..algo.tensor_expr.build import sub
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.compose import Rename
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Size,
    children,
    sizes_of,
    substitute,
    transform,
)
from ..algo.tensor_expr.folds import groups
from ..algo.tensor_expr.op import Checked, Equation, Op, Rule
from ..algo.tensor_expr.printer import print_expr
from ..algo.tensor_expr.settle import needs
from .cotangent import zero
from .naming import fresh_name
from .statements import ordered, reads
from .tidy import closure, mapped, needed

Shapes = Mapping[str, tuple[Expr, ...]]


@dataclass(frozen=True, slots=True)
class Pull:
    """A rule as a map of cotangents.

    Of the parameters of `op`, `values` says which tensor each is (or has at least the shape and
    type of), `cotangents` the result whose cotangent it is; `gives` says which returned tensor is
    the cotangent of a parameter of the rule.
    """

    op: Op
    values: Mapping[str, str]
    cotangents: Mapping[str, str]
    gives: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Applied:
    """The equations by which a rule gives cotangents, in an operator: `shapes` are those of their
    tensors, `rules` the rules that the equations have."""

    made: Sequence[Equation]
    shapes: Shapes
    rules: Sequence[Rule]

    def equations(self) -> Sequence[Equation]:
        """The equations."""
        return self.made


def moves(rule: Rule) -> dict[str, str]:
    """What a rule calls the cotangent or tangent of each tensor: `dA`, numbered if it is taken."""
    taken = {*rule.params, *rule.results}
    out: dict[str, str] = {}
    for name in (*rule.results, *rule.params):
        out[name] = fresh_name(f"d{name}", taken)
        taken.add(out[name])
    return out


def pull_of(rule: Rule) -> Pull:
    """The rule as a map of cotangents: that of a jvp rule is its transpose."""
    from .reverse import adjoint  # a rule is differentiated by what uses it

    called = moves(rule)
    if rule.vjp is not None:
        names = [p.name for p in rule.vjp.params]
        seeds = {called[r]: r for r in rule.results if called[r] in names}
        values = {name: name for name in names if name not in seeds}
        gives = {p: called[p] for p in rule.params if called[p] in rule.vjp.returns}
        return Pull(rule.vjp, values, seeds, gives)
    assert rule.jvp is not None
    names = [p.name for p in rule.jvp.params]
    tangents = {called[p]: p for p in rule.params if called[p] in names}
    back = adjoint(rule.jvp, tuple(tangents))
    by_move = {move: result for result, move in called.items()}
    own = back.params[len(back.params) - len(rule.jvp.returns) :]
    seeds = {p.name: by_move[given] for p, given in zip(own, rule.jvp.returns, strict=True)}
    # Linear in a tangent, it reads of one at most the type, which the parameter has too.
    values = {p.name: tangents.get(p.name, p.name) for p in back.params if p.name not in seeds}
    return Pull(back, values, seeds, dict(zip(tangents.values(), back.returns, strict=True)))


class Block:
    """A part of `checked.op` that has a rule: which tensors it takes and gives there."""

    def __init__(self, rule: Rule, checked: Checked) -> None:
        self.rule, self.checked = rule, checked
        self.names = dict(zip((*rule.params, *rule.results), rule.names, strict=True))
        defined = {eq.tensor for eq in checked.equations}
        self.results = [self.names[r] for r in rule.results if self.names[r] in defined]
        self.params = [self.names[p] for p in rule.params]

    def pulled(
        self,
        active: Collection[str],
        cotangents: Mapping[str, str],
        dtypes: Mapping[str, DType],
        fresh: Callable[[str], str],
        taken: set[str],
    ) -> tuple[Applied, dict[str, str]]:
        """The equations that give the cotangents of those parameters that are `active`, and the
        names under which they do, from the `cotangents` of results (absent: zero)."""
        pull = pull_of(self.rule)
        wanted = {p: self.names[p] for p in self.rule.params if self.names[p] in active}
        self._refuse_missing(pull, list(wanted))
        shapes = self.checked.shapes
        extents = {p: shapes[self.names[name]] for p, name in pull.values.items()}
        extents |= {p: shapes[self.names[name]] for p, name in pull.cotangents.items()}
        op, checked, sizes = fitted(pull.op, extents)
        gives = {p: pull.gives[p] for p in wanted}
        equations = needed(ordered(checked), [*gives.values(), *named_by_rules(op, gives.values())])
        tensors = {p: self.names[name] for p, name in pull.values.items()}
        for p, name in pull.cotangents.items():
            result = self.names[name]
            if result in cotangents:
                tensors[p] = cotangents[result]
            else:
                equations = [without(eq, p, dtypes.get(result)) for eq in equations]
                tensors[p] = result
        own = dict.fromkeys(eq.tensor for eq in equations)
        tensors |= {name: fresh(name) for name in own}
        rename = Rename(tensors, sizes, taken)
        made = [
            eq for group in groups(equations)
            for eq in rename.equations([equations[n] for n in group])
        ]  # fmt: skip
        applied = Applied(
            made,
            {tensors[name]: tuple(map(rename.expr, checked.shapes[name])) for name in own},
            [rule.called(tensors) for rule in op.rules if own.keys() & set(rule.names)],
        )
        return applied, {self.names[p]: tensors[given] for p, given in gives.items()}

    def _refuse_missing(self, pull: Pull, wanted: Sequence[str]) -> None:
        missing = [p for p in wanted if p not in pull.gives]
        if not missing:
            return
        called = moves(self.rule)
        kind, rule = ("vjp", self.rule.vjp) if self.rule.vjp else ("jvp", self.rule.jvp)
        assert rule is not None
        listed = ", ".join(missing)
        given = ", ".join(called[p] for p in pull.gives)
        verb = "returns" if kind == "vjp" else "takes"
        raise GradientError(
            f"gradient of {self.checked.op.name} by {listed}: missing rule: its {kind} rule "
            f"{rule.name} {verb} {given} and no {called[missing[0]]}; give the rule "
            f"{called[missing[0]]}, or differentiate by {', '.join(pull.gives)}"
        )


def without(eq: Equation, seed: str, dtype: DType | None) -> Equation:
    """The equation where a cotangent is zero; what still reads it wants its type alone."""

    def rule(item: Expr) -> Expr:
        return zero(item, dtype) if isinstance(item, Access) and item.tensor == seed else item

    return mapped(eq, lambda e: transform(e, rule))


def reads_value(op: Op, name: str) -> bool:
    """Does `op` read more of its parameter `name` than the type, which `x**0` does?"""
    stack = [root for eq in op.equations for root in eq.roots]
    seen = set(stack)
    while stack:
        item = stack.pop()
        if isinstance(item, Access) and item.tensor == name:
            return True
        if isinstance(item, Call) and item.op == "pow" and item.args[1] is Const(0):
            continue
        stack += [child for child in children(item) if child not in seen]
        seen.update(children(item))
    return False


def hidden(op: Op, blocks: Sequence[Block]) -> set[str]:
    """The tensors that are met only inside of blocks, and the results of blocks."""
    by_tensor: dict[str, list[Equation]] = {}
    for eq in op.equations:
        by_tensor.setdefault(eq.tensor, []).append(eq)
    results = {name: block for block in blocks for name in block.results}
    met: set[str] = set()
    waiting = list(op.returns)
    while waiting:
        name = waiting.pop()
        if name not in met:
            met.add(name)
            block = results.get(name)
            if block is not None:
                waiting += block.params
            else:
                waiting += [a.tensor for eq in by_tensor.get(name, ()) for a in reads(eq)]
    return {name for name in by_tensor if name not in met} | results.keys()


def named_by_rules(op: Op, wanted: Collection[str]) -> set[str]:
    """The tensors of which rules speak whose results are needed to compute those of `wanted`."""
    found: set[str] = set()
    by_tensor: dict[str, list[Equation]] = {}
    for eq in op.equations:
        by_tensor.setdefault(eq.tensor, []).append(eq)
    while op.rules:
        reached = closure({*wanted, *found}, lambda name: by_tensor.get(name, []))
        more = {n for rule in op.rules if reached & set(rule.names) for n in rule.names} - found
        if not more:
            break
        found |= more
    return found


def fitted(op: Op, shapes: Shapes) -> tuple[Op, Checked, dict[Expr, Expr]]:
    """A rule's operator for parameters of these shapes, and what its sizes are then.

    Raises `GradientError` where a shape does not fit.
    """
    known: dict[Expr, Expr] = {}
    for name, dims in extents_of(op).items():
        for own, given in zip(dims, shapes.get(name, ()), strict=False):
            if isinstance(own, Size):
                known.setdefault(own, given)
    op = _said(op, shapes, known)
    while (error := needs(op)) is not None:
        numbers = {name: known.get(Size(name)) for name in error.sizes}
        found = {n: int(e.value) for n, e in numbers.items() if isinstance(e, Const)}
        if len(found) < len(numbers):
            listed = ", ".join(f"{name}=..." for name in error.sizes)
            raise GradientError(
                f"rule {op.name} has to know {', '.join(error.sizes)} as a number; differentiate "
                f"the operator .at({listed})"
            )
        op = op.at(**found)
    checked = check(op)
    sizes: dict[Expr, Expr] = {}
    for rule in checked.rules:
        if isinstance(rule.extent, Size) and rule.dim < len(shapes[rule.param]):
            sizes.setdefault(rule.extent, shapes[rule.param][rule.dim])
    for p in op.params:
        same_shape(op, p.name, checked.shapes[p.name], shapes[p.name], sizes)
    return op, checked, sizes


def _said(op: Op, shapes: Shapes, known: Mapping[Expr, Expr]) -> Op:
    """A rule whose parameters without sizes have the extents given, in the rule's own sizes."""
    back: dict[Expr, Expr] = {given: own for own, given in known.items() if isinstance(given, Size)}
    new = {
        p.name: tuple(substitute(e, back) for e in shapes[p.name])
        for p in op.params
        if p.type.dims is None and p.name not in op.shapes
        if all(Size(name) in back for name in sizes_of(shapes[p.name]))
    }
    return replace(op, shapes={**op.shapes, **new}, _memo={}) if new else op


def extents_of(op: Op) -> dict[str, tuple[Expr, ...]]:
    """The shapes of an operator's tensors, of its inputs alone where sizes have to be numbers."""
    error = needs(op)
    if error is None:
        return dict(check(op).shapes)
    out: dict[str, tuple[Expr, ...]] = {}
    for (name, _), extent in sorted(error.extents.items(), key=lambda item: item[0][1]):
        out[name] = (*out.get(name, ()), extent)
    return out


def same_shape(
    op: Op, name: str, own: Sequence[Expr], given: Sequence[Expr], sizes: Mapping[Expr, Expr]
) -> None:
    """Raises `GradientError` unless a tensor of a rule has the shape `given`."""
    fits = len(own) == len(given) and all(
        normalize(sub(substitute(a, sizes), b)) is Const(0) for a, b in zip(own, given, strict=True)
    )
    if not fits:
        here = [substitute(e, sizes) for e in own]
        had, wanted = (f"[{', '.join(map(print_expr, dims))}]" for dims in (here, given))
        raise GradientError(f"rule {op.name}: {name} has shape {had}, expected {wanted}")
