"""Statements of a nest as conditions: domains, elements touched, values of loops.

A question about two instances is a set over the dims of both: the first statement's dims keep
their names and the second's are marked with a prime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from ...algo import isl
from ...algo.tensor_expr.build import all_of, any_of, compare, const, mod, sub
from ...algo.tensor_expr.expr import Access, Expr, Index, Size, sizes_of, substitute, walk
from ...algo.tensor_expr.points import points
from .nest import Stmt

NO_FOLDS: Mapping[int, int] = {}


@lru_cache(maxsize=1 << 14)
def second(expr: Expr, dims: tuple[str, ...]) -> Expr:
    """An expression over `dims` at the second of two instances."""
    return substitute(expr, dict(zip(map(Index, dims), map(Index, primed(dims)), strict=True)))


def primed(dims: Sequence[str]) -> tuple[str, ...]:
    """What dims are called at the second of two instances."""
    return tuple(f"{dim}'" for dim in dims)


@lru_cache(maxsize=1 << 14)
def from_data(expr: Expr) -> bool:
    """Does the value of an index expression depend on what a tensor holds?"""
    return any(isinstance(item, Access) for item in walk(expr))


def same_element(
    a: Sequence[Expr], b: Sequence[Expr], dims: tuple[str, ...], folds: Mapping[int, int] = NO_FOLDS
) -> list[Expr]:
    """Conditions under which an access and one of the second instance may touch one element.

    A coordinate that depends on data may be any, so it excludes nothing. `dims` are the second's.
    With `folds` (of dimensions, by how many) it is the places of elements that are the same.
    """
    found = []
    for n, (x, y) in enumerate(zip(a, b, strict=True)):
        if not (from_data(x) or from_data(y)):
            theirs = second(y, dims)
            if n in folds:
                x, theirs = mod(sub(x, theirs), const(folds[n])), const(0)
            found.append(compare("eq", x, theirs))
    return found


def differ(exprs: Sequence[Expr], dims: tuple[str, ...]) -> Expr:
    """The condition that some expression has another value at the second of two instances."""
    return any_of(compare("ne", expr, second(expr, dims)) for expr in exprs)


def agree(exprs: Sequence[Expr], dims: tuple[str, ...]) -> list[Expr]:
    """The conditions that every expression has the same value at two instances."""
    return [compare("eq", expr, second(expr, dims)) for expr in exprs]


def earlier(pairs: Sequence[tuple[Expr, Expr]]) -> list[Expr]:
    """The ways in which the first values come before the second in lexicographic order."""
    equal = [compare("eq", a, b) for a, b in pairs]
    return [all_of([*equal[:n], compare("lt", a, b)]) for n, (a, b) in enumerate(pairs)]


def symbols(*stmts: Stmt) -> list[str]:
    """The size symbols in statements' domains and accesses."""
    return sizes_in(expr for stmt in stmts for expr in (*stmt.domain, *stmt.lhs, stmt.value))


def sizes_in(exprs: Iterable[Expr]) -> list[str]:
    """The size symbols in expressions that are asked about again and again."""
    return list(dict.fromkeys(size for expr in exprs for size in _sizes_in(expr)))


@lru_cache(maxsize=1 << 14)
def _sizes_in(expr: Expr) -> tuple[str, ...]:
    return tuple(sizes_of([expr]))


def positive(sizes: Iterable[str]) -> list[Expr]:
    """Sizes that are symbols are at least 1; one that is 0 is given, and checked as it is."""
    return [compare("ge", Size(size), const(1)) for size in sizes]


def pairs(a: Stmt, b: Stmt, conditions: Iterable[Expr], sizes: Sequence[str]) -> isl.raw.Set:
    """The pairs of instances of `a` and of `b` (primed) in their domains with `conditions`."""
    dims = (*a.dims, *primed(b.dims))
    theirs = [second(condition, b.dims) for condition in b.domain]
    return points(dims, [*a.domain, *theirs, *conditions], sizes)
