"""Equations as statements without inner reductions, the form in which they are differentiated.

A statement is `tensor[lhs] = reducer(body)` over a domain, where `body` has no reduction. An
equation whose reductions stand inside its right side is split: each becomes a temporary of its
own, over the indices that it depends on. A temporary of a recurrence (a tensor that reads itself)
cannot be computed before the recurrence; it is defined after it, from the finished tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..algo.dtypes import DType
from ..algo.tensor_expr.affine import is_affine
from ..algo.tensor_expr.binding import map_reductions
from ..algo.tensor_expr.build import both, conjuncts
from ..algo.tensor_expr.components import recurrences
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Expr,
    Range,
    Reduce,
    accesses,
    children,
    indices_of,
)  # fmt: skip
from ..algo.tensor_expr.folds import groups
from ..algo.tensor_expr.op import Checked, Equation
from .boxes import boxed, over_boxes, separate
from .branches import connected, outermost
from .lifted import lifted
from .naming import fresh_name
from .unfold import Folded, folded, is_plain, prefixes


@dataclass(frozen=True, slots=True)
class Statement:
    """For all `ranges` where all of `where`: tensor[lhs] = body, or combined by `reducer`.

    `equation` is the equation that computes it.
    """

    tensor: str
    lhs: tuple[Expr, ...]
    ranges: tuple[Range, ...]
    where: tuple[Expr, ...]
    body: Expr
    reducer: str | None
    equation: Equation


@dataclass(frozen=True, slots=True)
class FoldOf:
    """A reduction by a user's reducer: its `equations` as written, which define `tensors`, and the
    tensors `inside` that its statements define to the same end. One that has a rule has no
    statements, but `apart`: the equations where they read the reductions inside them."""

    tensors: tuple[str, ...]
    equations: tuple[Equation, ...]
    inside: frozenset[str]
    apart: tuple[Equation, ...] = ()


@dataclass(frozen=True, slots=True)
class Ruled:
    """A reduction that is differentiated by its rule, in an equation of the tensor `owner`."""

    reduction: Folded
    owner: str


@dataclass(slots=True)
class Normal:
    """An operator as statements, in an order in which a tensor's cotangent can be collected
    backwards. `temporaries` says of each one that was introduced which tensor it is part of;
    `equations` are those of the operator, every range explicit; `places` says of a tensor that is
    kept whole before how many statements it is defined. `folds` are the reductions by users'
    reducers, whose statements stand for others, or which are `ruled` and have none; `instead` are
    equations by which a tensor is computed again; `types` are the element types known; `cycles` are
    the tensors that need themselves, by component."""

    equations: tuple[Equation, ...] = ()
    types: Mapping[str, DType] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    temporaries: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    places: dict[str, float] = field(default_factory=dict)
    folds: list[FoldOf] = field(default_factory=list)
    ruled: list[Ruled] = field(default_factory=list)
    instead: dict[str, tuple[Equation, ...]] = field(default_factory=dict)
    cycles: Mapping[str, int] = field(default_factory=dict)

    def of(self, tensor: str) -> list[Statement]:
        """The statements that define a tensor."""
        return [s for s in self.statements if s.tensor == tensor]


def ordered(checked: Checked) -> tuple[Equation, ...]:
    """The equations in the order in which they run."""
    return tuple(checked.equations[step.equation] for step in checked.steps)


def normal(
    checked: Checked,
    equations: tuple[Equation, ...],
    whole: Collection[str],
    types: Mapping[str, DType],
) -> Normal:
    """The statements of an operator, whose `equations` come in the order of their dependences;
    temporaries come before the statement that uses them. Tensors of `whole` are differentiated
    otherwise and get none."""
    shapes = dict(checked.shapes)
    equations = separate(equations, shapes)
    out = Normal(equations, types, shapes=shapes, cycles=recurrences(equations))
    for group in groups(equations):
        tensor = equations[group[0]].tensor
        if tensor in whole:
            for n in group:
                out.places.setdefault(equations[n].tensor, len(out.statements) - 0.5)
        else:
            _split_group([equations[n] for n in group], tensor, out)
    return out


def is_recurrence(equations: Iterable[Equation]) -> bool:
    """Does one of these equations of a tensor read the tensor?"""
    return any(e.tensor == a.tensor for e in equations for a in reads(e))


def reads(equation: Equation) -> Iterator[Access]:
    """Every access that evaluating an equation makes, of its own tensor too."""
    for root in equation.roots:
        yield from accesses(root)


def _split_group(equations: Sequence[Equation], owner: str, out: Normal) -> None:
    """Appends the statements of an equation, or of those of a joint reduction."""
    if not all(map(is_plain, equations)):
        for equation in equations:
            _split(equation, owner, out)
        return
    reduces = [eq.rhs for eq in equations if isinstance(eq.rhs, Reduce)]
    every = [over_boxes([*eq.ranges, *r.ranges], list(conjuncts(r.where)))
             for eq, r in zip(equations, reduces, strict=True)]  # fmt: skip
    boxes = dict.fromkeys(r for ranges, _ in every for r in ranges)
    where = every[0][1]
    whole = Call("tuple", tuple(r.body for r in reduces))
    instance = Statement(
        equations[0].tensor, (), tuple(boxes), tuple(where), whole, None, equations[0]
    )
    bodies = _without_reductions(instance, owner, out)
    reduced = [r for r in every[0][0] if r.index in reduces[0].indices]
    reduction = folded(equations, children(bodies), reduced, where, out.types)
    tensors = tuple(eq.tensor for eq in equations)
    if reduction.fold.rule is not None:
        out.ruled.append(Ruled(reduction, owner))
        out.places.update(dict.fromkeys(tensors, len(out.statements) - 0.5))
        apart = tuple(map(_of_body, equations, reduces, children(bodies)))
        out.folds.append(FoldOf(tensors, tuple(equations), frozenset(), apart))
        return
    made = lifted(reduction, out.shapes)
    if made is None or (owner in out.cycles and any(eq.reducer for eq in made.equations)):
        made = prefixes(reduction, out.shapes)  # what is accumulated is no part of a recurrence
    out.shapes |= made.inside
    for equation in made.equations:
        _split(equation, owner, out)
        if equation.tensor in made.inside:
            out.temporaries[equation.tensor] = owner
    out.folds.append(FoldOf(tensors, tuple(equations), frozenset(made.inside)))


def _of_body(eq: Equation, r: Reduce, body: Expr) -> Equation:
    rhs = Reduce(r.reducer, r.indices, body, r.ranges, r.where, r.dtype)
    return Equation(eq.tensor, eq.lhs, rhs, eq.ranges)


def _split(equation: Equation, owner: str, out: Normal) -> None:
    """Appends the statements of one equation."""
    ranges, where = list(equation.ranges), list(conjuncts(equation.where))
    body, reducer = equation.rhs, equation.reducer
    while isinstance(body, Reduce) and isinstance(body.reducer, str):
        if reducer not in (None, body.reducer):
            break
        reducer = body.reducer
        ranges += body.ranges
        where += conjuncts(body.where)
        body = body.body
    ranges, where = over_boxes(ranges, where)
    s = Statement(
        equation.tensor, equation.lhs, tuple(ranges), tuple(where), body, reducer, equation
    )
    body = _without_reductions(s, owner, out)
    if body is not s.body:
        s = replace(s, body=body, equation=_with_body(equation, body))
    out.statements.append(s)


def _without_reductions(s: Statement, owner: str, out: Normal) -> Expr:
    """The body of a statement with the reductions inside it read from temporaries."""
    values: dict[Reduce, Expr] = {}
    for r, guards in outermost(s.body):  # those inside of its guards come before it
        read = [map_reductions(guard, values.__getitem__) for guard in guards]
        values[r] = _temporary(r, read, s, owner, out)
    return map_reductions(s.body, values.__getitem__) if values else s.body


def _with_body(equation: Equation, body: Expr) -> Equation:
    def inside(rhs: Expr, depth: str | None) -> Expr:
        if (
            isinstance(rhs, Reduce)
            and isinstance(rhs.reducer, str)
            and depth in (None, rhs.reducer)
        ):
            fresh = inside(rhs.body, rhs.reducer)
            return Reduce(rhs.reducer, rhs.indices, fresh, rhs.ranges, rhs.where, rhs.dtype)
        return body

    rhs = inside(equation.rhs, equation.reducer)
    return Equation(
        equation.tensor, equation.lhs, rhs, equation.ranges, equation.where, equation.reducer
    )


def _temporary(
    reduce: Reduce, guards: Iterable[Expr], outer: Statement, owner: str, out: Normal
) -> Access:
    """Defines a temporary that holds `reduce`, and gives the access that reads it."""
    conditions = dict.fromkeys((*outer.where, *guards))
    plain = [c for c in conditions if is_affine(c)]
    used = set(indices_of(reduce))
    while True:  # a condition that ties a used index to another one needs both; on sizes it stays
        tied = [c for c in plain if not indices_of(c) or used & set(indices_of(c))]
        more = used | {name for c in tied for name in indices_of(c)}
        if more == used:
            break
        used = more
    by_data = [c for c in conditions if c not in plain]
    tied += [c for c in by_data if used.issuperset(indices_of(c))]
    if reduce.reducer != "any":  # it is read where data say so for any of the other indices
        for each, names in connected(by_data, used):
            others = tuple(r for r in outer.ranges if r.index in names)
            whole = Reduce("any", tuple(r.index for r in others), each, others)
            tied.append(_temporary(whole, (), outer, owner, out))
    name = fresh_name(f"{owner}_{reduce.reducer}", out.shapes)
    free = [r for r in outer.ranges if r.index in used]
    equation, access = boxed(name, free, reduce, tied)
    out.shapes[name] = tuple(r.hi for r in equation.ranges)
    _split_group([equation], owner, out)
    out.temporaries[name] = owner  # after those inside it, which it reads
    return access


def companion(
    name: str, s: Statement, body: Expr, reducer: str, condition: Expr | None = None
) -> tuple[Equation, tuple[Expr, ...] | None, Access]:
    """A reduction of `body` over what `s` reduces, where a further condition holds: its equation,
    its shape, and how an instance of `s` reads it. The shape is None where it is that of the tensor
    of `s`."""
    e = s.equation
    where: Expr | None = None
    for each in (*s.where, *conjuncts(condition)):
        where = both(where, each)
    if e.reducer is not None:
        return Equation(name, e.lhs, body, s.ranges, where, reducer), None, Access(name, s.lhs)
    own = {r.index for r in e.ranges}
    inside = tuple(r for r in s.ranges if r.index not in own)
    reduce = Reduce(reducer, tuple(r.index for r in inside), body, inside, where)
    equation, access = boxed(name, (r for r in s.ranges if r.index in own), reduce, ())
    return equation, tuple(r.hi for r in equation.ranges), access
