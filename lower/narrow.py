"""What a condition says of the variables in it, where it holds and where it does not."""

from __future__ import annotations

from collections.abc import Mapping

from ..algo.tensor_expr.affine import Interval, is_integer, linear
from ..algo.tensor_expr.build import conjuncts, sub
from ..algo.tensor_expr.expr import Call, Expr, Index

_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def where_holds(cond: Expr, known: Mapping[str, Interval]) -> Mapping[str, Interval]:
    """What is known where a condition holds: bounds of one variable in it say more of that."""
    narrow = dict(known)
    for part in conjuncts(cond):
        if isinstance(part, Call) and part.op in (*_OPPOSITE, "eq"):
            _narrow(part, narrow)
    return narrow


def where_fails(cond: Expr, known: Mapping[str, Interval]) -> Mapping[str, Interval]:
    """What is known where a condition does not hold."""
    match cond:
        case Call(op, args) if op in _OPPOSITE:
            return where_holds(Call(_OPPOSITE[op], args), known)
    return known


def _narrow(cond: Call, known: dict[str, Interval]) -> None:
    a, b = cond.args
    form = linear(sub(a, b)) if is_integer(a) and is_integer(b) else None
    if form is None or len(form.terms) != 1:
        return
    ((atom, factor),) = form.terms.items()
    if not isinstance(atom, Index) or atom.name not in known:
        return
    low, high = known[atom.name]
    below, above = cond.op in ("lt", "le", "eq"), cond.op in ("gt", "ge", "eq")
    # factor*v + rest <= 0, or >= 0; strict ones leave out 0.
    rest = form.const + {"lt": 1, "gt": -1}.get(str(cond.op), 0)
    if factor < 0:
        factor, rest, below, above = -factor, -rest, above, below
    if below:
        most = -rest // factor
        high = most if high is None else min(high, most)
    if above:
        least = -(rest // factor)
        low = least if low is None else max(low, least)
    if low is None or high is None or low <= high:
        known[atom.name] = (low, high)
