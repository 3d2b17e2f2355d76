"""Small constructors for expressions, with the integer folding that is always right.

Only integers (index arithmetic) fold here; nothing is assumed of floats.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from .expr import Call, Const, Expr, Index, Size, walk


def const(value: bool | int | float) -> Const:
    """A weak literal."""
    return Const(value)


def _int(expr: Expr) -> int | None:
    if isinstance(expr, Const) and type(expr.value) is int and expr.dtype is None:
        return expr.value
    return None


def add(a: Expr, b: Expr) -> Expr:
    """a + b"""
    x, y = _int(a), _int(b)
    if x is not None and y is not None:
        return Const(x + y)
    if y is not None and y < 0:
        return Call("sub", (a, Const(-y)))
    return b if x == 0 and _is_index(b) else a if y == 0 and _is_index(a) else Call("add", (a, b))


def sub(a: Expr, b: Expr) -> Expr:
    """a - b"""
    x, y = _int(a), _int(b)
    if x is not None and y is not None:
        return Const(x - y)
    return a if y == 0 and _is_index(a) else Call("sub", (a, b))


def mul(a: Expr, b: Expr) -> Expr:
    """a * b"""
    x, y = _int(a), _int(b)
    if x is not None and y is not None:
        return Const(x * y)
    return b if x == 1 and _is_index(b) else a if y == 1 and _is_index(a) else Call("mul", (a, b))


def floordiv(a: Expr, b: Expr) -> Expr:
    """a // b, floor; 0 where b is 0"""
    x, y = _int(a), _int(b)
    if x is not None and y is not None:
        return Const(x // y if y else 0)
    return a if y == 1 and _is_index(a) else Call("floordiv", (a, b))


def mod(a: Expr, b: Expr) -> Expr:
    """a % b with the sign of b; 0 where b is 0"""
    x, y = _int(a), _int(b)
    if x is not None and y is not None:
        return Const(x % y if y else 0)
    return Call("mod", (a, b))


def minimum(a: Expr, b: Expr) -> Expr:
    """min(a, b)"""
    x, y = _int(a), _int(b)
    if x is not None and y is not None:
        return Const(min(x, y))
    return a if a is b else Call("min", (a, b))


def maximum(a: Expr, b: Expr) -> Expr:
    """max(a, b)"""
    x, y = _int(a), _int(b)
    if x is not None and y is not None:
        return Const(max(x, y))
    return a if a is b else Call("max", (a, b))


def compare(op: str, a: Expr, b: Expr) -> Expr:
    """`op` is one of lt, le, gt, ge, eq, ne."""
    return Call(op, (a, b))


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """Conjunction of two conditions, None being true."""
    if a is None or b is None:
        return b if a is None else a
    return a if a is b else Call("and", (a, b))


def all_of(conditions: Iterable[Expr]) -> Expr:
    """The conjunction of conditions; true where there are none."""
    found = list(conditions)
    return reduce(lambda a, b: Call("and", (a, b)), found) if found else Const(True)


def any_of(conditions: Iterable[Expr]) -> Expr:
    """The disjunction of conditions; false where there are none."""
    found = list(conditions)
    return reduce(lambda a, b: Call("or", (a, b)), found) if found else Const(False)


_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_DUAL = {"and": "or", "or": "and"}


def negation(cond: Expr) -> Expr:
    """The opposite of a condition over integers, with `not` before nothing but other calls."""
    done: dict[Expr, Expr] = {}
    for item in walk(cond):
        match item:
            case Const(bool() as value, _):
                done[item] = Const(not value)
            case Call(op, (a, b)) if op in _OPPOSITE:
                done[item] = Call(_OPPOSITE[op], (a, b))
            case Call(op, (a, b)) if op in _DUAL:
                done[item] = Call(_DUAL[op], (done[a], done[b]))
            case Call("not", (a,)):
                done[item] = a
            case _:
                done[item] = Call("not", (item,))
    return done[cond]


def conjuncts(cond: Expr | None) -> list[Expr]:
    """The conditions of a conjunction."""
    found: list[Expr] = []
    stack = [] if cond is None else [cond]
    while stack:
        match stack.pop():
            case Call("and", (left, right)):
                stack += (right, left)
            case other:
                found.append(other)
    return found


_INTEGER = frozenset(("add", "sub", "mul", "floordiv", "mod", "neg", "min", "max"))


def _is_index(expr: Expr) -> bool:
    """Is this certainly an integer index expression, so that x + 0 and x * 1 are x?"""
    stack = [expr]
    while stack:
        match stack.pop():
            case Index() | Size():
                pass
            case Call(op, args) if op in _INTEGER:
                stack += args
            case item:
                if _int(item) is None:
                    return False
    return True
