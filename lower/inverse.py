"""A statement's dims from the values of its loops, by arithmetic.

    po = (56*h + w) // 48,  pi = (56*h + w) % 48,  0 <= w < 56
        ==>   h = (48*po + pi) // 56,  w = (48*po + pi) % 56

isl's AST says the same in more words, in which the quotient and the rest of one number are no
longer seen to be that, so that neighbouring cells do not look like neighbours. Loops that were
split give back what they were split from; a sum whose parts count like digits gives back its
parts, as those of fused loops do.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..algo.tensor_expr.affine import Interval, linear, normalize
from ..algo.tensor_expr.build import add, const, floordiv, mod, mul, sub
from ..algo.tensor_expr.expr import Call, Const, Expr, Index, walk
from ..sched.loop.nest import Stmt


def inverse(stmt: Stmt, values: Mapping[Expr, Expr | None]) -> dict[str, Expr]:
    """The dims that loops determine; `values` says what each loop's value, over dims, is.

    None is said of a loop of a single iteration.
    """
    ranges = _ranges(stmt)
    open_: dict[Expr, Expr] = {}
    for value, is_ in values.items():
        decided = normalize(value, ranges) if is_ is None else is_
        if is_ is not None or isinstance(decided, Const):
            open_[value] = decided
    found: dict[str, Expr] = {}
    while joined := _joined(open_):
        open_ = joined
    for value, is_ in open_.items():
        found |= _digits(value, is_, ranges)
    return found


def _joined(values: Mapping[Expr, Expr]) -> dict[Expr, Expr]:
    """The values with one quotient and its remainder joined; nothing if there are no such two."""
    for value in values:
        match value:
            case Call("floordiv", (whole, Const(int(by)))):
                rest = mod(whole, const(by))
                if rest in values:
                    number = add(mul(values[value], const(by)), values[rest])
                    others = {v: is_ for v, is_ in values.items() if v not in (value, rest)}
                    return {**others, whole: number}
    return {}


def divided(expr: Expr) -> bool:
    """Has an expression quotients or remainders?"""
    return any(isinstance(item, Call) and item.op in ("floordiv", "mod") for item in walk(expr))


def _digits(value: Expr, is_: Expr, ranges: Mapping[str, Interval]) -> dict[str, Expr]:
    """The dims in a sum each part of which is smaller than one step of the part before."""
    form = linear(value)
    if form is None or not all(isinstance(atom, Index) for atom in form.terms):
        return {}
    rest: Expr = sub(is_, const(form.const))
    found: dict[str, Expr] = {}
    parts = sorted(
        ((atom, step) for atom, step in form.terms.items() if isinstance(atom, Index)),
        key=lambda part: -part[1],
    )
    for n, (atom, step) in enumerate(parts):
        if step < 1:
            return {}
        low, high = 0, 0  # of what follows
        for other, by in parts[n + 1 :]:
            least, most = ranges.get(other.name, (None, None))
            if least is None or most is None:
                return {}
            low, high = low + by * least, high + by * most
        if high - low >= step:
            return {}
        found[atom.name] = floordiv(sub(rest, const(low)), const(step))
        rest = add(mod(sub(rest, const(low)), const(step)), const(low))
    return found


def _ranges(stmt: Stmt) -> dict[str, Interval]:
    """Constant bounds of dims that stand in the domain as they are."""
    ranges: dict[str, Interval] = {}
    for condition in stmt.domain:
        match condition:
            case Call(op, (Const(int(n)), Index(dim))) if op in _TURNED:
                _narrow(ranges, dim, _TURNED[op], n)
            case Call(op, (Index(dim), Const(int(n)))) if op in _TURNED:
                _narrow(ranges, dim, op, n)
    return ranges


_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _narrow(ranges: dict[str, Interval], dim: str, op: str, n: int) -> None:
    low, high = ranges.get(dim, (None, None))
    if op in ("gt", "ge"):
        n += op == "gt"
        ranges[dim] = (n if low is None else max(low, n)), high
    else:
        n -= op == "lt"
        ranges[dim] = low, (n if high is None else min(high, n))
