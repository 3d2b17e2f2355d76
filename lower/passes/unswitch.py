"""A choice that is the same in all iterations of a loop of lanes is made once, around it.

    for j in 0 .. n vector:                          if m[i] != m[i]:
        y[i] min= where(m[i] != m[i], a(j), b(j))        for j in 0 .. n vector: y[i] min= a(j)
                                              ==>    else:
                                                         for j in 0 .. n vector: y[i] min= b(j)

So argmax asks of each element one thing: whether it is the greatest, or, where that is NaN, whether
it is NaN. Loop and choice must be executed in any case, for the condition reads memory: a choice
within a branch of another moves after that one, or stays. The loop must hold one statement alone,
since its code is doubled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...algo.tensor_expr.affine import Interval
from ...algo.tensor_expr.expr import Call, Expr, accesses, children, indices_of
from ...algo.tensor_expr.expr import walk as parts_of
from ..ir import For, Function, If, Stmt, Store, Update, expressions, rebuild, substitute
from ..ranges import inside, span_of

Known = Mapping[str, Interval]


def unswitch(function: Function) -> Function:
    """The function with such choices around loops."""
    return Function(function.name, function.params, _stmt(function.body, {}))


def _stmt(stmt: Stmt, known: Known) -> Stmt:
    if isinstance(stmt, For) and stmt.kind in ("serial", "vector"):
        choices = list(_choices(stmt, known))
        if choices:
            cond, then, orelse = choices[0].args
            taken, other = (substitute(stmt, {choices[0]: part}) for part in (then, orelse))
            left = [*_choices(taken, known), *_choices(other, known)]
            if len(left) > len(choices):
                return If(cond, taken, other)
            return If(cond, _stmt(taken, known), _stmt(other, known))
    within = inside(stmt, known)
    return rebuild(stmt, lambda inner: _stmt(inner, within))


def _choices(stmt: Stmt, known: Known) -> Iterator[Call]:
    """The choices of the one statement in nested loops that no iteration changes."""
    bound: set[str] = set()
    lanes = False
    while isinstance(stmt, For):
        least = span_of(stmt, known)[0]
        if stmt.kind not in ("serial", "vector") or least is None or least < 1:
            return
        lanes = stmt.kind == "vector"
        bound.add(stmt.var)
        known = inside(stmt, known)
        stmt = stmt.body
    if not isinstance(stmt, (Store, Update)) or not lanes:
        return
    for expr in expressions(stmt):
        for item in parts_of(expr, parts=_computed):
            if (
                isinstance(item, Call)
                and item.op == "where"
                and _is_fixed(item.args[0], bound, stmt)
            ):
                yield item


def _computed(expr: Expr) -> tuple[Expr, ...]:
    """The parts that are computed whenever an expression is: of a choice its condition alone."""
    return expr.args[:1] if isinstance(expr, Call) and expr.op == "where" else children(expr)


def _is_fixed(cond: Expr, bound: set[str], stmt: Store | Update) -> bool:
    """Does a condition read memory that the statement leaves alone, and nothing of its loops?"""
    read = {cell.tensor for cell in accesses(cond)}
    return bool(read) and stmt.buffer not in read and bound.isdisjoint(indices_of(cond))
