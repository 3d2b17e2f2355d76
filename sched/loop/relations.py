"""Statements of a nest as isl text: domains, elements touched, values of loops.

A question about two instances is a set over the dims of both: the first statement's dims keep
their names and the second's are marked with a prime.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from ...algo import isl
from ...algo.tensor_expr.affine import to_isl
from ...algo.tensor_expr.expr import Access, Expr, Index, sizes_of, substitute, walk
from .nest import Stmt


def primed(dims: Iterable[str]) -> dict[Expr, Expr]:
    """The renaming that tells the second of two instances from the first."""
    return {Index(dim): Index(dim + "'") for dim in dims}


def text(expr: Expr, names: dict[Expr, Expr] | None = None) -> str:
    """An affine expression or condition as isl text, its indices renamed."""
    return to_isl(substitute(expr, names or {}))


def from_data(expr: Expr) -> bool:
    """Does the value of an index expression depend on what a tensor holds?"""
    return any(isinstance(item, Access) for item in walk(expr))


def domain(stmt: Stmt, names: dict[Expr, Expr] | None = None) -> list[str]:
    """The conditions of a statement's domain."""
    return [text(condition, names) for condition in stmt.domain]


def same_element(
    a: Sequence[Expr], b: Sequence[Expr], second: dict[Expr, Expr] | None = None
) -> list[str]:
    """Conditions under which two accesses may touch one element.

    A coordinate that depends on data may be any, so it excludes nothing.
    """
    return [
        f"{text(x)} = {text(y, second)}"
        for x, y in zip(a, b, strict=True)
        if not from_data(x) and not from_data(y)
    ]


def symbols(*stmts: Stmt) -> list[str]:
    """The size symbols in statements' domains and accesses."""
    found: dict[str, None] = {}
    for stmt in stmts:
        for size in _symbols(stmt):
            found.setdefault(size)
    return list(found)


@lru_cache(maxsize=4096)
def _symbols(stmt: Stmt) -> tuple[str, ...]:
    return tuple(sizes_of((*stmt.domain, *stmt.lhs, stmt.value)))


def pairs(a: Stmt, b: Stmt, conditions: Iterable[str], sizes: Sequence[str]) -> isl.raw.Set:
    """The pairs of instances of `a` and of `b` (primed) in their domains with `conditions`."""
    second = primed(b.dims)
    dims = [*a.dims, *(dim + "'" for dim in b.dims)]
    return isl.make_set(dims, [*domain(a), *domain(b, second), *conditions], sizes)
