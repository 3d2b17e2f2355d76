"""Small constructors for expressions, with the integer folding that is always right.

Only integers (index arithmetic) fold here; nothing is assumed of floats.
"""

from __future__ import annotations

from .expr import Call, Const, Expr, Index, Size


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
