"""Do isl's loops run every instance of every statement? Asked of isl's own sets, afterwards.

isl's code generation has been seen to lose instances: for `3h + k = i` under loops over i,
h//2 % 2, h//4 % 2 and h % 2 it runs the even h only (islpy 2026.2), while its sets are right. So
what the loops and conditions around each statement let through is read back as a set and compared
with the domain. Where they differ, `kernel` tries the same loops said in other words, then loops
over more, in which conditions on quotients and remainders are asked of every instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..algo import isl
from ..algo.isl import raw
from ..algo.tensor_expr.affine import to_isl
from ..algo.tensor_expr.build import compare
from ..algo.tensor_expr.expr import Call, Expr, Index, transform, walk
from ..sched.loop.nest import Nest, Stmt
from ..sched.loop.regions import function_of
from ..sched.loop.tree import around_stmt
from . import ir
from .context import NOTHING, Context
from .inverse import divided

QUOTA = 1_000_000
"""Operations that the comparison of one statement may take; beyond, isl is believed."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A place at which a statement is executed: loops and conditions around it, its dims there."""

    stmt: str
    loops: tuple[ir.For, ...]
    conditions: tuple[Expr, ...]
    instance: tuple[Expr, ...]


def complete(nest: Nest, visits: Sequence[Visit], context: Context = NOTHING) -> bool:
    """False where isl's loops are known to miss instances, or to run others."""
    return all(
        _complete(stmt, [v for v in visits if v.stmt == name], context)
        for name, stmt in nest.stmts.items()
    )


def _complete(stmt: Stmt, visits: Sequence[Visit], context: Context) -> bool:
    domain = context.set(stmt.dims, [to_isl(cond) for cond in stmt.domain])
    if not visits:
        return isl.is_empty(domain, QUOTA) is not isl.Answer.NO
    scanned = [_scanned(visit, context) for visit in visits]

    def same() -> bool:
        total = scanned[0]
        for part in scanned[1:]:
            total = total.union(part)
        return bool(domain.is_equal(total))

    return isl.ask(same, QUOTA) is not isl.Answer.NO


def _scanned(visit: Visit, context: Context) -> raw.Set:
    """{ [dims] } that the loops around a visit give."""
    fresh: dict[Expr, str] = {}
    extra: list[str] = []

    def name(item: Expr) -> Expr:
        """isl writes choices as expressions but does not read them: they get names."""
        if not (isinstance(item, Call) and item.op == "where"):
            return item
        if item not in fresh:
            fresh[item] = f"choice{len(fresh)}"
            cond, a, b = map(to_isl, item.args)
            var = fresh[item]
            extra.append(f"(({cond} and {var} = {a}) or (not {cond} and {var} = {b}))")
        return Index(fresh[item])

    def text(expr: Expr) -> str:
        return to_isl(transform(expr, name))

    conditions = [text(cond) for cond in visit.conditions]
    for loop in visit.loops:
        var = Index(loop.var)
        conditions += [text(compare("le", loop.lo, var)), text(compare("lt", var, loop.hi))]
        if loop.step != 1:
            conditions.append(f"(({text(var)} - {text(loop.lo)}) mod {loop.step} = 0)")
    images = [text(at) for at in visit.instance]
    outer = [*(loop.var for loop in visit.loops), *fresh.values()]
    return context.map(outer, images, [*conditions, *extra]).range()


def determined(stmt: Stmt, context: Context = NOTHING) -> dict[Expr, Expr]:
    """Dims that equalities of the domain determine, as expressions of the dims before them."""
    domain = context.set(stmt.dims, [to_isl(cond) for cond in stmt.domain])
    found: dict[Expr, Expr] = {}
    for n, dim in enumerate(stmt.dims):
        before = domain.project_out(raw.dim_type.set, n + 1, len(stmt.dims) - n - 1)
        value = raw.Map.from_range(before).move_dims(raw.dim_type.in_, 0, raw.dim_type.out, 0, n)
        if n and value.is_single_valued():
            least = value.dim_min(0)
            if len(least.get_pieces()) == 1:
                found[Index(dim)] = function_of(least, stmt.dims[:n], Index)
    return found


def asked(nest: Nest, stmt: Stmt, context: Context = NOTHING) -> tuple[Expr, ...]:
    """The conditions of a domain on quotients and remainders, which isl has been seen to lose: as
    many as the domain is finite without, and its loops still tell instances apart."""
    values = [to_isl(loop.values[stmt.name]) for loop in around_stmt(nest.tree, stmt.name)]
    found: list[Expr] = []
    for condition in stmt.domain:
        if any(map(divided, walk(condition))):
            rest = [to_isl(c) for c in stmt.domain if c not in (*found, condition)]
            wider = context.map(stmt.dims, values, rest)
            if wider.domain().is_bounded() and wider.is_injective():
                found.append(condition)
    return tuple(found)
