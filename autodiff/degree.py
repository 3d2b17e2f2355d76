"""Of which degrees in some tensors an operator's tensors are: a derivative is of degree 1 in its
cotangents or tangents.

The degree is read off the structure: a product adds degrees, a sum has those of its terms, and a
0 has none. What is no polynomial (a clip, a quotient by a norm) is of unknown degree, so that what
is found is surely there, up to terms that cancel.
"""

from __future__ import annotations

from collections.abc import Collection

from ..algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, Reduce, children, walk
from ..algo.tensor_expr.op import Op
from ..algo.tensor_expr.scalar import Scalar

Degrees = frozenset[int] | None
"""The degrees of the terms; None where it is not known."""
NONE: Degrees = frozenset()
CONSTANT: Degrees = frozenset((0,))
MOST = 4
"""Higher degrees count as this one."""
SAME = {"neg", "stop_gradient"}
LINEAR = {"sum"}
STEPS = {"mod", "floordiv", "floor", "ceil", "sign"}
"""What is linear between its steps only, which its derivative does not show."""


def degrees(op: Op, by: Collection[str]) -> dict[str, Degrees]:
    """The degrees of each tensor of `op` in its parameters `by` together."""
    known: dict[str, Degrees] = {p.name: CONSTANT for p in op.params}
    known |= dict.fromkeys(by, frozenset((1,)))
    known |= {eq.tensor: NONE for eq in op.equations}
    changed = True
    while changed:  # degrees only grow, and recurrences need several rounds
        changed = False
        for eq in op.equations:
            found = _of(eq.rhs, known)
            if eq.reducer not in (None, *LINEAR) and found != NONE:
                found = CONSTANT if found == CONSTANT else None
            if any(_of(e, known) not in (NONE, CONSTANT) for e in (*eq.lhs, *_where(eq.where))):
                found = None
            found = _sum(known[eq.tensor], found)
            if found != known[eq.tensor]:
                known[eq.tensor], changed = found, True
    return known


def has_steps(op: Op, by: str) -> bool:
    """Does `op` round what it computes of its parameter `by`?"""
    known = degrees(op, (by,))
    stack = [root for eq in op.equations for root in eq.roots]
    seen = set(stack)
    while stack:
        item = stack.pop()
        parts = list(children(item))
        if isinstance(item, Call) and isinstance(item.op, Scalar):
            parts.append(item.op.expanded(item.args))
        rounds = isinstance(item, Call) and item.op in STEPS
        rounds |= isinstance(item, Cast) and not item.dtype.is_float
        if rounds and any(_of(part, known) not in (NONE, CONSTANT) for part in parts):
            return True
        stack += [part for part in parts if part not in seen]
        seen.update(parts)
    return False


def first_of(op: Op, tensor: str, wrong: frozenset[int], known: dict[str, Degrees]) -> int:
    """The number of the first equation of a tensor that by itself gives terms of wrong degrees;
    one that only passes on those that it has does not."""
    numbers = [n for n, eq in enumerate(op.equations) if eq.tensor == tensor]
    right = {**known, tensor: frozenset((1,))}
    for n in numbers:
        if wrong & (_of(op.equations[n].rhs, right) or frozenset()):
            return n
    return numbers[0]


def _where(condition: Expr | None) -> tuple[Expr, ...]:
    return () if condition is None else (condition,)


def _sum(a: Degrees, b: Degrees) -> Degrees:
    return None if a is None or b is None else a | b


def _product(a: Degrees, b: Degrees) -> Degrees:
    if NONE in (a, b):
        return NONE
    if a is None or b is None:
        return None
    return frozenset(min(m + n, MOST) for m in a for n in b)


def _of(expr: Expr, known: dict[str, Degrees]) -> Degrees:
    done: dict[Expr, Degrees] = {}
    for item in walk(expr):
        parts = [done[child] for child in children(item)]
        done[item] = _one(item, parts, known)
    return done[expr]


def _one(item: Expr, parts: list[Degrees], known: dict[str, Degrees]) -> Degrees:
    fixed = all(part in (NONE, CONSTANT) for part in parts)
    match item:
        case Const(value, _):
            return CONSTANT if value else NONE
        case Access(tensor, _):
            return known.get(tensor, CONSTANT) if fixed else None
        case Cast(dtype, _) if dtype.is_float:
            return parts[0]
        case Call("add" | "sub", _):
            return _sum(*parts)
        case Call("mul", _):
            return _product(*parts)
        case Call("div", _) if parts[1] == CONSTANT or parts[0] == NONE:
            return parts[0]
        case Call("zeros_like", _):
            return NONE
        case Call("ones_like", _):
            return CONSTANT
        case Call("where", _):
            return _sum(*parts[1:]) if parts[0] in (NONE, CONSTANT) else None
        case Call("pow", (_, Const(int() as n, _))) if n >= 1:
            out = parts[0]
            for _ in range(min(n, MOST) - 1):
                out = _product(out, parts[0])
            return out
        case Call(Scalar() as op, args):
            return _of(op.expanded(args), known)
        case Call(op, _) if op in SAME:
            return parts[0]
        case Reduce("sum", _, body):
            rest = [p for child, p in zip(children(item), parts, strict=True) if child is not body]
            plain = all(p in (NONE, CONSTANT) for p in rest)
            return parts[children(item).index(body)] if plain else None
    return CONSTANT if fixed else None
