"""Expressions as text, with the parentheses that precedence needs and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from .binding import OPEN
from .expr import Access, Boundary, Call, Cast, Const, Expr, Index, Range, Reduce, Size
from .operations import OPERATIONS
from .surface import FLIPPED

_COMPARISON, _UNARY, _POWER, _ATOM = 1, 8, 10, 100


@dataclass(slots=True)
class _Piece:
    """A subexpression still to be printed, where operators weaker than `lowest` need brackets."""

    expr: Expr
    lowest: int
    tight: bool


def text(expr: Expr, lowest: int, tight: bool, names: Mapping[Expr, str] | None = None) -> str:
    """Prints with a stack of its own, so that depth does not matter.

    What has a name, in `names`, is printed by it.
    """
    out: list[str] = []
    stack: list[_Piece | str] = [_Piece(expr, lowest, tight)]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            out.append(item)
        elif names and item.expr in names:
            out.append(names[item.expr])
        else:
            stack.extend(reversed(_parts(item)))
    return "".join(out)


def _parts(piece: _Piece) -> list[_Piece | str]:
    """One level of `piece`: strings and smaller pieces, brackets included."""
    expr, tight = piece.expr, piece.tight
    match expr:
        case Const(value, None):
            return _bracketed([_number(value)], piece, _UNARY if _negative(value) else _ATOM)
        case Const(value, dtype):
            return [f"{dtype}({_number(value)})"]
        case Index(name) | Size(name):
            return [name]
        case Access(tensor, indices, boundary):
            return [tensor, *_boundary(boundary), "[", *_list(indices, ",", True), "]"]
        case Cast(dtype, arg):
            return [dtype.name, "(", _Piece(arg, 0, tight), ")"]
        case Range(index, lo, hi):
            return [f"{index} in ", _Piece(lo, 0, True), ":", _Piece(hi, 0, True)]
        case Reduce():
            return _reduction(expr, tight)
        case Call(op, args):
            if isinstance(op, str):
                return _call(op, args, piece)
            return [op.name, "(", *_list(args, ", ", tight), ")"]
    raise TypeError(f"not an expression: {expr!r}")


def _boundary(boundary: Boundary | None) -> list[_Piece | str]:
    if boundary is None:
        return []
    value = boundary.value
    number: list[_Piece | str] = []
    if value is not None:
        number = ["(", _Piece(value, 0, False), ")"]
    return [f".{boundary.kind}", *number]


def _list(exprs: tuple[Expr, ...], separator: str, tight: bool) -> list[_Piece | str]:
    out: list[_Piece | str] = []
    for expr in exprs:
        out += [*([separator] if out else []), _Piece(expr, 0, tight)]
    return out


def _bracketed(parts: list[_Piece | str], piece: _Piece, precedence: int) -> list[_Piece | str]:
    return ["(", *parts, ")"] if precedence < piece.lowest else parts


def _call(op: str, args: tuple[Expr, ...], piece: _Piece) -> list[_Piece | str]:
    operation = OPERATIONS[op]
    symbol, level, tight = operation.symbol, operation.precedence, piece.tight
    if symbol is None:
        return [op, "(", *_list(args, ", ", tight), ")"]
    if len(args) == 1:
        arg = args[0]
        literal = isinstance(arg, Const) and arg.dtype is None and not _negative(arg.value)
        lowest = _ATOM + 1 if op == "neg" and literal else level  # -1 would be a literal again
        return _bracketed([symbol, _Piece(arg, lowest, tight)], piece, level)
    space = "" if tight or level == _POWER else " "
    links = chain(Call(op, args)) if op == "and" else None
    if links is not None:
        parts: list[_Piece | str] = [_Piece(links[0], _COMPARISON + 1, tight)]
        for link, right in links[1]:
            sign = OPERATIONS[link].symbol
            parts += [f"{space}{sign}{space}", _Piece(right, _COMPARISON + 1, tight)]
        return _bracketed(parts, piece, _COMPARISON)
    first = _ATOM if level == _POWER else level + (level == _COMPARISON)
    second = _UNARY if level == _POWER else level + 1
    parts = [_Piece(args[0], first, tight), f"{space}{symbol}{space}"]
    return _bracketed([*parts, _Piece(args[1], second, tight)], piece, level)


def chain(expr: Expr) -> tuple[Expr, list[tuple[str, Expr]]] | None:
    """The parts of `(a < b) & (b < c)`, which prints as `a < b < c`, or None.

    A first link with its literal on the right, `b > 0`, is read as `0 < b` if that makes a chain.
    """
    links: list[Call] = []
    while isinstance(expr, Call) and expr.op == "and":
        right = expr.args[1]
        if not isinstance(right, Call) or not compares(right):
            return None
        links.append(right)
        expr = expr.args[0]
    if not links or not isinstance(expr, Call) or not compares(expr):
        return None
    if expr.args[1] is not links[-1].args[0]:
        expr = Call(FLIPPED[str(expr.op)], (expr.args[1], expr.args[0]))
        if not isinstance(expr.args[0], Const):
            return None
    links.append(expr)
    links.reverse()
    for link, following in pairwise(links):
        if link.args[1] is not following.args[0] or str(link.op)[0] != str(following.op)[0]:
            return None  # lt and le go together, and gt and ge
    return links[0].args[0], [(str(link.op), link.args[1]) for link in links]


def compares(expr: Expr) -> bool:
    return (
        isinstance(expr, Call)
        and expr.symbol is not None
        and OPERATIONS[str(expr.op)].precedence == _COMPARISON
    )


def _reduction(expr: Reduce, tight: bool) -> list[_Piece | str]:
    out: list[_Piece | str] = [str(expr.reducer), "(", _Piece(expr.body, 0, tight)]
    if expr.indices != OPEN:
        given = {r.index: r for r in expr.ranges}
        names: tuple[Expr, ...] = tuple(given.get(name, Index(name)) for name in expr.indices)
        open_, close = ("", "") if len(names) == 1 and not given else ("(", ")")
        out += [f", over={open_}", *_list(names, ", ", tight), close]
    if expr.where is not None:
        out += [", where=", _Piece(expr.where, 0, tight)]
    if expr.dtype is not None:
        out.append(f", dtype={expr.dtype}")
    return [*out, ")"]


def _negative(value: bool | int | float) -> bool:
    return _number(value).startswith("-")


def _number(value: bool | int | float) -> str:
    """The literal: Python's shortest, `inf` and `nan` by name."""
    return repr(value)
