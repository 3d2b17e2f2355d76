"""Index expressions in canonical form, with what is decided taken out.

    for io in 0 .. 1:                               for ii in 0 .. 8:
        for ii in 0 .. min(8, 100 - io*8):   ==>        x[ii] = 0
            x[(io*8 + ii) - io*8] = 0

Bounds, conditions and indices are simplified by what the loops around say of their variables; a
loop of one iteration becomes its body, one of none disappears, and so do conditions that hold
always or never. Loops over GPU axes stay: they say how a kernel is launched. A length that a
parameter's strides or extents name stays, even where it is a number.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.tensor_expr.affine import Interval, bounds, normalize
from ...algo.tensor_expr.build import const
from ...algo.tensor_expr.expr import Call, Const, Expr, Index, indices_of, transform
from ..ir import (
    AXES,
    Alloc,
    Block,
    For,
    Function,
    If,
    Let,
    Stmt,
    block,
    rebuild,
    substitute,
    with_,
)
from ..narrow import where_fails, where_holds
from ..ranges import span_of, values_of

Known = Mapping[str, Interval]
NOTHING = Block(())


def simplify(function: Function) -> Function:
    """The function with its indices, bounds and conditions simplified."""
    named = {n for p in function.params for n in (*p.strides, *p.extents) if isinstance(n, str)}
    body = _Simplifying(frozenset(named)).stmt(function.body, {})
    return Function(function.name, function.params, body)


def simplified(stmt: Stmt, known: Known) -> Stmt:
    """A statement with its indices, bounds and conditions simplified."""
    return _Simplifying(frozenset()).stmt(stmt, known)


class _Simplifying:
    """One run; copies of an unrolled body share most of their expressions."""

    def __init__(self, named: frozenset[str]) -> None:
        self.named = named
        self.done: dict[tuple[Expr, tuple[Interval | None, ...]], Expr] = {}

    def stmt(self, stmt: Stmt, known: Known) -> Stmt:
        match stmt:
            case Block(stmts):
                return block(*(self.stmt(inner, known) for inner in stmts))
            case For():
                return self.loop(stmt, known)
            case If(cond, then, orelse):
                return self.choice(self.expr(cond, known), then, orelse, known)
            case Let(var, value, body):
                value = self.expr(value, known)
                if isinstance(value, (Const, Index)):
                    inner = self.stmt(substitute(body, {Index(var): value}), known)
                    if var not in self.named:
                        return inner
                else:
                    inner = self.stmt(body, {**known, var: bounds(value, known)})
                return inner if inner is NOTHING else Let(var, value, inner)
            case Alloc(buffers, body):
                inner = self.stmt(body, known)
                return inner if inner is NOTHING else Alloc(buffers, inner)
        return rebuild(stmt, lambda inner: inner, lambda expr: self.expr(expr, known))

    def loop(self, loop: For, known: Known) -> Stmt:
        lo, hi = self.expr(loop.lo, known), self.expr(loop.hi, known)
        loop = with_(loop, lo=lo, hi=hi)
        least, most = span_of(loop, known)
        if most is not None and most <= 0:
            return NOTHING
        once = least is not None and least >= 1 and most is not None and most <= loop.step
        if once and loop.kind not in AXES:
            return self.stmt(substitute(loop.body, {Index(loop.var): lo}), known)
        body = self.stmt(loop.body, {**known, loop.var: values_of(loop, known)})
        if body is NOTHING:
            return NOTHING
        return with_(loop, body=body)

    def choice(self, cond: Expr, then: Stmt, orelse: Stmt | None, known: Known) -> Stmt:
        if isinstance(cond, Const):
            chosen = then if cond.value else orelse
            return NOTHING if chosen is None else self.stmt(chosen, known)
        then = self.branch(then, known, where_holds(cond, known))
        orelse = orelse and self.branch(orelse, known, where_fails(cond, known))
        if orelse is NOTHING:
            orelse = None
        return NOTHING if then is NOTHING and orelse is None else If(cond, then, orelse)

    def branch(self, stmt: Stmt, before: Known, known: Known) -> Stmt:
        """A statement where more is known: of a last, partial tile even which one it is."""
        single: dict[Expr, Expr] = {
            Index(name): const(low)
            for name, (low, high) in known.items()
            if low is not None and low == high and before[name] != (low, high)
        }
        return self.stmt(substitute(stmt, single) if single else stmt, known)

    def expr(self, expr: Expr, known: Known) -> Expr:
        if isinstance(expr, (Const, Index)):
            return expr
        names = indices_of(expr)
        key = expr, tuple(known.get(name) for name in names)
        if key not in self.done:
            ranges = {name: known[name] for name in names if name in known}
            self.done[key] = transform(normalize(expr, ranges), _decided)
        return self.done[key]


def _decided(item: Expr) -> Expr:
    """`where` with a condition that is decided is its branch."""
    match item:
        case Call("where", (Const(bool() as value, _), a, b)):
            return a if value else b
    return item
