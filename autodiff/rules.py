"""Rules for derivatives that users give: what they may say is checked when they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..algo.dtypes import DType, f32
from ..algo.errors import DTypeError, GradientError
from ..algo.location import caller
from ..algo.tensor_expr.annotation import annotation
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.expr import (
    Const,
    Expr,
    Index,
    Range,
    accesses,
    indices_of,
    sizes_of,
)
from ..algo.tensor_expr.located import located
from ..algo.tensor_expr.op import Equation, Op, Param, Rule
from ..algo.tensor_expr.parse import parse
from ..algo.tensor_expr.settle import needs
from ..algo.tensor_expr.trace import trace
from ..algo.tensor_expr.types import infer
from .blocks import extents_of, fitted, moves, pull_of, reads_value, same_shape
from .degree import degrees, first_of, has_steps


def defvjp(self: Op, rule: Any) -> Op:
    """`Op.defvjp`, which says what a rule is."""
    return _given(self, "vjp", rule)


def defjvp(self: Op, rule: Any) -> Op:
    """`Op.defjvp`, which says what a rule is."""
    return _given(self, "jvp", rule)


def _given(op: Op, kind: str, given: Any) -> Op:
    if any(key.startswith("result types") for key in op._memo):
        raise GradientError(
            f"def{kind} of {op.name}: a program uses {op.name} already, and its derivatives would "
            f"not know of the rule; give rules where {op.name} is defined"
        )
    before = next((r for r in op.rules if r.results == op.returns), None)
    rule = rule_of(op, kind, given, before)
    object.__setattr__(op, "rules", (*(r for r in op.rules if r is not before), rule))
    op._memo.clear()
    return op


def rule_of(op: Op, kind: str, given: Any, before: Rule | None) -> Rule:
    """The rule that somebody gives for `op`, beside what was given `before`, checked."""
    params = tuple(p.name for p in op.params)
    rule = before or Rule(params, op.returns, None, None, (*params, *op.returns))
    made = _operator(op, kind, given, rule)
    rule = replace(rule, vjp=made) if kind == "vjp" else replace(rule, jvp=made)
    _check_names(op, kind, made, rule)
    if needs(op) is None and needs(made) is None:
        _check_shapes(op, kind, made, rule)
        _check_types(op, kind, made, rule)
    _check_degrees(op, kind, made, rule)
    if kind == "jvp" and needs(op) is None and needs(made) is None:
        _check_linear(op, made, rule)
    return rule


def _operator(op: Op, kind: str, given: Any, rule: Rule) -> Op:
    """The rule as an operator that returns whatever it defines under a name that is asked for."""
    if isinstance(given, Op):
        made = given
    elif isinstance(given, str):
        made = parse(given, loc=caller())
        if not given.split("=")[0].rstrip().endswith(":"):
            made = replace(made, name=f"{op.name}_{kind}", _memo={})
    else:
        made = trace(given)
    called = moves(rule)
    names = [called[name] for name in (rule.params if kind == "vjp" else rule.results)]
    defined = {eq.tensor for eq in made.equations}
    returns = (
        *(name for name in names if name in defined),
        *(name for name in made.returns if name not in names),
    )
    if returns != made.returns:
        made = replace(made, returns=returns, _memo={})
    return _with_shapes(op, made, called)


def _with_shapes(op: Op, made: Op, called: Mapping[str, str]) -> Op:
    """A rule that says nothing of sizes has those of the operator, by their names."""
    if any(p.type.dims is not None for p in made.params):
        return made
    shapes = extents_of(op)
    shapes |= {move: shapes[name] for name, move in called.items() if name in shapes}
    names = [p.name for p in made.params]
    params = [Param(p.name, annotation(p.type.dtype, shapes.get(p.name, ()))) if p.name in shapes
              else p for p in made.params]  # fmt: skip
    formulas = [p.name for p in params if p.name in shapes and p.type.dims is None]
    by_data = [eq.tensor for eq in made.equations if any(map(accesses, eq.lhs))]
    extents = {n: shapes[n] for n in (*formulas, *by_data) if n in shapes and n not in made.shapes}
    extents |= made.shapes
    made = replace(made, equations=tuple(_ranged(eq, shapes) for eq in made.equations), _memo={})
    used = {*sizes_of([root for eq in made.equations for root in eq.roots])}
    used |= {*sizes_of([e for dims in extents.values() for e in dims])}
    for p in (p for p in op.params if p.name not in names and p.name in shapes):
        more = annotation(p.type.dtype, shapes[p.name])
        said = {dim for q in params for dim in q.type.dims or ()}
        if used & {*(more.dims or ())} - said:  # it says a size, and is not read
            params.append(Param(p.name, more))
    return replace(made, params=tuple(params), shapes=extents, _memo={})


def _ranged(eq: Equation, shapes: Mapping[str, tuple[Expr, ...]]) -> Equation:
    """The equation, in which indices that stand alone on the left run over the whole tensor, where
    nothing else says how far they go: `dx[i] = dy[]`."""
    said = {name for root in eq.roots[len(eq.lhs) :] for name in indices_of(root)}
    said |= {r.index for r in eq.ranges}
    more = tuple(
        Range(e.name, Const(0), extent)
        for e, extent in zip(eq.lhs, shapes.get(eq.tensor, ()), strict=False)
        if isinstance(e, Index) and e.name not in said
    )
    if not more:
        return eq
    return Equation(eq.tensor, eq.lhs, eq.rhs, (*eq.ranges, *more), eq.where, eq.reducer)


def _check_names(op: Op, kind: str, made: Op, rule: Rule) -> None:
    called = moves(rule)
    types = {p.name: p.type.dtype for p in op.params}
    mine, others = (rule.params, rule.results) if kind == "vjp" else (rule.results, rule.params)
    wanted = [called[name] for name in mine]
    for name in made.returns:
        if name not in wanted:
            number = next(n for n, eq in enumerate(made.equations) if eq.tensor == name)
            what = "the cotangent of a parameter" if kind == "vjp" else "the tangent of a result"
            raise _error(
                op, kind, f"it returns {name}, which is not {what}; expected {_some(wanted)}",
                made, number,
            )  # fmt: skip
    moving = [called[name] for name in others]
    readable = [*rule.params, *rule.results, *moving]
    for p in made.params:
        if p.name not in readable:
            raise _error(
                op, kind,
                f"it reads {p.name}; a rule reads parameters and results of {op.name} and "
                f"{'cotangents' if kind == 'vjp' else 'tangents'}, that is some of "
                f"{', '.join(readable)}",
            )  # fmt: skip
    for name in rule.params:
        dtype = types[name]
        moved = called[name] in (made.returns if kind == "vjp" else [p.name for p in made.params])
        if moved and dtype is not None and not dtype.is_float:
            raise _error(
                op, kind, f"it has {called[name]}, but {name} has elements of type {dtype}, and "
                "only floats have derivatives; leave it out",
            )  # fmt: skip
    if kind == "jvp":
        if not any(p.name in moving for p in made.params):
            raise _error(op, kind, f"it takes no tangent; expected some of {', '.join(moving)}")
        found = _types(op) or {}
        integers = [called[r] for r in rule.results if r in found and not found[r].is_float]
        missing = [name for name in wanted if name not in (*made.returns, *integers)]
        if missing:
            raise _error(
                op, kind, f"it does not return {missing[0]}; it returns the tangents of all "
                f"results that are floats, {', '.join(n for n in wanted if n not in integers)}",
            )  # fmt: skip


def _check_shapes(op: Op, kind: str, made: Op, rule: Rule) -> None:
    shapes = check(op).shapes
    own = {move: name for name, move in moves(rule).items()}
    extents = {p.name: shapes[own.get(p.name, p.name)] for p in made.params}
    settled, checked, sizes = fitted(made, extents)
    for name in made.returns:
        same_shape(settled, name, checked.shapes[name], shapes[own[name]], sizes)


def _check_types(op: Op, kind: str, made: Op, rule: Rule) -> None:
    """Types agree with those declared, and are kept where none are declared (tried at f32)."""
    own = {move: name for name, move in moves(rule).items()}
    types = _types(op)
    if types is None:
        return
    declared = {p.name for p in op.params if p.type.dtype is not None}
    for p in made.params:
        like = own.get(p.name, p.name)
        known = like in declared or len(declared) == len(op.params)
        if p.type.dtype is not None and (not known or p.type.dtype is not types[like]):
            was = f"{types[like]}" if known else "any type of float"
            raise _error(
                op, kind, f"{p.name} is declared {p.type.dtype}, where {like} has {was}; "
                f"declare what {op.name} does",
            )  # fmt: skip
    try:
        found = infer(check(made), {p.name: types[own.get(p.name, p.name)] for p in made.params})
    except DTypeError:  # an index again, which is met when types are known
        return
    for name in made.returns:
        _check_type(op, kind, name, found, types, own[name], made)


def _types(op: Op) -> dict[str, DType] | None:
    """The element types at f32 where none is declared; None where that is an index."""
    if needs(op) is not None:
        return None
    try:
        return infer(check(op), {p.name: p.type.dtype or f32 for p in op.params})
    except DTypeError:
        return None


def _check_type(
    op: Op,
    kind: str,
    name: str,
    found: Mapping[str, DType],
    types: Mapping[str, DType],
    like: str,
    made: Op,
) -> None:
    if found[name] is types[like]:
        return
    number = next(n for n, eq in enumerate(made.equations) if eq.tensor == name)
    open_types = any(p.type.dtype is None for p in op.params)
    tried = "where arguments that have no type are f32, " if open_types else ""
    raise _error(
        op, kind, f"{tried}{name} has elements of type {found[name]} where those of {like} are "
        f"{types[like]}; cast it, or compute it of what has that type", made, number,
    )  # fmt: skip


def _check_degrees(op: Op, kind: str, made: Op, rule: Rule) -> None:
    """What is surely not linear is refused; what may be (a clip of gradients) is meant."""
    called = moves(rule)
    names = [called[name] for name in (rule.results if kind == "vjp" else rule.params)]
    moving = [p.name for p in made.params if p.name in names]
    found = degrees(made, moving)
    for name in made.returns:
        wrong = (found[name] or frozenset()) - {1}
        if wrong:
            number = first_of(made, name, wrong, found)
            what = f"has a term of degree {min(wrong)} in" if min(wrong) else "has a term without"
            raise _error(
                op, kind, f"{name} {what} {_some(moving or names)}, so it is no derivative; "
                "expected products of one of these and what does not read them", made, number,
            )  # fmt: skip


def _check_linear(op: Op, made: Op, rule: Rule) -> None:
    pull = pull_of(rule if rule.vjp is None else replace(rule, vjp=None))
    tangents = {moves(rule)[name] for name in rule.params}
    for name in (p.name for p in made.params if p.name in tangents):
        if reads_value(pull.op, name) or has_steps(made, name):
            raise _error(op, "jvp", f"it is not linear in {name}, so it is no derivative", made, 0)


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"some of {', '.join(names)}"


def _error(op: Op, kind: str, message: str, made: Op | None = None, number: int = 0) -> Any:
    place = "" if made is None else located(made, number)
    return GradientError(f"the {kind} rule of {op.name}: {message}{place}")
