"""Operators, equations and expressions as text that parses back to an equal operator.

Parentheses are printed where precedence needs them, `over=` where the rule of `binding.py` would
bind something else, the header where the defaults would not give the same interface.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count

from .binding import BindingError, bind, map_reductions, reopen
from .expr import (
    Access,
    Call,
    Expr,
    Index,
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
from .print_reducer import definition, function_lines, together, with_own_names, written
from .shared import named_parts
from .surface import compare, default_params, default_returns

_ASSIGNMENT = {None: "=", "sum": "+=", "prod": "*="}


def print_op(op: Op, header: bool = False) -> str:
    """The canonical text of `op`: it parses back to an equal op, and equal ops print the same.

    With `header` it has one also where the text would say as much without.
    """
    equations, folds, functions = with_own_names(op.equations)
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
    indices: set[str] = set()
    for eq in equations:
        tensors[eq.tensor] = len(eq.lhs)
        for expr in (eq.rhs, *eq.lhs, *eq.ranges, *(() if eq.where is None else (eq.where,))):
            for item in walk(expr):
                if isinstance(item, Access):
                    tensors[item.tensor] = len(item.indices)
                elif isinstance(item, Index):
                    indices.add(item.name)
    for dims in op.shapes.values():
        sizes.update((s.name, None) for d in dims for s in walk(d) if isinstance(s, Size))
    body = [line for each in functions for line in function_lines(each)]
    body += [line for fold in folds for line in definition(fold)]
    if op.maxima:
        listed = (f"{name} <= {most}" for name, most in sorted(op.maxima.items()))
        body.append(f"dynamic {', '.join(listed)}")
    for kind, names in zip(("size", "index"), undeclared(lines_of, tensors, sizes), strict=True):
        if names:
            body.append(f"{kind} {', '.join(names)}")
    for tensor, dims in sorted(op.shapes.items()):
        body.append(f"{tensor}: [{', '.join(text(d, 0, True) for d in dims)}]")
    taken = {*tensors, *sizes, *indices, *(fold.name for fold in folds)}
    taken |= {function.name for function in functions}
    numbers = (f"e{n}" for n in count(1))
    for first, *others in groups(equations):
        if others:
            body.append(together([lines_of[n] for n in (first, *others)]))
        else:
            lets, parts = _named(lines_of[first], numbers, taken)
            body += lets
            body.append(_equation(lines_of[first], equations[first].reducer, parts))
    return "\n".join(lines + (body if bare else [f"    {line}" for line in body]))


def print_equation(eq: Equation) -> str:
    """One equation, as in `C[i,j] = sum(A[i,k] * B[k,j])`."""
    line = _written(eq)
    every = (item for root in (*eq.lhs, eq.rhs) for item in walk(root))
    taken = {item.name for item in every if isinstance(item, Index)} | {eq.tensor}
    lets, names = _named(line, (f"e{n}" for n in count(1)), taken)
    return "\n".join([*lets, _equation(line, eq.reducer, names)])


def print_together(equations: Sequence[Equation], number: int) -> str:
    """One equation, with the others of its joint reduction."""
    group = next(group for group in groups(equations) if number in group)
    if len(group) == 1:
        return print_equation(equations[number])
    return together([_written(equations[n]) for n in group])


def print_expr(expr: Expr) -> str:
    """An expression, for people to read: its free indices count as bound outside, and parts that
    would make it long without end are left out."""
    expr = _canonical(expr)
    opened = _opened(expr, indices_of(expr), (), ())[0]
    return text(opened, 0, False, dict.fromkeys(named_parts((opened,)), "..."))


def _param(param: Param) -> str:
    dtype, dims = param.type.dtype, param.type.dims
    if dtype is None and dims is None:
        return param.name
    shape = "" if dims is None else f"[{', '.join(map(str, dims))}]"
    return f"{param.name}: {'' if dtype is None else dtype.name}{shape}"


def _named(
    eq: Written, numbers: Iterator[str], taken: Collection[str]
) -> tuple[list[str], dict[Expr, str]]:
    """The `let` lines of an equation, and the names of its parts that they give."""
    roots = (*eq.lhs, eq.rhs, *eq.ranges, *eq.conditions)
    parts = named_parts(roots)
    names: dict[Expr, str] = {}
    if not parts:
        return [], names
    free = (name for name in numbers if name not in taken)
    lines: list[str] = []
    for part, name in zip(parts, free, strict=False):
        lines.append(f"let {name} = {text(part, 0, False, names)}")
        names[part] = name
    return lines, names


def _equation(eq: Written, reducer: str | None, names: Mapping[Expr, str]) -> str:
    target = f"{eq.tensor}[{','.join(text(e, 0, True, names) for e in eq.lhs)}]"
    sign = _ASSIGNMENT.get(reducer, f"{reducer}=")
    clause = [text(r, 0, True, names) for r in eq.ranges]
    clause += [text(c, 0, False, names) for c in eq.conditions]
    where = f" where {', '.join(clause)}" if clause else ""
    return f"{target} {sign} {text(eq.rhs, 0, False, names)}{where}"


# -- which reductions say over=, and which ranges stand at the end of the equation


@lru_cache(maxsize=1 << 12)
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
                pairs = _pairs(bare, bound.rhs)
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


def _pairs(expr: Expr, bound: Expr) -> list[tuple[Reduce, Reduce]]:
    """The reductions of an expression, each with what it became where indices were bound anew."""
    out: list[tuple[Reduce, Reduce]] = []
    seen: set[tuple[Expr, Expr]] = set()
    stack = [(expr, bound)]
    while stack:
        pair = stack.pop()
        if pair in seen:
            continue
        seen.add(pair)
        one, other = pair
        if isinstance(one, Reduce) and isinstance(other, Reduce):
            out.append((one, other))
            stack.append((one.body, other.body))
            # Ranges that are lifted out of one may be given to the other again, in any place.
            found = {r.index: r for r in other.ranges}
            stack.extend((r, found[r.index]) for r in one.ranges if r.index in found)
            # One that binds more than it did may have got conditions of the equation, too.
            if one.where is not None and other.where is not None and one.indices == other.indices:
                stack.append((one.where, other.where))
        else:
            stack.extend(zip(children(one), children(other), strict=True))
    return out


def _canonical(expr: Expr) -> Expr:
    """`expr` with literals on the right of comparisons and ranges in the order of their indices."""

    def rule(item: Expr) -> Expr:
        if isinstance(item, Call) and compares(item):
            return compare(str(item.op), *item.args)
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
