"""Operators, equations and expressions as text that parses back to an equal operator.

Parentheses are printed where precedence needs them, `over=` where the rule of `binding.py` would
bind something else, the header where the defaults would not give the same interface.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from .binding import OPEN, BindingError, bind, map_reductions, reopen
from .expr import (
    Access,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    Size,
    children,
    indices_of,
    rebuild,
    transform,
    walk,
)  # fmt: skip
from .names import Written, undeclared
from .op import Equation, Op, Param
from .operations import OPERATIONS
from .surface import FLIPPED, compare, default_params, default_returns

_ASSIGNMENT = {None: "=", "sum": "+=", "prod": "*="}
_COMPARISON, _UNARY, _POWER, _ATOM = 1, 8, 10, 100


def print_op(op: Op) -> str:
    """The canonical text of `op`: it parses back to an equal op, and equal ops print the same."""
    written = [_written(eq) for eq in op.equations]  # canonical from here on
    plain = all(p.type.dtype is None and p.type.dims is None for p in op.params)
    bare = plain and op.params == default_params(op) and op.returns == default_returns(op)
    lines: list[str] = []
    sizes: dict[str, None] = {}
    tensors: dict[str, int | None] = {}
    if not bare:
        for param in op.params:
            tensors[param.name] = None if param.type.dims is None else len(param.type.dims)
            sizes.update((d, None) for d in param.type.dims or () if isinstance(d, str))
        lines.append(f"{op.name}({', '.join(map(_param, op.params))}) -> {', '.join(op.returns)}:")
    for eq in op.equations:
        tensors[eq.tensor] = len(eq.lhs)
        for expr in (eq.rhs, *eq.lhs, *eq.ranges, *(() if eq.where is None else (eq.where,))):
            for item in walk(expr):
                if isinstance(item, Access):
                    tensors[item.tensor] = len(item.indices)
    for dims in op.shapes.values():
        sizes.update((s.name, None) for d in dims for s in walk(d) if isinstance(s, Size))
    body: list[str] = []
    for kind, names in zip(("size", "index"), undeclared(written, tensors, sizes), strict=True):
        if names:
            body.append(f"{kind} {', '.join(names)}")
    for tensor, dims in op.shapes.items():
        body.append(f"{tensor}: [{', '.join(_text(d, 0, True) for d in dims)}]")
    body += [_equation(w, eq.reducer) for w, eq in zip(written, op.equations, strict=True)]
    return "\n".join(lines + (body if bare else [f"    {line}" for line in body]))


def print_equation(eq: Equation) -> str:
    """One equation, as in `C[i,j] = sum(A[i,k] * B[k,j])`."""
    return _equation(_written(eq), eq.reducer)


def print_expr(expr: Expr) -> str:
    """An expression; its free indices count as bound outside."""
    expr = _canonical(expr)
    return _text(_opened(expr, indices_of(expr), (), ())[0], 0, False)


def _param(param: Param) -> str:
    dtype, dims = param.type.dtype, param.type.dims
    if dtype is None and dims is None:
        return param.name
    shape = "" if dims is None else f"[{', '.join(map(str, dims))}]"
    return f"{param.name}: {'' if dtype is None else dtype.name}{shape}"


def _equation(eq: Written, reducer: str | None) -> str:
    target = f"{eq.tensor}[{','.join(_text(e, 0, True) for e in eq.lhs)}]"
    sign = _ASSIGNMENT.get(reducer, f"{reducer}=")
    clause = [_text(r, 0, True) for r in eq.ranges] + [_text(c, 0, False) for c in eq.conditions]
    where = f" where {', '.join(clause)}" if clause else ""
    return f"{target} {sign} {_text(eq.rhs, 0, False)}{where}"


# -- which reductions say over=, and which ranges stand at the end of the equation


def _written(eq: Equation) -> Written:
    left = [name for expr in eq.lhs for name in indices_of(expr)]
    conditions = () if eq.where is None else _conditions(_canonical(eq.where))
    rhs = _canonical(eq.rhs)
    rhs, lifted = _opened(rhs, left, eq.ranges, conditions, eq.reducer is not None)
    return Written(eq.tensor, eq.lhs, rhs, (*eq.ranges, *lifted), conditions)


def _opened(
    rhs: Expr,
    left: list[str],
    ranges: tuple[Range, ...],
    conditions: tuple[Expr, ...],
    accumulates: bool = False,
) -> tuple[Expr, tuple[Range, ...]]:
    """`rhs` with as few closed reductions as bind the same, and the ranges lifted out of it.

    Proposes, and lets `bind` say what the proposal would mean.
    """
    reductions = [item for item in walk(rhs) if isinstance(item, Reduce)]
    if not reductions:
        return rhs, ()
    for lifted in dict.fromkeys((_liftable(reductions, left), ())):
        bare = _without(rhs, lifted)
        inner_first = [item for item in walk(bare) if isinstance(item, Reduce)]
        closed = frozenset(item for item in inner_first if item.ranges)
        while True:
            proposal = reopen(bare, closed)
            try:
                bound = bind(proposal, left, (*ranges, *lifted), conditions, accumulates)
            except BindingError:
                wrong = set([item for item in inner_first if item not in closed][:1])
            else:
                if bound.rhs is rhs:
                    return proposal, lifted
                pairs = zip(_nested(bare), _nested(bound.rhs), strict=True)
                wrong = {mine for mine, found in pairs if mine.indices != found.indices}
            if wrong <= closed:
                break
            closed |= wrong
    return rhs, ()


def _liftable(reductions: list[Reduce], left: list[str]) -> tuple[Range, ...]:
    """Ranges that all reductions over their index share, with bounds known on the outside."""
    shared: dict[str, set[Range | None]] = {}
    for item in reductions:
        given = {r.index: r for r in item.ranges}
        for name in item.indices:
            shared.setdefault(name, set()).add(given.get(name))
    out: list[Range] = []
    for found in shared.values():
        r = next(iter(found))
        if len(found) == 1 and r is not None and set(indices_of(r)) <= set(left):
            out.append(r)
    return tuple(out)


def _without(expr: Expr, lifted: tuple[Range, ...]) -> Expr:
    def change(item: Reduce) -> Expr:
        fresh = rebuild(item, tuple(map_reductions(child, change) for child in children(item)))
        assert isinstance(fresh, Reduce)
        ranges = tuple(
            new for old, new in zip(item.ranges, fresh.ranges, strict=True) if old not in lifted
        )
        return Reduce(fresh.reducer, item.indices, fresh.body, ranges, fresh.where, item.dtype)

    return map_reductions(expr, change) if lifted else expr


def _nested(expr: Expr) -> list[Reduce]:
    """All reductions, in printing order, repeated as often as they are printed."""
    out: list[Reduce] = []
    stack = [expr]
    while stack:
        item = stack.pop()
        if isinstance(item, Reduce):
            out.append(item)
        stack.extend(reversed(children(item)))
    return out


def _canonical(expr: Expr) -> Expr:
    """`expr` with literals on the right of comparisons and ranges in the order of their indices."""

    def rule(item: Expr) -> Expr:
        if isinstance(item, Call) and _compares(item):
            return compare(item.op, *item.args)
        if isinstance(item, Reduce):
            order = {name: place for place, name in enumerate(item.indices)}
            ranges = tuple(sorted(item.ranges, key=lambda r: order.get(r.index, -1)))
            return Reduce(item.reducer, item.indices, item.body, ranges, item.where, item.dtype)
        return item

    return transform(expr, rule)


def _conditions(where: Expr | None) -> tuple[Expr, ...]:
    """The left spine of a conjunction, whose parts the parser joins again from the left."""
    out: list[Expr] = []
    while isinstance(where, Call) and where.op == "and" and _chain(where) is None:
        out.append(where.args[1])
        where = where.args[0]
    if where is not None:
        out.append(where)
    return tuple(reversed(out))


# -- expressions


@dataclass(slots=True)
class _Piece:
    """A subexpression still to be printed, where operators weaker than `lowest` need brackets."""

    expr: Expr
    lowest: int
    tight: bool


def _text(expr: Expr, lowest: int, tight: bool) -> str:
    """Prints with a stack of its own, so that depth does not matter."""
    out: list[str] = []
    stack: list[_Piece | str] = [_Piece(expr, lowest, tight)]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            out.append(item)
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
        case Access(tensor, indices):
            return [tensor, "[", *_list(indices, ",", True), "]"]
        case Cast(dtype, arg):
            return [dtype.name, "(", _Piece(arg, 0, tight), ")"]
        case Range(index, lo, hi):
            return [f"{index} in ", _Piece(lo, 0, True), ":", _Piece(hi, 0, True)]
        case Reduce():
            return _reduction(expr, tight)
        case Call(op, args):
            return _call(op, args, piece)
    raise TypeError(f"not an expression: {expr!r}")


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
    chain = _chain(Call(op, args)) if op == "and" else None
    if chain is not None:
        parts: list[_Piece | str] = [_Piece(chain[0], _COMPARISON + 1, tight)]
        for link, right in chain[1]:
            sign = OPERATIONS[link].symbol
            parts += [f"{space}{sign}{space}", _Piece(right, _COMPARISON + 1, tight)]
        return _bracketed(parts, piece, _COMPARISON)
    first = _ATOM if level == _POWER else level + (level == _COMPARISON)
    second = _UNARY if level == _POWER else level + 1
    parts = [_Piece(args[0], first, tight), f"{space}{symbol}{space}"]
    return _bracketed([*parts, _Piece(args[1], second, tight)], piece, level)


def _chain(expr: Expr) -> tuple[Expr, list[tuple[str, Expr]]] | None:
    """The parts of `(a < b) & (b < c)`, which prints as `a < b < c`, or None.

    A first link with its literal on the right, `b > 0`, is read as `0 < b` if that makes a chain.
    """
    links: list[Call] = []
    while isinstance(expr, Call) and expr.op == "and":
        right = expr.args[1]
        if not isinstance(right, Call) or not _compares(right):
            return None
        links.append(right)
        expr = expr.args[0]
    if not links or not isinstance(expr, Call) or not _compares(expr):
        return None
    if expr.args[1] is not links[-1].args[0]:
        expr = Call(FLIPPED[expr.op], (expr.args[1], expr.args[0]))
        if not isinstance(expr.args[0], Const):
            return None
    links.append(expr)
    links.reverse()
    for link, following in pairwise(links):
        if link.args[1] is not following.args[0]:
            return None
    return links[0].args[0], [(link.op, link.args[1]) for link in links]


def _compares(expr: Expr) -> bool:
    return isinstance(expr, Call) and OPERATIONS[expr.op].precedence == _COMPARISON


def _reduction(expr: Reduce, tight: bool) -> list[_Piece | str]:
    out: list[_Piece | str] = [expr.reducer, "(", _Piece(expr.body, 0, tight)]
    if expr.indices != OPEN:
        given = {r.index: r for r in expr.ranges}
        names: tuple[Expr, ...] = tuple(given.get(name, Index(name)) for name in expr.indices)
        out += [", over=(", *_list(names, ", ", tight), ",)" if len(names) == 1 else ")"]
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
