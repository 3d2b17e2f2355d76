"""Gradients in programs: each application contributes the gradient operator of its operator.

The backward pass is ordinary graph: it reads the values of the forward pass that it needs (whether
they are kept or computed again is a matter of schedules) and is itself differentiable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..algo.dtypes import DType
from ..algo.errors import GradientError, ShapeError
from ..algo.graph.build import apply, literal, reachable, region, results_of
from ..algo.graph.elementwise import elementwise, is_stop
from ..algo.graph.graph import Apply, ArrayType, Result, Value
from ..algo.tensor_expr.expr import Access, Cast, Const, Index, Range
from ..algo.tensor_expr.op import Equation, Op, Param
from .derivatives import EVEN
from .forward import tangent
from .results import returning
from .reverse import adjoint


@dataclass(frozen=True, slots=True)
class Origin:
    """Of what a gradient operator in a graph is the gradient: of the results `returns` of `op`, of
    which it takes all, by `wrt`. The operator remembers it as `key`."""

    op: Op
    returns: tuple[str, ...]
    wrt: tuple[str, ...]
    ties: str
    key: ClassVar[str] = "origin"


def gradients(
    value: Value, wrt: Sequence[Value], seed: Value | None = None, ties: str = EVEN
) -> list[Value]:
    """The gradient of `value` by each of `wrt`, as values of their shapes and types.

    `seed` is the cotangent of `value`; without it `value` must be a scalar, and the seed is 1.
    Where `value` does not depend on one of `wrt` its gradient is zeros. Raises `GradientError` for
    integers on either side and for a `value` that is no scalar, `ShapeError` for a seed that does
    not fit.
    """
    _check(value, wrt, seed)
    with region("backward"):
        start = literal(np.ones((), value.type.dtype.numpy)) if seed is None else seed
    return pulled([(value, start)], wrt, ties)


def pulled(
    seeds: Iterable[tuple[Value, Value]], wrt: Sequence[Value], ties: str = EVEN
) -> list[Value]:
    """The sum of what values, each with a cotangent beside it, give each of `wrt`."""
    cotangents: dict[Value, Value] = {}
    with region("backward"):
        for value, seed in seeds:
            _add(cotangents, value, seed)
    values = list(cotangents)
    nodes = reachable(values)
    sources = set(wrt)
    depends: set[Apply] = set()

    def matters(v: Value) -> bool:
        return v.type.dtype.is_float and (
            v in sources or (isinstance(v, Result) and v.apply in depends)
        )

    for node in nodes:
        if any(map(matters, node.args)) and not is_stop(node.op):
            depends.add(node)
    with region("backward"):
        by_node = _results(nodes, values)
        for node in reversed([n for n in nodes if n in depends]):
            given = [r for r in by_node[node] if r in cotangents]
            if given:
                positions = [p for p, v in enumerate(node.args) if matters(v)]
                _pull(node, given, positions, cotangents, ties)
        return [cotangents[v] if v in cotangents else zeros(v.type) for v in wrt]


def tangents(
    values: Sequence[Value], wrt: Sequence[Value], moves: Sequence[Value], ties: str = EVEN
) -> list[Value]:
    """The tangents of `values` where each of `wrt` moves by one of `moves`, of its shape and type.

    They have the types of `values`: zeros for what does not move, and for integers.
    """
    moving: dict[Value, Value] = dict(zip(wrt, moves, strict=True))
    with region("tangent"):
        for node in reachable(values):
            if not is_stop(node.op):
                _push(node, moving, ties)
        return [moving[v] if v in moving else zeros(v.type) for v in values]


def _push(node: Apply, moving: dict[Value, Value], ties: str) -> None:
    """Moves the results of one application as its arguments move."""
    op, args = node.op, dict(zip((p.name for p in node.op.params), node.args, strict=True))
    wrt = tuple(name for name, arg in args.items() if arg in moving)
    results = dict(zip(op.returns, results_of(node), strict=True))
    kept = tuple(name for name, result in results.items() if result.type.dtype.is_float)
    if not wrt or not kept:
        return
    forth = tangent(returning(op, kept), wrt, ties)
    values: dict[str, Value] = {**args, **results}
    primal = [values[p.name] for p in forth.params[: -len(wrt)]]
    found = apply(forth, [*primal, *(moving[args[name]] for name in wrt)])
    for name, amount in zip(kept, found, strict=True):
        moving[results[name]] = cast(amount, results[name].type.dtype)


def zeros(kind: ArrayType) -> Value:
    """An array of zeros."""
    lhs = tuple(Index(f"i{axis}") for axis in range(len(kind.shape)))
    ranges = tuple(
        Range(at.name, Const(0), Const(size)) for at, size in zip(lhs, kind.shape, strict=True)
    )
    equation = Equation("y", lhs, Const(0.0 if kind.dtype.is_float else 0, kind.dtype), ranges)
    return apply(Op("zeros", (), (equation,), ("y",)), ())[0]


def cast(value: Value, dtype: DType) -> Value:
    """`value` converted to another element type, the same value if it has it already."""
    if value.type.dtype is dtype:
        return value
    lhs = tuple(Index(f"i{axis}") for axis in range(len(value.type.shape)))
    equation = Equation("y", lhs, Cast(dtype, Access("x", lhs)))
    return apply(Op("cast", (Param("x"),), (equation,), ("y",)), (value,))[0]


def _pull(
    node: Apply,
    given: Sequence[Result],
    positions: Sequence[int],
    cotangents: dict[Value, Value],
    ties: str,
) -> None:
    """Adds what one application contributes to the cotangents of its arguments."""
    op = node.op
    returns = tuple(op.returns[r.position] for r in given)
    part = returning(op, returns)
    wrt = tuple(op.params[p].name for p in positions)
    back = adjoint(part, wrt, saved=op.returns, ties=ties)
    back.memo(Origin.key, lambda: Origin(op, returns, wrt, ties))
    values = dict(zip((p.name for p in op.params), node.args, strict=True))
    values |= dict(zip(op.returns, results_of(node), strict=True))
    primal = [values[p.name] for p in back.params[: -len(returns)]]
    found = apply(back, [*primal, *(cotangents[r] for r in given)])
    for position, result in zip(positions, found, strict=True):
        arg = node.args[position]
        _add(cotangents, arg, cast(result, arg.type.dtype))


def _add(cotangents: dict[Value, Value], value: Value, amount: Value) -> None:
    before = cotangents.get(value)
    cotangents[value] = amount if before is None else elementwise("add", before, amount)


def _results(nodes: Sequence[Apply], values: Sequence[Value]) -> dict[Apply, list[Result]]:
    """The results of each application that are used, by position."""
    out: dict[Apply, dict[Result, None]] = {node: {} for node in nodes}
    for v in (*values, *(arg for node in nodes for arg in node.args)):
        if isinstance(v, Result):
            out[v.apply].setdefault(v)
    return {node: sorted(found, key=lambda r: r.position) for node, found in out.items()}


def _check(value: Value, wrt: Sequence[Value], seed: Value | None) -> None:
    if not value.type.dtype.is_float:
        raise GradientError(f"gradient of a value of type {value.type}: only floats have gradients")
    for v in wrt:
        if not v.type.dtype.is_float:
            raise GradientError(
                f"gradient by a value of type {v.type}: only floats have gradients; leave it out"
            )
    if seed is None and value.type.shape:
        raise GradientError(
            f"gradient of a value of type {value.type}: expected a scalar; reduce it first, "
            "or give its cotangent as seed"
        )
    if seed is not None and seed.type.shape != value.type.shape:
        raise ShapeError(f"the seed of a value of type {value.type} has type {seed.type}")
