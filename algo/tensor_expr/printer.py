"""Operators, equations and expressions as text that parses back to an equal operator.

Parentheses are printed where precedence needs them, `over=` where the rule of `binding.py` would
bind something else, the header where the defaults would not give the same interface.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .binding import BindingError, bind, map_reductions, reopen
from .expr import (
    Access,
    Call,
    Expr,
    Range,
    Reduce,
    Size,
    children,
    indices_of,
    rebuild,
    transform,
    walk,
)  # fmt: skip
from .expr_text import chain, compares, text
from .folds import groups, is_joint
from .names import Written, undeclared
from .op import Equation, Op, Param
from .print_reducer import definition, together, with_own_names, written
from .surface import compare, default_params, default_returns

_ASSIGNMENT = {None: "=", "sum": "+=", "prod": "*="}


def print_op(op: Op, header: bool = False) -> str:
    """The canonical text of `op`: it parses back to an equal op, and equal ops print the same.

    With `header` it has one also where the text would say as much without.
    """
    equations, folds = with_own_names(op.equations)
    lines_of = [_written(eq) for eq in equations]  # canonical from here on
    plain = all(p.type.dtype is None and p.type.dims is None for p in op.params)
    usual = op.params == default_params(op) and op.returns == default_returns(op)
    bare = not header and plain and usual
    lines: list[str] = []
    sizes: dict[str, None] = dict.fromkeys(sorted(op.maxima))
    tensors: dict[str, int | None] = {}
    if not bare:
        for param in op.params:
            tensors[param.name] = None if param.type.dims is None else len(param.type.dims)
            sizes.update((d, None) for d in param.type.dims or () if isinstance(d, str))
        name = re.sub(r"\W|^(?=\d)|^$", "_", op.name)
        lines.append(f"{name}({', '.join(map(_param, op.params))}) -> {', '.join(op.returns)}:")
    for eq in equations:
        tensors[eq.tensor] = len(eq.lhs)
        for expr in (eq.rhs, *eq.lhs, *eq.ranges, *(() if eq.where is None else (eq.where,))):
            for item in walk(expr):
                if isinstance(item, Access):
                    tensors[item.tensor] = len(item.indices)
    for dims in op.shapes.values():
        sizes.update((s.name, None) for d in dims for s in walk(d) if isinstance(s, Size))
    body: list[str] = [line for fold in folds for line in definition(fold)]
    if op.maxima:
        listed = (f"{name} <= {most}" for name, most in sorted(op.maxima.items()))
        body.append(f"dynamic {', '.join(listed)}")
    for kind, names in zip(("size", "index"), undeclared(lines_of, tensors, sizes), strict=True):
        if names:
            body.append(f"{kind} {', '.join(names)}")
    for tensor, dims in sorted(op.shapes.items()):
        body.append(f"{tensor}: [{', '.join(text(d, 0, True) for d in dims)}]")
    for first, *others in groups(equations):
        if others:
            body.append(together([lines_of[n] for n in (first, *others)]))
        else:
            body.append(_equation(lines_of[first], equations[first].reducer))
    return "\n".join(lines + (body if bare else [f"    {line}" for line in body]))


def print_equation(eq: Equation) -> str:
    """One equation, as in `C[i,j] = sum(A[i,k] * B[k,j])`."""
    return _equation(_written(eq), eq.reducer)


def print_together(equations: Sequence[Equation], number: int) -> str:
    """One equation, with the others of its joint reduction."""
    group = next(group for group in groups(equations) if number in group)
    if len(group) == 1:
        return print_equation(equations[number])
    return together([_written(equations[n]) for n in group])


def print_expr(expr: Expr) -> str:
    """An expression; its free indices count as bound outside."""
    expr = _canonical(expr)
    return text(_opened(expr, indices_of(expr), (), ())[0], 0, False)


def _param(param: Param) -> str:
    dtype, dims = param.type.dtype, param.type.dims
    if dtype is None and dims is None:
        return param.name
    shape = "" if dims is None else f"[{', '.join(map(str, dims))}]"
    return f"{param.name}: {'' if dtype is None else dtype.name}{shape}"


def _equation(eq: Written, reducer: str | None) -> str:
    target = f"{eq.tensor}[{','.join(text(e, 0, True) for e in eq.lhs)}]"
    sign = _ASSIGNMENT.get(reducer, f"{reducer}=")
    clause = [text(r, 0, True) for r in eq.ranges] + [text(c, 0, False) for c in eq.conditions]
    where = f" where {', '.join(clause)}" if clause else ""
    return f"{target} {sign} {text(eq.rhs, 0, False)}{where}"


# -- which reductions say over=, and which ranges stand at the end of the equation


def _written(eq: Equation) -> Written:
    if is_joint(eq.rhs):
        canonical = Equation(eq.tensor, eq.lhs, _canonical(eq.rhs), eq.ranges, eq.where)
        return written(canonical, lambda e, left: _opened(e, left, (), ())[0])
    left = [name for expr in eq.lhs for name in indices_of(expr)]
    conditions = () if eq.where is None else _conditions(_canonical(eq.where))
    rhs = _canonical(eq.rhs)
    rhs, lifted = _opened(rhs, left, eq.ranges, conditions, eq.reducer is not None)
    return Written(eq.tensor, eq.lhs, rhs, (*eq.ranges, *lifted), conditions)


def _opened(
    rhs: Expr,
    left: list[str],
    ranges: tuple[Range, ...],
    conditions: tuple[Expr, ...],
    accumulates: bool = False,
) -> tuple[Expr, tuple[Range, ...]]:
    """`rhs` with as few closed reductions as bind the same, and the ranges lifted out of it.

    Proposes, and lets `bind` say what the proposal would mean.
    """
    reductions = [item for item in walk(rhs) if isinstance(item, Reduce)]
    if not reductions:
        return rhs, ()
    for lifted in dict.fromkeys((_liftable(reductions, left), ())):
        bare = _without(rhs, lifted)
        inner_first = [item for item in walk(bare) if isinstance(item, Reduce)]
        closed = frozenset(item for item in inner_first if item.ranges)
        while True:
            proposal = reopen(bare, closed)
            try:
                bound = bind(proposal, left, (*ranges, *lifted), conditions, accumulates)
            except BindingError:
                wrong = set([item for item in inner_first if item not in closed][:1])
            else:
                if bound.rhs is rhs:
                    return proposal, lifted
                pairs = zip(_nested(bare), _nested(bound.rhs), strict=True)
                wrong = {mine for mine, found in pairs if mine.indices != found.indices}
            if wrong <= closed:
                break
            closed |= wrong
    return rhs, ()


def _liftable(reductions: list[Reduce], left: list[str]) -> tuple[Range, ...]:
    """Ranges that all reductions over their index share, with bounds known on the outside."""
    shared: dict[str, set[Range | None]] = {}
    for item in reductions:
        given = {r.index: r for r in item.ranges}
        for name in item.indices:
            shared.setdefault(name, set()).add(given.get(name))
    out: list[Range] = []
    for found in shared.values():
        r = next(iter(found))
        if len(found) == 1 and r is not None and set(indices_of(r)) <= set(left):
            out.append(r)
    return tuple(out)


def _without(expr: Expr, lifted: tuple[Range, ...]) -> Expr:
    def change(item: Reduce) -> Expr:
        fresh = rebuild(item, tuple(map_reductions(child, change) for child in children(item)))
        assert isinstance(fresh, Reduce)
        ranges = tuple(
            new for old, new in zip(item.ranges, fresh.ranges, strict=True) if old not in lifted
        )
        return Reduce(fresh.reducer, item.indices, fresh.body, ranges, fresh.where, item.dtype)

    return map_reductions(expr, change) if lifted else expr


def _nested(expr: Expr) -> list[Reduce]:
    """All reductions, in printing order, repeated as often as they are printed."""
    out: list[Reduce] = []
    stack = [expr]
    while stack:
        item = stack.pop()
        if isinstance(item, Reduce):
            out.append(item)
        stack.extend(reversed(children(item)))
    return out


def _canonical(expr: Expr) -> Expr:
    """`expr` with literals on the right of comparisons and ranges in the order of their indices."""

    def rule(item: Expr) -> Expr:
        if isinstance(item, Call) and compares(item):
            return compare(item.op, *item.args)
        if isinstance(item, Reduce):
            order = {name: place for place, name in enumerate(item.indices)}
            ranges = tuple(sorted(item.ranges, key=lambda r: order.get(r.index, -1)))
            return Reduce(item.reducer, item.indices, item.body, ranges, item.where, item.dtype)
        return item

    return transform(expr, rule)


def _conditions(where: Expr | None) -> tuple[Expr, ...]:
    """The left spine of a conjunction, whose parts the parser joins again from the left."""
    out: list[Expr] = []
    while isinstance(where, Call) and where.op == "and" and chain(where) is None:
        out.append(where.args[1])
        where = where.args[0]
    if where is not None:
        out.append(where)
    return tuple(reversed(out))
