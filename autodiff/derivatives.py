"""The derivatives of scalar operations, a page of mathematics keyed by the operations' names.

An entry takes the cotangent `c` of y = op(a, b, ..), the arguments and y itself, and gives the
cotangent of each argument; None says that y does not depend on it smoothly (its derivative is
zero wherever it exists). Where an operation selects, so does its adjoint: `Guarded` terms count
only where their guards hold, and the guards stay outermost to the end, so that a branch which was
not taken never reaches the result, not even as 0 * inf. Only a node that is read whatever is chosen
gets its cotangent as one `where`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..algo.errors import GradientError
from ..algo.steps import Steps, finish
from ..algo.tensor_expr.affine import is_integer
from ..algo.tensor_expr.build import add, compare, mul, sub
from ..algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, substitute, walk
from ..algo.tensor_expr.scalar import VALUE, Scalar
from ..algo.tensor_expr.simplify import Simplifier

Guards = tuple[tuple[Expr, bool], ...]


@dataclass(frozen=True, slots=True)
class Guarded:
    """`value` where every condition has the truth value beside it, outermost first; else 0."""

    guards: Guards
    value: Expr


Cotangents = tuple[Expr | tuple[Guarded, ...] | None, ...]
Pullback = Callable[..., Cotangents]


def _div(a: Expr, b: Expr) -> Expr:
    return Call("div", (a, b))


def _neg(a: Expr) -> Expr:
    return Call("neg", (a,))


def _call(op: str) -> Callable[[Expr], Expr]:
    return lambda a: Call(op, (a,))


_exp, _log, _sin, _cos, _sign, _sigmoid = map(
    _call, ("exp", "log", "sin", "cos", "sign", "sigmoid")
)


def _square(a: Expr) -> Expr:
    return Call("pow", (a, TWO))


ONE, TWO, THREE = Const(1), Const(2), Const(3)
LN_2, INFINITY = Const(math.log(2)), Const(math.inf)
TWO_OVER_SQRT_PI = Const(2 / math.sqrt(math.pi))


def _first(wins: str) -> Pullback:
    """max and min where a tie goes to the first; with NaN the second takes all."""

    def pull(c: Expr, a: Expr, b: Expr, y: Expr) -> Cotangents:
        won = compare(wins, a, b)
        return (Guarded(((won, True),), c),), (Guarded(((won, False),), c),)

    return pull


def _extremum(wins: str) -> Pullback:
    """max and min: the winner takes all, a tie is shared evenly; with NaN the second takes all."""

    def pull(c: Expr, a: Expr, b: Expr, y: Expr) -> Cotangents:
        better, tie = compare(wins, a, b), compare("eq", a, b)
        half = Guarded(((better, False), (tie, True)), _div(c, TWO))
        return (
            (Guarded(((better, True),), c), half),
            (half, Guarded(((better, False), (tie, False)), c)),
        )

    return pull


def _where(c: Expr, condition: Expr, a: Expr, b: Expr, y: Expr) -> Cotangents:
    if isinstance(condition, Const):
        return (None, c, None) if condition.value else (None, None, c)
    return None, (Guarded(((condition, True),), c),), (Guarded(((condition, False),), c),)


def _pow(c: Expr, a: Expr, n: Expr, y: Expr) -> Cotangents:
    """Closed under differentiation where n is a constant: x**2, 2*x, 2, and no x**0 or log(x).

    Else n * x**(n - 1) is 0 where n is, not 0 * inf; but where n is data it may vary, too, so that
    the product stays (by n its derivative is 1 / x) wherever it is a number. By n at x = 0 it is 0
    where x**n is, for n > 0, not 0 * inf, and -inf else, as x**n falls from 1 or inf.
    """
    if isinstance(n, Const):
        if n.value == 0:
            return None, None
        if n.value == 1:
            return c, None
        lower = a if n.value == 2 else Call("pow", (a, Const(n.value - 1, n.dtype)))
        return mul(c, mul(n, lower)), None
    lower, some = Call("pow", (a, sub(n, ONE))), compare("ne", n, Const(0))
    if not is_integer(n):
        some = Call("or", (some, compare("ne", Call("abs", (lower,)), INFINITY)))
    by_base = Guarded(((some, True),), mul(c, mul(n, lower)))
    zero = compare("gt", n, Const(0))
    if not isinstance(a, Const):
        zero = Call("and", (compare("eq", a, Const(0)), zero))
    at_zero = () if isinstance(a, Const) and a.value else ((zero, False),)
    return (by_base,), (Guarded(at_zero, mul(c, mul(y, _log(a)))),)


DERIVATIVES: dict[str, Pullback] = {
    "add": lambda c, a, b, y: (c, c),
    "sub": lambda c, a, b, y: (c, _neg(c)),
    "mul": lambda c, a, b, y: (mul(c, b), mul(a, c)),
    "div": lambda c, a, b, y: (_div(c, b), _neg(_div(mul(c, y), b))),
    "neg": lambda c, a, y: (_neg(c),),
    "pow": _pow,
    "mod": lambda c, a, b, y: (c, _neg(mul(c, Call("floordiv", (a, b))))),
    "max": _extremum("gt"),
    "min": _extremum("lt"),
    "abs": lambda c, a, y: (mul(c, _sign(a)),),
    "where": _where,
    "sqrt": lambda c, a, y: (_div(c, mul(TWO, y)),),
    "rsqrt": lambda c, a, y: (_neg(_div(mul(c, y), mul(TWO, a))),),
    "exp": lambda c, a, y: (mul(c, y),),
    "exp2": lambda c, a, y: (mul(c, mul(LN_2, y)),),
    "expm1": lambda c, a, y: (mul(c, add(y, ONE)),),
    "log": lambda c, a, y: (_div(c, a),),
    "log2": lambda c, a, y: (_div(c, mul(LN_2, a)),),
    "log1p": lambda c, a, y: (_div(c, add(ONE, a)),),
    "cbrt": lambda c, a, y: (_div(c, mul(THREE, _square(y))),),
    "tanh": lambda c, a, y: (mul(c, sub(ONE, _square(y))),),
    "sigmoid": lambda c, a, y: (mul(c, mul(y, sub(ONE, y))),),
    "softplus": lambda c, a, y: (mul(c, _sigmoid(a)),),
    "erf": lambda c, a, y: (mul(c, mul(TWO_OVER_SQRT_PI, _exp(_neg(_square(a))))),),
    "sin": lambda c, a, y: (mul(c, _cos(a)),),
    "cos": lambda c, a, y: (_neg(mul(c, _sin(a))),),
    # Piecewise constant: the derivative is zero wherever there is one.
    "floordiv": lambda c, a, b, y: (None, None),
    "sign": lambda c, a, y: (None,),
    "floor": lambda c, a, y: (None,),
    "ceil": lambda c, a, y: (None,),
    "stop_gradient": lambda c, a, y: (None,),
    "ones_like": lambda c, a, y: (None,),
    "zeros_like": lambda c, a, y: (None,),
    # Truth values.
    "or": lambda c, a, b, y: (None, None),
    "and": lambda c, a, b, y: (None, None),
    "not": lambda c, a, y: (None,),
    "lt": lambda c, a, b, y: (None, None),
    "le": lambda c, a, b, y: (None, None),
    "gt": lambda c, a, b, y: (None, None),
    "ge": lambda c, a, b, y: (None, None),
    "eq": lambda c, a, b, y: (None, None),
    "ne": lambda c, a, b, y: (None, None),
}


EVEN, FIRST = "even", "first"
TABLES = {EVEN: DERIVATIVES, FIRST: {**DERIVATIVES, "max": _first("ge"), "min": _first("le")}}
"""The derivatives for each way to share what a tie of max or min gets: evenly, or all to the first
instance, in the order of the loops as they are written, or the first argument."""


def sharing(ties: str) -> str:
    """The name of a way to share ties. Raises `GradientError` for others."""
    if ties not in TABLES:
        expected = " or ".join(map(repr, TABLES))
        raise GradientError(f"ties={ties!r}: expected {expected}, who gets what a tie of max gets")
    return ties


def pullback(
    body: Expr, seeds: tuple[Guarded, ...], value: Expr | None = None, ties: str = EVEN
) -> dict[Access, Expr]:
    """The cotangent of every tensor element that `body` reads, given the body's own (`seeds`).

    `body` has no reductions. `value`, if given, is an expression equal to `body` that is cheaper
    to read (the element it was stored in). Elements without a smooth path do not appear. Reverse
    mode: each node's cotangent is complete before its arguments get theirs.
    """
    found: dict[Expr, list[Guarded]] = {body: list(seeds)}
    for item in reversed(list(walk(body))):
        terms = _merged(found.get(item, []))
        if not isinstance(item, Access):
            terms = finish(_joined(terms))
        if isinstance(item, Cast) and item.dtype.is_float:
            found.setdefault(item.arg, []).extend(terms)
        elif isinstance(item, Call):
            y = value if item is body and value is not None else item
            for term in terms:
                parts = _rule(item.op, ties)(term.value, *item.args, y)
                for arg, part in reversed(list(zip(item.args, parts, strict=True))):
                    found.setdefault(arg, []).extend(_under(term.guards, part))
        if not isinstance(item, Access):
            found.pop(item, None)
    floats = {
        item.tensor for seed in seeds for item in walk(seed.value) if isinstance(item, Access)
    }
    simplify = Simplifier(floats)
    return {
        access: simplify(finish(_assembled(_merged(found[access]))))
        for access in _reading_order(body)
        if found.get(access)
    }


def smooth_reads(body: Expr) -> set[str]:
    """The tensors on which `body` depends smoothly: those to whose elements `pullback` gives
    something."""
    found: set[str] = set()
    seen = {body}
    stack = [body]
    while stack:
        item = stack.pop()
        args: tuple[Expr, ...] = ()
        if isinstance(item, Access):
            found.add(item.tensor)
        elif isinstance(item, Cast) and item.dtype.is_float:
            args = (item.arg,)
        elif isinstance(item, Call):
            parts = _rule(item.op, EVEN)(ONE, *item.args, item)
            args = tuple(a for a, part in zip(item.args, parts, strict=True) if part is not None)
        stack += [arg for arg in args if arg not in seen]
        seen.update(args)
    return found


def _rule(op: str | Scalar, ties: str) -> Pullback:
    if isinstance(op, str):
        return TABLES[ties][op]
    from .scalars import partials  # which differentiates by this table

    function = op

    def pull(c: Expr, *args: Expr) -> Cotangents:
        values = {**function.given(args[:-1]), VALUE: args[-1]}
        return tuple(_times(c, substitute(d, values)) or None for d in partials(function, ties))

    return pull


def _times(c: Expr, derivative: Expr) -> tuple[Guarded, ...]:
    """The cotangent times a derivative; where that chooses, so does the product."""
    out: list[Guarded] = []
    stack: list[tuple[Guards, Expr]] = [((), derivative)]
    while stack:
        guards, d = stack.pop()
        if isinstance(d, Call) and d.op == "where":
            condition, yes, no = d.args
            stack += [((*guards, (condition, False)), no), ((*guards, (condition, True)), yes)]
        elif not (isinstance(d, Const) and d.value == 0):
            above, *below = d.args if isinstance(d, Call) and d.op == "div" else (d,)
            one = isinstance(above, Const) and above.value == 1
            value = c if one else mul(c, above)
            out.append(Guarded(guards, _div(value, below[0]) if below else value))
    return tuple(out)


def _under(guards: Guards, part: Expr | tuple[Guarded, ...] | None) -> list[Guarded]:
    if part is None:
        return []
    if isinstance(part, Expr):
        return [Guarded(guards, part)]
    return [Guarded(guards + term.guards, term.value) for term in part]


def _merged(terms: list[Guarded]) -> list[Guarded]:
    """Terms under the same guards added, the first read (the last to arrive) first."""
    sums: dict[Guards, Expr] = {}
    for term in reversed(terms):
        before = sums.get(term.guards)
        sums[term.guards] = term.value if before is None else add(before, term.value)
    return [Guarded(guards, value) for guards, value in sums.items()]


def _by_condition(terms: list[Guarded]) -> dict[Expr, dict[bool, list[Guarded]]]:
    """Guarded terms by the outermost condition and its truth value, without that guard."""
    found: dict[Expr, dict[bool, list[Guarded]]] = {}
    for term in terms:
        if term.guards:
            (condition, side), *inner = term.guards
            branches = found.setdefault(condition, {True: [], False: []})
            branches[side].append(Guarded(tuple(inner), term.value))
    return found


def _joined(terms: list[Guarded]) -> Steps:
    """The terms of one node, one without guards where some of them hold whatever is chosen.

    A node that is read in both branches of a `where`, or outside too, is needed always, so what it
    gets may be chosen here. Guards that only gather would be 2**n after n such nodes.
    """
    if len(terms) < 2:
        return terms
    always = [term.value for term in terms if not term.guards]
    rest: list[Guarded] = []
    for condition, branches in _by_condition(terms).items():
        sides = {}
        for side, inside in branches.items():
            sides[side] = yield _joined(inside)
        if all(len(side) == 1 and not side[0].guards for side in sides.values()):
            always.append(Call("where", (condition, sides[True][0].value, sides[False][0].value)))
        else:
            for side, inside in sides.items():
                guard = (condition, side)
                rest += [Guarded((guard, *term.guards), term.value) for term in inside]
    if not always:
        return rest
    whole = [Guarded((), value) for value in always]
    return [Guarded((), (yield _assembled([*whole, *rest])))]


def _assembled(terms: list[Guarded]) -> Steps:
    """The sum of guarded terms as one expression of `where`s."""
    parts = [term.value for term in terms if not term.guards]
    for condition, branches in _by_condition(terms).items():
        yes = yield _assembled(branches[True])
        no = yield _assembled(branches[False])
        parts.append(Call("where", (condition, yes, no)))
    total = parts[0] if parts else Const(0)
    for part in parts[1:]:
        total = add(total, part)
    return total


def _reading_order(body: Expr) -> list[Access]:
    return [item for item in walk(body) if isinstance(item, Access)]
