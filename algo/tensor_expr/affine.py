"""Quasi-affine integer expressions: their canonical form, and the way to and from isl.

Quasi-affine means: sums of integer multiples of indices and sizes, floor quotients and remainders
of such sums by integer constants, and min and max of them. Integers are unbounded here, `//` and
`%` floor, and a division by 0 is 0.

In the canonical form `8*(i//8) + i%8` is `i` and `(8*x + 3)//8` is `x`. Known ranges of indices
simplify further: `(8*x + y)//8` is `x` where y is in 0..7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from ..dtypes import bool_
from .attribute import attribute
from .build import conjuncts
from .canonical import Interval, Linear, Reader, constant, expression, folded, plain, plus
from .expr import Access, Call, Const, Expr, Index, Range, Size, children, indices_of, rebuild, walk
from .isl_text import from_isl, to_isl

__all__ = [
    "Interval", "Linear", "bounds", "from_isl", "in_turn", "is_affine", "is_integer", "iterations",
    "linear", "normalize", "to_isl",
]  # fmt: skip

_SUMS = ("add", "sub", "neg", "min", "max")
_COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
_LOGIC = ("and", "or", "not")


def linear(expr: Expr, ranges: Mapping[str, Interval] | None = None) -> Linear | None:
    """`expr` as a sum over atoms, or None where it is not quasi-affine."""
    form = folded(_reader(ranges).linear(expr))
    return form if all(is_affine(atom) for atom in form.terms) else None


def normalize(expr: Expr, ranges: Mapping[str, Interval] | None = None) -> Expr:
    """`expr` with its index arithmetic in canonical form and decided conditions folded.

    `ranges` are inclusive bounds of indices that hold wherever the expression is evaluated. Only
    what is certainly an integer is touched: index positions, and sums of indices and sizes.
    """
    reader = _reader(ranges)
    done = reader.normals
    if expr not in done:
        for item in walk(expr, done):
            done[item] = _fold(rebuild(item, tuple(done[c] for c in children(item))), reader)
    return done[expr]


def bounds(expr: Expr, ranges: Mapping[str, Interval]) -> Interval:
    """Inclusive bounds of an index expression; not always the tightest."""
    return _reader(ranges).bounds(expr)


@attribute
def is_affine(expr: Expr, parts: tuple[bool, ...]) -> bool:
    """Is it quasi-affine in indices and sizes (comparisons and their and/or/not included)?"""
    match expr:
        case Index() | Size():
            return True
        case Const(value, _):
            return isinstance(value, int)
        case Call("mul", (a, b)):
            return all(parts) and (constant(a) is not None or constant(b) is not None)
        case Call("floordiv" | "mod", (_, b)):
            return parts[0] and constant(b) is not None
        case Call(op, _) if op in _SUMS or op in _COMPARE or op in _LOGIC:
            return all(parts)
    return False


@attribute
def is_integer(expr: Expr, parts: tuple[bool, ...]) -> bool:
    """Is it built from indices, sizes and weak integers alone by integer arithmetic?"""
    match expr:
        case Index() | Size():
            return True
        case Const(value, None):
            return type(value) is int
        case Call("add" | "sub" | "neg" | "mul" | "floordiv" | "mod" | "min" | "max", _):
            return all(parts)
    return False


def _reader(ranges: Mapping[str, Interval] | None) -> Reader:
    return _ranged(frozenset(ranges.items())) if ranges else plain()


@lru_cache(maxsize=64)
def _ranged(ranges: frozenset[tuple[str, Interval]]) -> Reader:
    return Reader(dict(ranges))


def _fold(item: Expr, reader: Reader) -> Expr:
    match item:
        case Access(_, indices):
            return rebuild(item, tuple(expression(reader.linear(i)) for i in indices))
        case Range(index, lo, hi):
            return Range(index, expression(reader.linear(lo)), expression(reader.linear(hi)))
        case Call(op, (a, b)) if op in _COMPARE and is_integer(a) and is_integer(b):
            verdict = _verdict(op, *reader.interval(plus(reader.linear(a), reader.linear(b), -1)))
            return item if verdict is None else Const(verdict, bool_)
        case Call("and" | "or" as op, (a, b)):
            neutral = op == "and"
            if _is(a, neutral) or _is(b, not neutral):
                return b
            return a if _is(b, neutral) or _is(a, not neutral) else item
        case Call("not", (Const(bool() as value, _),)):
            return Const(not value, bool_)
        case Call() if is_integer(item):
            return expression(reader.linear(item))
    return item


def _is(expr: Expr, value: bool) -> bool:
    return isinstance(expr, Const) and expr.value is value


def _verdict(op: str, low: int | None, high: int | None) -> bool | None:
    """Is `d op 0` for every d in low..high, for none, or for some (None)?"""
    if op in ("gt", "ge"):
        low, high = (None if high is None else -high), (None if low is None else -low)
        op = "lt" if op == "gt" else "le"
    if op in ("eq", "ne"):
        if low == high == 0:
            return op == "eq"
        apart = (low is not None and low > 0) or (high is not None and high < 0)
        return op == "ne" if apart else None
    limit = -1 if op == "lt" else 0
    if high is not None and high <= limit:
        return True
    return False if low is not None and low > limit else None


def iterations(ranges: Iterable[Range]) -> dict[str, int] | None:
    """How many values each index has at most, by ranges in any order whose sizes are numbers; None
    where the end of one depends on what has no bounds."""
    around: dict[str, Interval] = {}
    found: dict[str, int] = {}
    left = dict.fromkeys(ranges)
    while left:  # those whose ends are known first
        ready = [r for r in left if {*indices_of(r.lo), *indices_of(r.hi)} <= around.keys()]
        for r in ready:
            first, last = bounds(r.lo, around)[0], bounds(r.hi, around)[1]
            if first is None or last is None:
                return None
            around[r.index] = (first, max(first, last - 1))
            found[r.index] = max(0, last - first)
            del left[r]
        if not ready:
            return None
    return found


def in_turn(where: Expr | None) -> list[Expr]:
    """The conditions of a conjunction in the order in which instances are asked: affine ones say
    which instances there are, and only of those the others read."""
    conditions = conjuncts(where)
    return sorted(conditions, key=lambda condition: not is_affine(condition))
