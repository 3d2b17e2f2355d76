"""Equations over boxes: ranges that sizes alone bound, which count from 0."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence

from ..algo.errors import UnsupportedError
from ..algo.tensor_expr.affine import normalize
from ..algo.tensor_expr.build import add, both, compare, conjuncts, maximum, minimum, sub
from ..algo.tensor_expr.domains import largest, within
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    indices_of,
    substitute,
    walk,
)
from ..algo.tensor_expr.folds import groups
from ..algo.tensor_expr.op import Equation
from ..algo.tensor_expr.printer import print_expr
from .naming import fresh_name
from .unfold import is_plain


def over_boxes(ranges: list[Range], where: list[Expr]) -> tuple[list[Range], list[Expr]]:
    """Ranges over sizes alone: `k in 0:i+1` becomes `k in 0:N` and the condition `k < i+1`."""
    box: list[Range] = []
    where = list(where)
    for r in ranges:
        at, dims = Index(r.index), [outer.index for outer in box]
        lo, hi = r.lo, r.hi
        if indices_of(lo):
            plain, bent = _ends("max", lo)
            where += [compare("ge", at, each) for each in bent]
            top = None if plain else _largest(dims, sub(Const(0), lo), box, r)
            lo = functools.reduce(maximum, plain) if top is None else normalize(sub(Const(0), top))
        if indices_of(hi):
            plain, bent = _ends("min", hi)
            for each in bent:
                last = normalize(sub(each, Const(1)))
                shorter = last in walk(each)  # k <= i rather than k < i+1
                where.append(compare("le", at, last) if shorter else compare("lt", at, each))
            hi = functools.reduce(minimum, plain) if plain else _largest(dims, hi, box, r)
        box.append(Range(r.index, lo, hi))
    return box, where


def _ends(op: str, end: Expr) -> tuple[list[Expr], list[Expr]]:
    """The ends of which `end` is the least ("min") or greatest: those over sizes, the others."""
    found: list[Expr] = []
    stack = [end]
    while stack:
        match stack.pop():
            case Call(name, (one, other)) if name == op:
                stack += (other, one)
            case each:
                found.append(each)
    return [e for e in found if not indices_of(e)], [e for e in found if indices_of(e)]


def _largest(dims: list[str], value: Expr, box: list[Range], r: Range) -> Expr:
    found = largest(dims, value, within(box))
    if found is None:
        raise UnsupportedError(
            f"the gradient needs bounds for {r.index} in {print_expr(r.lo)}:{print_expr(r.hi)} "
            f"over sizes alone, and they are no single formula; give {r.index} a range over sizes "
            "and the rest as a condition"
        )
    return found


def boxed(
    name: str, free: Iterable[Range], reduce: Reduce, conditions: Iterable[Expr]
) -> tuple[Equation, Access]:
    """A tensor that holds `reduce` for each value of `free`, counted from 0, and its access.

    Where `conditions` on `free` fail, it holds the empty reduction.
    """
    free = tuple(free)
    shifts: dict[Expr, Expr] = {
        Index(r.index): add(Index(r.index), r.lo) for r in free if r.lo is not Const(0)
    }

    def shifted(expr: Expr) -> Expr:
        return normalize(substitute(expr, shifts))

    where: Expr | None = None
    for condition in (*conditions, *conjuncts(reduce.where)):
        where = both(where, shifted(condition))
    ranges = tuple(Range(r.index, Const(0), normalize(sub(r.hi, r.lo))) for r in free)
    inside = tuple(Range(r.index, shifted(r.lo), shifted(r.hi)) for r in reduce.ranges)
    rhs = Reduce(reduce.reducer, reduce.indices, shifted(reduce.body), inside, where, reduce.dtype)
    access = Access(name, tuple(normalize(sub(Index(r.index), r.lo)) for r in free))
    return Equation(name, tuple(Index(r.index) for r in free), rhs, ranges), access


def separate(
    equations: Sequence[Equation], shapes: dict[str, tuple[Expr, ...]]
) -> tuple[Equation, ...]:
    """The equations with every joint reduction over boxes, where it defines all of its tensors: its
    results have tensors of their own where they are parts of others. Adds the `shapes` of those.
    """
    counts = Counter(eq.tensor for eq in equations)
    out: list[Equation] = []
    for group in groups(equations):
        mine = [equations[n] for n in group]
        if len(mine) == 1 or all(is_plain(eq) and counts[eq.tensor] == 1 for eq in mine):
            out += mine
            continue
        shared = {r.index for r in mine[0].ranges if all(r in eq.ranges for eq in mine)}
        parts: list[Equation] = []
        for eq in mine:
            assert isinstance(eq.rhs, Reduce)
            r = eq.rhs
            ranges, where = over_boxes(list(eq.ranges), [])
            body = r.body
            for condition in where:
                if not shared.issuperset(indices_of(condition)):
                    body = Call("where", (condition, body, Const(False)))
            where = [c for c in where if shared.issuperset(indices_of(c))]
            r = Reduce(r.reducer, r.indices, body, r.ranges, r.where, r.dtype)
            name = fresh_name(f"{eq.tensor}_{r.reducer}", shapes)
            made, access = boxed(name, ranges, r, where)
            shapes[name] = tuple(each.hi for each in made.ranges)
            out.append(made)
            parts.append(Equation(eq.tensor, eq.lhs, access, eq.ranges))
        out += parts
    return tuple(out)
