"""Expressions as isl text, and isl's expressions as ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .. import isl
from ..errors import InternalError, OpError
from ..steps import Steps, finish
from .build import add, compare, floordiv, maximum, minimum, mod, mul, sub
from .canonical import constant
from .expr import Access, Call, Const, Expr, Index, Size, sizes_of

_INFIX = {
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!=",
    "add": "+", "sub": "-", "and": "and", "or": "or",
}  # fmt: skip


@lru_cache(maxsize=1 << 14)
def to_isl(expr: Expr) -> str:
    """A quasi-affine expression or condition as isl text, safe inside any other.

    Raises `OpError` in the user's words where it is not quasi-affine. Written with a stack, so
    that depth does not matter.
    """
    done: list[str] = []
    stack: list[str | Expr] = [expr]
    while stack:
        item = stack.pop()
        if isinstance(item, Expr):
            stack.extend(reversed(_pieces(item)))
        else:
            done.append(item)
    return "".join(done)


def _pieces(expr: Expr) -> tuple[str | Expr, ...]:
    """The text of an expression around those of its parts."""
    match expr:
        case Index(name) | Size(name):
            return (isl.ident(name),)
        case Const(bool() as value, _):
            return ("(0 = 0)" if value else "(0 = 1)",)
        case Const(int() as value, _):
            return (str(value) if value >= 0 else f"({value})",)
        case Call("mul", (a, b)):
            x, y = constant(a), constant(b)
            if x is not None or y is not None:
                return (f"({y}*", a, ")") if x is None else (f"({x}*", b, ")")
        case Call("neg", (a,)):
            return "(-", a, ")"
        case Call("not", (a,)):
            return "(not ", a, ")"
        case Call("floordiv" | "mod" as op, (a, b)):
            by = constant(b)
            if by is not None:
                return _division(op, a, by)
        case Call("min" | "max" as op, (a, b)):
            return f"{op}(", a, ", ", b, ")"
        case Call(op, (a, b)) if op in _INFIX:
            return "(", a, f" {_INFIX[op]} ", b, ")"
    raise not_affine(expr)


def _division(op: str, dividend: Expr, by: int) -> tuple[str | Expr, ...]:
    if by == 0:
        return ("0",)
    if op == "floordiv":
        return ("floor(", dividend, f"/{by})") if by > 0 else ("floor((-", dividend, f")/{-by})")
    return ("(", dividend, f" mod {by})") if by > 0 else ("(-((-", dividend, f") mod {-by}))")


def not_affine(expr: Expr) -> OpError:
    """The error about an expression that isl cannot take, in the user's words."""
    from .printer import print_expr

    text = print_expr(expr)
    if isinstance(expr, Access):
        return OpError(f"{text} depends on data, so it is not affine")
    if isinstance(expr, Call) and expr.op in ("mul", "floordiv", "mod") and sizes_of([expr]):
        return OpError(f"{text} is not affine while its sizes are symbols")
    return OpError(f"{text} is not affine")


_OP: Any = isl.raw.ast_expr_op_type
_KIND: Any = isl.raw.ast_expr_type
_BINARY: dict[Any, Callable[[Expr, Expr], Expr]] = {
    _OP.add: add,
    _OP.sub: sub,
    _OP.mul: mul,
    _OP.div: floordiv,  # exact
    _OP.fdiv_q: floordiv,
    _OP.pdiv_q: floordiv,  # of a dividend that is not negative
    _OP.pdiv_r: mod,
    _OP.zdiv_r: mod,  # compared with 0 only
    _OP.and_: lambda a, b: Call("and", (a, b)),
    _OP.and_then: lambda a, b: Call("and", (a, b)),
    _OP.or_: lambda a, b: Call("or", (a, b)),
    _OP.or_else: lambda a, b: Call("or", (a, b)),
    _OP.eq: lambda a, b: compare("eq", a, b),
    _OP.le: lambda a, b: compare("le", a, b),
    _OP.lt: lambda a, b: compare("lt", a, b),
    _OP.ge: lambda a, b: compare("ge", a, b),
    _OP.gt: lambda a, b: compare("gt", a, b),
}


def from_isl(ast: isl.raw.AstExpr, leaf: Callable[[str], Expr]) -> Expr:
    """An expression of isl's AST as ours; `leaf` says what each name stands for."""
    found: Expr = finish(_read(ast, leaf))
    return found


def _read(ast: isl.raw.AstExpr, leaf: Callable[[str], Expr]) -> Steps:
    kind = ast.get_type()
    if kind == _KIND.int:
        return Const(int(ast.get_val().to_python()))
    if kind == _KIND.id:
        return leaf(isl.name(ast.get_id().get_name()))
    op = ast.get_op_type()
    args = []
    for n in range(ast.get_op_n_arg()):
        args.append((yield _read(ast.get_op_arg(n), leaf)))
    if op == _OP.minus:
        return sub(Const(0), args[0])
    if op in (_OP.min, _OP.max):
        out = args[0]
        for arg in args[1:]:
            out = minimum(out, arg) if op == _OP.min else maximum(out, arg)
        return out
    if op in (_OP.cond, _OP.select):
        return Call("where", tuple(args))
    if op in _BINARY:
        return _BINARY[op](args[0], args[1])
    raise InternalError(f"no expression for isl's {ast.to_C_str()}")
