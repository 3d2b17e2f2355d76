"""Where an instance adds to a cotangent when the element depends on data: dX[idx[n]] += v(n)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..algo.steps import Steps, finish
from ..algo.tensor_expr.affine import is_affine
from ..algo.tensor_expr.build import conjuncts
from ..algo.tensor_expr.expr import Access, Call, Const, Expr, Range, accesses
from .statements import Statement


@dataclass(frozen=True, slots=True)
class Scatter:
    """A part of a cotangent whose element depends on data: dX[lhs] += value over `ranges`."""

    lhs: tuple[Expr, ...]
    ranges: tuple[Range, ...]
    where: tuple[Expr, ...]
    value: Expr


def scattered(statement: Statement, access: Access, value: Expr) -> Scatter:
    """Where nothing is added the index may be out of range, so what guards the value guards it."""
    where = statement.where
    while (outermost := guard(value, data=True)) is not None:
        if any(map(by_data, accesses(outermost[0]))):
            break
        where = (*where, *conjuncts(outermost[0]))
        value = outermost[1]
    something = finish(_something(value))
    if isinstance(something, Expr):
        where = (*where, something)
    return Scatter(access.indices, statement.ranges, where, value)


def _something(value: Expr) -> Steps:
    """Where `value` is anything but the 0 of a branch: a condition, True or False. It asks what
    reads where data say only where the value would, so it chooses rather than joins."""
    if value is Const(0):
        return False
    if isinstance(value, Call) and value.op == "add":
        sides = []
        for arg in value.args:
            sides.append((yield _something(arg)))
        given = [side for side in sides if side is not False]
        return True if True in given else _either(given)
    if not isinstance(value, Call) or value.op != "where":
        return True
    condition, a, b = value.args
    yes, no = (yield _something(a)), (yield _something(b))
    if yes is no:
        return yes
    if yes is True and no is False:
        return condition
    if yes is False and no is True:
        return Call("not", (condition,))
    yes = condition if yes is True else Call("not", (condition,)) if yes is False else yes
    no = Call("not", (condition,)) if no is True else condition if no is False else no
    return Call("where", (condition, yes, no))


def _either(conditions: Sequence[Expr]) -> Expr | bool:
    out: Expr | bool = False
    for condition in conditions:
        out = Call("or", (out, condition)) if isinstance(out, Expr) else condition
    return out


def by_data(access: Access) -> bool:
    """Does the element that an access means depend on data?"""
    return any(accesses(index) for index in access.indices)


def guard(value: Expr, data: bool = False) -> tuple[Expr, Expr] | None:
    """(condition, x) if `value` is x where a condition holds, else 0; an affine one, or with `data`
    any."""
    if isinstance(value, Call) and value.op == "where":
        condition, x, y = value.args
        if not data and not is_affine(condition):
            return None
        if y is Const(0):
            return condition, x
        if x is Const(0):
            return Call("not", (condition,)), y
    return None
