"""How an operator behaves when one of its sizes is shared out over replicas.

Operators are index expressions, so it follows exactly. A size symbol N is split: each replica has
N/R consecutive values of every index that runs over 0:N, and its part of every dimension of
extent N. An expression is then one of

    same      every replica computes the same value
    split(n)  the value for this replica's values of the free index n
    partial   combining the values of all replicas with a reducer gives the value

A reduction over an index of N makes a partial value; sums stay partial under what is linear. Any
use that would need another replica's part is refused, with the reason.

The result is local: the same operator at local sizes, except that N as a *number* (the divisor of
a mean) stays the global size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...algo.steps import Steps, finish
from ...algo.tensor_expr.check import check
from ...algo.tensor_expr.expr import (
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
    rebuild,
    walk,
)
from ...algo.tensor_expr.folds import Part
from ...algo.tensor_expr.op import Checked, Equation, Op
from ...algo.tensor_expr.printer import print_expr
from ...algo.tensor_expr.reducers import EXTREMES, REDUCERS


@dataclass(frozen=True, slots=True)
class Split:
    """Each replica has its part along `dim`."""

    dim: int


@dataclass(frozen=True, slots=True)
class Partial:
    """Each replica has a value; `reducer` of all of them is the value."""

    reducer: str


@dataclass(frozen=True, slots=True)
class Same:
    """Each replica has the whole value."""


SAME = Same()
State = Split | Partial | Same


@dataclass(frozen=True, slots=True)
class Local:
    """What replicas run: `op` on arguments in the states `args`, giving results in `results`."""

    op: Op
    args: tuple[State, ...]
    results: tuple[State, ...]
    reason: str = ""


class Refused(Exception):
    """Why a size of an operator cannot be split."""


def localise(op: Op, states: Sequence[State], extents: Sequence[Sequence[int]]) -> Local:
    """The cheapest local form for arguments in these states, whose whole extents are given.

    Arguments in another state than `Local.args` asks for are converted first: a part taken of a
    whole costs nothing, sums and gathers are collectives. Splitting a size of an argument that is
    split already comes first, largest first; if none can be, everything is gathered, and `reason`
    says why.
    """
    checked = check(op)
    names = [param.name for param in op.params]
    reasons: list[str] = []
    symbols = _candidates(checked, dict(zip(names, states, strict=True)), extents, reasons)
    partial = {n: s for n, s in zip(names, states, strict=True) if isinstance(s, Partial)}
    for symbol in (*symbols, None):
        for kept in (partial, {}) if partial else ({},):
            form = _Analysis(checked, symbol, kept)
            try:
                found = form.run()
            except Refused as refusal:
                if not kept:
                    reasons.append(str(refusal))
                continue
            whole = None if symbol is None else symbols[symbol]
            return Local(
                _with_global(op, symbol, whole) if form.counted and symbol and whole else op,
                tuple(found[name] for name in names),
                tuple(found[name] for name in op.returns),
                "; ".join(dict.fromkeys(reasons)) if symbol is None else "",
            )
    raise AssertionError("an operator on whole values is always possible")


def _candidates(
    checked: Checked,
    states: Mapping[str, State],
    extents: Sequence[Sequence[int]],
    reasons: list[str],
) -> dict[str, int]:
    """The size symbols of split dimensions with their whole extents, those of the largest arrays
    first."""
    weights: dict[str, int] = {}
    whole: dict[str, int] = {}
    for (name, state), extent in zip(states.items(), extents, strict=True):
        if not isinstance(state, Split):
            continue
        symbol = checked.shapes[name][state.dim]
        if isinstance(symbol, Size):
            weights[symbol.name] = weights.get(symbol.name, 0) + math.prod(extent)
            whole[symbol.name] = extent[state.dim]
        else:
            reasons.append(f"dimension {state.dim} of {name} has the extent {print_expr(symbol)}")
    return {symbol: whole[symbol] for symbol in sorted(whole, key=lambda s: -weights[s])}


@dataclass(slots=True)
class _Analysis:
    """Symbol `symbol` split (None: nothing), arguments `partial` kept partial."""

    checked: Checked
    symbol: str | None
    partial: Mapping[str, Partial]
    state: dict[str, State] = field(default_factory=dict)
    split: frozenset[str] = frozenset()  # indices of the equation at hand that run over the symbol
    known: dict[tuple[Expr, bool], _Found] = field(default_factory=dict)  # in that equation
    counted: bool = False  # is the symbol used as a number?

    def run(self) -> dict[str, State]:
        """The state of every tensor, or `Refused`."""
        params = {param.name for param in self.checked.op.params}
        for tensor, extents in self.checked.shapes.items():
            dims = [d for d, extent in enumerate(extents) if self._is_symbol(extent)]
            for extent in extents:
                if not self._is_symbol(extent) and self._mentions(extent):
                    raise Refused(f"{tensor} has the extent {print_expr(extent)}")
            if len(dims) > 1:
                raise Refused(f"two dimensions of {tensor} have the size {self.symbol}")
            if dims:
                self.state[tensor] = Split(dims[0])
            elif tensor in params:
                self.state[tensor] = self.partial.get(tensor, SAME)
        for equation in self.checked.equations:
            self._equation(equation)
        return self.state

    def _is_symbol(self, extent: Expr) -> bool:
        return self.symbol is not None and extent is Size(self.symbol)

    def _mentions(self, expr: Expr) -> bool:
        return any(self._is_symbol(item) for item in walk(expr))

    def _equation(self, eq: Equation) -> None:
        ranges = [*eq.ranges]
        for root in (eq.rhs, *([] if eq.where is None else [eq.where])):
            for item in walk(root):
                if isinstance(item, Reduce):
                    ranges += item.ranges
        for r in ranges:
            if self._mentions(r.lo) or (self._mentions(r.hi) and not self._is_symbol(r.hi)):
                raise Refused(f"index {r.index} runs over {print_expr(r.lo)}:{print_expr(r.hi)}")
        self.split = frozenset(
            r.index for r in ranges if self._is_symbol(r.hi) and r.lo is Const(0)
        )
        free = [r.index for r in eq.ranges if r.index in self.split]
        self.known = {}
        value = finish(self._value(eq.rhs))
        if eq.where is not None:
            value = self._joined(value, finish(self._value(eq.where)))
        target = self.state.get(eq.tensor)
        if isinstance(target, Split):
            at = eq.lhs[target.dim]
            if not isinstance(at, Index) or at.name not in self.split:
                raise Refused(
                    f"{eq.tensor} is written at {print_expr(at)} of the size {self.symbol}"
                )
            if isinstance(value, Partial) or free != [at.name]:
                raise Refused(f"{eq.tensor} needs a value that is reduced over {self.symbol}")
            others = [e for d, e in enumerate(eq.lhs) if d != target.dim]
            for each in others:
                self._place(each, at.name)
            return
        for each in eq.lhs:
            self._place(each, None)
        new = self._whole(eq, value, free)
        if target is not None and target != new:
            raise Refused(f"the equations of {eq.tensor} differ in what replicas hold")
        self.state[eq.tensor] = new

    def _whole(self, eq: Equation, value: _Found, free: list[str]) -> State:
        """The state of a tensor that has no split dimension."""
        if len(free) > 1 or (isinstance(value, str) and free != [value]):
            raise Refused(f"{eq.tensor} depends on two indices of the size {self.symbol}")
        if free:
            if eq.reducer is None:
                raise Refused(f"{eq.tensor} is written at places that depend on {free[0]}")
            if isinstance(value, Partial):
                raise Refused(f"{eq.tensor} accumulates a value that is reduced over {self.symbol}")
            return Partial(eq.reducer)
        if isinstance(value, Partial):
            if eq.reducer is not None and eq.reducer != value.reducer:
                raise Refused(f"{eq.tensor} is a {eq.reducer} of partial {value.reducer}s")
            return value
        return SAME

    def _place(self, expr: Expr, own: str | None) -> None:
        """An index of the left side: data that it depends on must be there, nothing else split."""
        if self._mentions(expr):
            raise Refused(f"an element is written at {print_expr(expr)}")
        for item in walk(expr):
            if isinstance(item, Access):
                finish(self._value(item))
        found = finish(self._value(expr, position=True))
        if isinstance(found, Partial) or (own is not None and found not in (None, own)):
            raise Refused(f"an element is written at {print_expr(expr)}")

    def _value(self, expr: Expr, position: bool = False) -> Steps:
        """What is found of an expression, as a value or in an index position; asked once."""
        key = expr, position
        if key not in self.known:
            self.known[key] = yield self._in_index(expr) if position else self._as_value(expr)
        return self.known[key]

    def _in_index(self, expr: Expr) -> Steps:
        """Of an expression in an index position: split indices only inside further accesses."""
        match expr:
            case Access():
                return (yield self._value(expr))
            case Index(name):
                if name in self.split:
                    raise Refused(f"index {name} is used outside the dimension that is split")
                return None
            case Size():
                if self._is_symbol(expr):
                    raise Refused(f"an index expression contains {self.symbol}")
                return None
        found: _Found = None
        for child in children(expr):
            found = self._joined(found, (yield self._value(child, position=True)))
        return found

    def _as_value(self, expr: Expr) -> Steps:
        """None: same; a string: split along that index; or partial."""
        match expr:
            case Const():
                return None
            case Size():
                self.counted = self.counted or self._is_symbol(expr)
                return None
            case Index(name):
                if name in self.split:
                    raise Refused(f"index {name} is used as a number")
                return None
            case Access():
                return (yield self._access(expr))
            case Call(op, args):
                values = []
                for arg in args:
                    values.append((yield self._value(arg)))
                return self._call(str(op), values)
            case Cast(_, arg):
                return self._joined(None, (yield self._value(arg)))
            case Reduce():
                return (yield self._reduce(expr))
        raise Refused(f"{print_expr(expr)} is not understood")

    def _access(self, expr: Access) -> Steps:
        state = self.state.setdefault(expr.tensor, SAME)  # what is defined later has to be so
        found: _Found = None
        for dim, index in enumerate(expr.indices):
            if isinstance(state, Split) and dim == state.dim:
                if not isinstance(index, Index) or index.name not in self.split:
                    raise Refused(f"{print_expr(expr)} reads the parts of other replicas")
                found = self._joined(found, index.name)
            else:
                found = self._joined(found, (yield self._value(index, position=True)))
        if isinstance(state, Partial):
            if found is not None:
                raise Refused(f"{expr.tensor} is a partial {state.reducer}, read at split places")
            return state
        return found

    def _call(self, op: str, args: list[_Found]) -> _Found:
        partial = [arg for arg in args if isinstance(arg, Partial)]
        if not partial:
            found: _Found = None
            for arg in args:
                found = self._joined(found, arg)
            return found
        first = partial[0]
        same = [arg is None or arg == first for arg in args]
        if first.reducer == "sum" and all(same):
            everywhere = len(partial) == len(args)
            if (
                (op in ("add", "sub", "neg") and everywhere)
                or (op == "mul" and len(partial) == 1)
                or (op == "div" and args[1] is None)
                or (op == "where" and args[0] is None and len(partial) == 2)
            ):
                return first
        if (
            op == REDUCERS[first.reducer].combine
            and op in ("max", "min", "or", "and")
            and all(same)
        ):
            return first
        raise Refused(f"{op} of a partial {first.reducer} over {self.symbol or 'replicas'}")

    def _reduce(self, expr: Reduce) -> Steps:
        bound = [name for name in expr.indices if name in self.split]
        body = yield self._value(expr.body)
        if expr.where is not None:
            body = self._joined(body, (yield self._value(expr.where)))
        if isinstance(expr.reducer, Part):
            if bound or isinstance(body, Partial):
                raise Refused(f"{expr.reducer}, a user's reducer, combines over {self.symbol}")
            return body
        if expr.reducer in EXTREMES and (bound or isinstance(body, Partial)):
            raise Refused(f"{expr.reducer} over a split {self.symbol} gives indices of parts")
        if len(bound) > 1:
            raise Refused(f"{bound[0]} and {bound[1]} are reduced together")
        if bound:
            if isinstance(body, Partial) or body not in (None, bound[0]):
                raise Refused(f"the reduction over {bound[0]} contains another over {self.symbol}")
            return Partial(expr.reducer)
        if isinstance(body, Partial) and body.reducer != expr.reducer:
            raise Refused(f"a {expr.reducer} of partial {body.reducer}s")
        return body

    def _joined(self, a: _Found, b: _Found) -> _Found:
        """Both are needed in one place: the same, or split along one index."""
        if isinstance(a, Partial) or isinstance(b, Partial):
            kind = a if isinstance(a, Partial) else b
            assert isinstance(kind, Partial)
            raise Refused(f"a partial {kind.reducer} is used where its value is needed")
        if a is not None and b is not None and a != b:
            raise Refused(f"{a} and {b} both run over {self.symbol} in one expression")
        return b if a is None else a


_Found = None | str | Partial


def _with_global(op: Op, symbol: str, extent: int) -> Op:
    """The op with `symbol` as a number replaced by the global extent; as a range it stays."""

    def parts(expr: Expr) -> tuple[Expr, ...]:
        return () if isinstance(expr, (Access, Range)) else children(expr)

    def value(expr: Expr) -> Expr:
        done: dict[Expr, Expr] = {}
        for item in walk(expr, parts=parts):
            inner = tuple(done.get(child, child) for child in children(item))
            done[item] = Const(extent) if item is Size(symbol) else rebuild(item, inner)
        return done[expr]

    equations = tuple(
        Equation(
            eq.tensor,
            eq.lhs,
            value(eq.rhs),
            eq.ranges,
            None if eq.where is None else value(eq.where),
            eq.reducer,
        )
        for eq in op.equations
    )
    return Op(op.name, op.params, equations, op.returns, op.shapes, op.locations)
