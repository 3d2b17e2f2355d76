"""How many iterations a loop has, where that is a constant."""

from __future__ import annotations

from ...algo import isl
from ...algo.tensor_expr.expr import Call, Const, Expr, Index, Size
from ...algo.tensor_expr.points import mapping
from .nest import Loop, Nest, Stmt
from .relations import symbols
from .tree import around_loop

UNKNOWN = 1 << 20
"""Stands for the extent of the inner of two loops made one while sizes are symbols: it keeps the
order, which is all that legality asks. With sizes all is checked again, and extents are real."""

EMPTY = (0, -1)
"""The span of a loop that never runs."""


def extent(nest: Nest, loop: Loop) -> int | None:
    """The iterations of a loop over all statements under it; None where sizes decide."""
    if loop.extent is not None:
        return loop.extent
    span = spans(nest, loop)
    return None if span is None else max(0, span[1] - span[0] + 1)


def at_once(nest: Nest, loop: Loop) -> int | None:
    """The most iterations that a loop has in one of those around it; None where sizes decide."""
    if loop.extent is not None:
        return loop.extent
    around = around_loop(nest.tree, loop.name)
    most = [0]
    for name, value in loop.values.items():
        stmt = nest.stmts[name]
        outer = [item.values[name] for item in around]
        frame = (stmt.domain, symbols(stmt))
        try:
            with isl.quota():
                inside = mapping(stmt.dims, outer, *frame).reverse().apply_range(
                    mapping(stmt.dims, [value], *frame)
                )  # fmt: skip
                if not inside.is_empty():
                    apart = inside.reverse().apply_range(inside).deltas().dim_max_val(0)
                    if not apart.is_int():
                        return None
                    most.append(int(apart.to_python()) + 1)
        except isl.Exhausted:
            return None
    return max(most)


def spans(nest: Nest, loop: Loop) -> tuple[int, int] | None:
    """The least and greatest value of a loop, if both are constants; (0, -1) if it has none."""
    low, high = [], []
    for name, value in loop.values.items():
        stmt = nest.stmts[name]
        found = _quick(stmt, value.name) if isinstance(value, Index) else None
        if found is None:
            found = _by_isl(stmt, value)
        if found is None:
            return None
        if found[0] <= found[1]:
            low.append(found[0])
            high.append(found[1])
    return (min(low), max(high)) if low else EMPTY


def stays_within(stmt: Stmt, value: Expr, extent: int) -> bool:
    """Does a value stay in 0:extent over the statement's domain?"""
    span = EMPTY if isinstance(value, Const) and value.value == 0 else _by_isl(stmt, value)
    return span is not None and (span == EMPTY or 0 <= span[0] <= span[1] < extent)


def _quick(stmt: Stmt, dim: str) -> tuple[int, int] | None:
    """Constant bounds of a dim that stand in the domain as they are, and nothing else bounds."""
    low: list[int] = []
    high: list[int] = []
    for condition in stmt.domain:
        match condition:
            case Call("le", (Const(int() as n, _), Index(name))) if name == dim:
                low.append(n)
            case Call("lt", (Index(name), Const(int() as n, _))) if name == dim:
                high.append(n - 1)
            case Call("lt", (Index(name), Size())) if name == dim:
                return None
    return (max(low), min(high)) if low and high else None


def _by_isl(stmt: Stmt, value: Expr) -> tuple[int, int] | None:
    values = mapping(stmt.dims, [value], stmt.domain, symbols(stmt))
    try:
        with isl.quota():
            if values.is_empty():
                return EMPTY
            last = values.range()
            low, high = last.dim_min_val(0), last.dim_max_val(0)
            if not (low.is_int() and high.is_int()):
                return None
            return int(low.to_python()), int(high.to_python())
    except isl.Exhausted:
        return None
