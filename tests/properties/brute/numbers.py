"""Index expressions as Python functions of numbers, and the integer points of a domain.

Nothing of isl or of the compiler's own affine forms is used: this is what those are tested with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from diptych.algo.tensor_expr.expr import Call, Const, Expr, Index, indices_of

Point = tuple[int, ...]
Box = dict[str, tuple[float, float]]
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "and", "or": "or",
}  # fmt: skip


def quotient(a: int, b: int) -> int:
    return a // b if b else 0


def remainder(a: int, b: int) -> int:
    return a % b if b else 0


@lru_cache(maxsize=1 << 16)
def function(expr: Expr, dims: tuple[str, ...]) -> Callable[[Point], int]:
    """`expr`, of indices and constants alone, as a function of the values of `dims`."""
    made: Callable[[Point], int] = eval(f"lambda p: {_source(expr, dims)}", _NAMES)
    return made


_NAMES = {"quotient": quotient, "remainder": remainder, "min": min, "max": max}


def _source(expr: Expr, dims: tuple[str, ...]) -> str:
    match expr:
        case Const(value, _):
            return repr(value)
        case Index(name):
            return f"p[{dims.index(name)}]"
        case Call("floordiv" | "mod" | "min" | "max" as op, (a, b)):
            named = {"floordiv": "quotient", "mod": "remainder"}.get(op, op)
            return f"{named}({_source(a, dims)}, {_source(b, dims)})"
        case Call("neg", (a,)):
            return f"(-{_source(a, dims)})"
        case Call("not", (a,)):
            return f"(not {_source(a, dims)})"
        case Call(op, (a, b)) if op in _INFIX:
            return f"({_source(a, dims)} {_INFIX[op]} {_source(b, dims)})"
    raise AssertionError(f"no index expression of bound sizes: {expr!r}")


@lru_cache(maxsize=1 << 14)
def points(dims: tuple[str, ...], domain: tuple[Expr, ...]) -> tuple[Point, ...]:
    """Every point where all conditions hold, in lexicographic order."""
    box = _bounded(dims, domain)
    if box is None:
        return ()
    for dim in dims:
        low, high = box[dim]
        assert math.isfinite(low) and math.isfinite(high), f"nothing bounds {dim} in {domain}"
    ready: list[list[Callable[[Point], int]]] = [[] for _ in range(len(dims) + 1)]
    for condition in domain:
        used = [dims.index(name) + 1 for name in indices_of(condition)]
        ready[max(used, default=0)].append(function(condition, dims))
    return tuple(_extended((), dims, box, ready))


def _extended(
    point: Point,
    dims: tuple[str, ...],
    box: Mapping[str, tuple[float, float]],
    ready: Sequence[Sequence[Callable[[Point], int]]],
) -> Iterator[Point]:
    if not all(holds(point) for holds in ready[len(point)]):
        return
    if len(point) == len(dims):
        yield point
        return
    low, high = box[dims[len(point)]]
    for value in range(int(low), int(high) + 1):
        yield from _extended((*point, value), dims, box, ready)


def _bounded(dims: tuple[str, ...], domain: tuple[Expr, ...]) -> Box | None:
    """Bounds that follow from single conditions, one after the other; None for no points."""
    box: Box = dict.fromkeys(dims, (-math.inf, math.inf))
    below = [item for condition in domain for item in _at_most_zero(condition)]
    for _ in range(3):
        for _ in range(64):
            before = dict(box)
            for expr in below:
                if not _narrow(expr, 0, box):
                    return None
            if box == before:
                break
        if all(math.isfinite(low) and math.isfinite(high) for low, high in box.values()):
            break
        below += _eliminated(below)
    return box


def _eliminated(below: Sequence[Expr]) -> list[Expr]:
    """Sums of two of the expressions in which an index that both have is gone."""
    found: list[Expr] = []
    for a, b in combinations(below, 2):
        one: dict[Expr, int] = {}
        two: dict[Expr, int] = {}
        _sum(a, 1, one)
        _sum(b, 1, two)
        for atom, n in one.items():
            m = two.get(atom, 0)
            if n * m < 0:
                scaled = (Call("mul", (Const(abs(m)), a)), Call("mul", (Const(abs(n)), b)))
                found.append(Call("add", scaled))
    return found


def _at_most_zero(condition: Expr) -> Iterator[Expr]:
    """Expressions that are at most 0 where the condition holds; none for what is not convex."""
    match condition:
        case Call("and", (a, b)):
            yield from _at_most_zero(a)
            yield from _at_most_zero(b)
        case Call("le" | "lt" | "eq" as op, (a, b)):
            one = Call("sub", (a, b))
            yield Call("add", (one, Const(1))) if op == "lt" else one
            if op == "eq":
                yield Call("sub", (b, a))
        case Call("ge" | "gt" as op, (a, b)):
            yield from _at_most_zero(Call("le" if op == "ge" else "lt", (b, a)))
        case Const(False, _):
            yield Const(1)


def _sum(expr: Expr, factor: int, into: dict[Expr, int]) -> int:
    """Adds `factor * expr` to a sum of atoms; gives the constant."""
    match expr:
        case Const(value, _):
            return factor * int(value)
        case Call("add", (a, b)):
            return _sum(a, factor, into) + _sum(b, factor, into)
        case Call("sub", (a, b)):
            return _sum(a, factor, into) + _sum(b, -factor, into)
        case Call("neg", (a,)):
            return _sum(a, -factor, into)
        case Call("mul", (Const(n, _), a)) | Call("mul", (a, Const(n, _))):
            return _sum(a, factor * int(n), into)
    into[expr] = into.get(expr, 0) + factor
    return 0


def _narrow(expr: Expr, limit: float, box: Box) -> bool:
    """Narrows the box to where `expr <= limit` may hold; False where it cannot."""
    atoms: dict[Expr, int] = {}
    constant = _sum(expr, 1, atoms)
    spans = {atom: _span(atom, box) for atom in atoms}
    lows = {a: (spans[a][0] if n > 0 else spans[a][1]) * n if n else 0 for a, n in atoms.items()}
    if constant + sum(lows.values()) > limit:
        return False
    for atom, n in atoms.items():
        rest = sum(low for other, low in lows.items() if other is not atom)
        if n and math.isfinite(rest):
            room = limit - constant - rest
            _limit(atom, room / n if n < 0 else math.floor(room / n), n > 0, box)
    return all(low <= high for low, high in box.values())


def _limit(atom: Expr, bound: float, above: bool, box: Box) -> None:
    """Narrows the box to where an atom is at most (`above`) or at least the bound."""
    bound = math.floor(bound) if above else math.ceil(bound)
    match atom:
        case Index(name):
            low, high = box[name]
            box[name] = (low, min(high, bound)) if above else (max(low, bound), high)
        case Call("floordiv", (a, Const(int() as by, _))) if by > 0:
            if above:
                _narrow(a, bound * by + by - 1, box)
            else:
                _narrow(Call("neg", (a,)), -bound * by, box)
        case Call("max", (a, b)) if above:
            _narrow(a, bound, box)
            _narrow(b, bound, box)
        case Call("min", (a, b)) if not above:
            _narrow(Call("neg", (a,)), -bound, box)
            _narrow(Call("neg", (b,)), -bound, box)


def _span(expr: Expr, box: Box) -> tuple[float, float]:
    """Bounds of an expression over a box."""
    match expr:
        case Index(name):
            return box[name]
        case Call("floordiv", (a, Const(int() as by, _))) if by > 0:
            low, high = _span(a, box)
            return (
                low // by if math.isfinite(low) else low,
                high // by if math.isfinite(high) else high,
            )
        case Call("mod", (_, Const(int() as by, _))) if by > 0:
            return (0, by - 1)
        case Call("min" | "max" as op, (a, b)):
            choose = min if op == "min" else max
            one, two = _span(a, box), _span(b, box)
            return (choose(one[0], two[0]), choose(one[1], two[1]))
    atoms: dict[Expr, int] = {}
    constant = _sum(expr, 1, atoms)
    if list(atoms) == [expr]:
        return (-math.inf, math.inf)
    spans = [(n, _span(atom, box)) for atom, n in atoms.items()]
    low = constant + sum((s[0] if n > 0 else s[1]) * n for n, s in spans if n)
    high = constant + sum((s[1] if n > 0 else s[0]) * n for n, s in spans if n)
    return (low, high)
