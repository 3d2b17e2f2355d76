"""Signs and zeros as people write them: `-a * b` for `-(a * b)`, `a - 2 * b` for `a + -2 * b`,
0 for a False beside floats."""

from __future__ import annotations

from collections.abc import Collection

from ..algo.tensor_expr.expr import Call, Const, Expr, transform
from ..algo.tensor_expr.simplify import is_float

FALSE = Const(False)


def signed(expr: Expr) -> Expr:
    """Products and quotients with the sign at their first factor: `-a * b` for `-(a * b)`; that of
    what is added, or chosen to be, before it: `a - where(c, b, 0)` for `a + where(c, -b, 0)`."""

    def negated(item: Expr) -> Expr:
        rest: list[Call] = []
        while isinstance(item, Call) and item.op in ("mul", "div"):
            rest.append(item)
            item = item.args[0]
        if isinstance(item, Const) and item.dtype is None and type(item.value) in (int, float):
            item = Const(-item.value)
        else:
            item = Call("neg", (item,))
        for product in reversed(rest):
            item = Call(product.op, (item, product.args[1]))
        return item

    def rule(item: Expr) -> Expr:
        match item:
            case Call("neg", (Call("mul" | "div") as product,)):
                return negated(product)
            case Call("add" | "sub" as op, (a, b)):
                negative, amount = _added(b)
                return Call("sub" if op == "add" else "add", (a, amount)) if negative else item
        return item

    return transform(expr, rule)


def amount_of(expr: Expr) -> tuple[bool, Expr]:
    """Whether a product has a sign, or a number that has one, at its first factor; and without."""
    rest: list[Call] = []
    while isinstance(expr, Call) and expr.op in ("mul", "div"):
        rest.append(expr)
        expr = expr.args[0]
    match expr:
        case Call("neg", (amount,)):
            negative = True
        case Const(int() | float() as value, None) if value < 0:
            negative, amount = True, Const(-value)
        case _:
            negative, amount = False, expr
    for product in reversed(rest):
        amount = Call(product.op, (amount, product.args[1]))
    return negative, amount


def _added(expr: Expr) -> tuple[bool, Expr]:
    """`amount_of` of what is added: a product, or the choice between one and nothing."""
    match expr:
        case Call("where", (condition, value, Const() as nothing)) if not nothing.value:
            negative, amount = _added(value)
            return negative, Call("where", (condition, amount, nothing))
    return amount_of(expr)


def plain_zeros(expr: Expr, floats: Collection[str]) -> Expr:
    """Beside what is surely a float, 0 for the False that is nothing in every type."""

    def rule(item: Expr) -> Expr:
        match item:
            case Call("where", (c, a, no)) if no is FALSE and is_float(a, floats):
                return Call("where", (c, a, Const(0)))
            case Call("where", (c, no, b)) if no is FALSE and is_float(b, floats):
                return Call("where", (c, Const(0), b))
        return item

    return transform(expr, rule)
