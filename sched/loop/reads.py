"""The elements that expressions read, each with the conditions under which it is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...algo.tensor_expr.affine import is_affine
from ...algo.tensor_expr.build import conjuncts
from ...algo.tensor_expr.expr import Access, Call, Expr, children


@dataclass(frozen=True)
class Read:
    """`tensor[indices]`, read only where the `guards` hold (affine conditions of `where`s)."""

    tensor: str
    indices: tuple[Expr, ...]
    guards: tuple[Expr, ...] = ()


@lru_cache(maxsize=4096)
def reads_in(exprs: tuple[Expr, ...]) -> tuple[Read, ...]:
    """Every distinct read; the branch of a `where` that is not taken reads nothing."""
    found: dict[Read, None] = {}
    seen: set[tuple[Expr, tuple[Expr, ...]]] = set()
    stack: list[tuple[Expr, tuple[Expr, ...]]] = [(expr, ()) for expr in reversed(exprs)]
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        expr, guards = item
        if isinstance(expr, Access):
            found.setdefault(Read(expr.tensor, expr.indices, guards))
        if isinstance(expr, Call) and expr.op == "where":
            cond, yes, no = expr.args
            stack.append((no, guards + _where(cond, False)))
            stack.append((yes, guards + _where(cond, True)))
            stack.append((cond, guards))
        else:
            stack.extend((child, guards) for child in reversed(children(expr)))
    return tuple(found)


def _where(cond: Expr, taken: bool) -> tuple[Expr, ...]:
    """What is known in a branch, as far as it is affine."""
    if taken:
        return tuple(c for c in conjuncts(cond) if is_affine(c))
    return (Call("not", (cond,)),) if is_affine(cond) else ()
