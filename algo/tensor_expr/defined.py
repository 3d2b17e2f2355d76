"""What equations may read: inputs, what equations above define, and what needs them in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from ..errors import OpError, shortly
from .components import tensor_cycles
from .expr import Access, Const, Expr, Range, accesses, children, indices_of, walk
from .located import failure
from .op import Equation, Op
from .printer import print_expr
from .uses import depends_on_data


def check_names(op: Op) -> None:
    """Raises `OpError` unless every name is defined once, and before it is read."""
    params = [p.name for p in op.params]
    for name in params:
        if params.count(name) > 1:
            raise OpError(f"{op.name} has two inputs called {name}")
    last = {eq.tensor: n for n, eq in enumerate(op.equations)}
    cycles = tensor_cycles(op)
    for name in op.returns:
        if name not in last:
            raise OpError(f"{op.name} returns {name}, which no equation defines")
    for n, eq in enumerate(op.equations):
        if eq.tensor in params:
            raise failure(op, n, f"{eq.tensor} is an input, so no equation may define it")
        for access in (a for root in eq.roots for a in accesses(root)):
            tensor = access.tensor
            if tensor in params or tensor == eq.tensor:
                continue
            if tensor not in last:
                raise failure(op, n, f"{tensor} is neither an input nor defined")
            together = tensor in cycles and cycles[tensor] == cycles.get(eq.tensor)
            if last[tensor] >= n and not together:
                raise failure(
                    op, n, f"{tensor} is read here before its last equation; define it first"
                )


def check_integers(op: Op) -> None:
    """Raises `OpError` for a number in place of an index, or beside one, that has more bits."""
    for n, eq in enumerate(op.equations):
        for root in (Access(eq.tensor, eq.lhs), *eq.roots):
            parts = list(walk(root))
            for number in filter(_is_long, parts):
                if any(number in children(item) and _has_places(item) for item in parts):
                    value = shortly(number.value)
                    message = f"{value} does not fit i64, the type of indices and sizes"
                    raise failure(op, n, message)


def _is_long(expr: Expr) -> TypeGuard[Const]:
    return isinstance(expr, Const) and isinstance(expr.value, int) and expr.value.bit_length() > 63


def _has_places(expr: Expr) -> bool:
    """Does it compute with indices only, or index with them, or bound one?"""
    if isinstance(expr, (Access, Range)):
        return True
    return bool(indices_of(expr)) and not accesses(expr)


def check_own_reads(op: Op, mine: Mapping[int, Equation]) -> None:
    """Raises where equations of a cycle of tensors accumulate, or read it where data says."""
    tensors = list(dict.fromkeys(eq.tensor for eq in mine.values()))
    for n, eq in mine.items():
        if eq.reducer is not None:
            others = ", ".join(t for t in tensors if t != eq.tensor)
            read = f"{others}, computed from it; write it as a sum(...)" if others else "it"
            raise failure(op, n, f"{eq.tensor} is accumulated, so its equation may not read {read}")
        for access in accesses(eq.rhs):
            if access.tensor in tensors and any(map(depends_on_data, access.indices)):
                own = "its own tensor" if access.tensor == eq.tensor else "what needs it"
                raise failure(
                    op,
                    n,
                    f"{print_expr(access)} reads {own} at a place that depends on data, "
                    f"so no order of computation is known",
                )
