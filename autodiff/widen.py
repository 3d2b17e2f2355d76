"""Operators and programs with every float type made f64, for numbers that tell more digits."""

from __future__ import annotations

from dataclasses import replace

from ..algo.dtypes import DType, TensorType, f64, in_float64
from ..algo.graph.build import apply, literal, literal_array
from ..algo.graph.graph import Apply, ArrayType, Graph, Input, Literal, Result, Value
from ..algo.tensor_expr.expr import Cast, Const, Expr, Reduce, transform
from ..algo.tensor_expr.op import Op, Param
from ..algo.tensor_expr.uses import map_exprs


def widened(op: Op) -> Op:
    """The operator with annotations, casts, literals and accumulators of float types in f64."""
    made: Op = op.memo("widened", lambda: _widened(op))
    return made


def _widened(op: Op) -> Op:
    params = tuple(Param(p.name, TensorType(_wide(p.type.dtype), p.type.dims)) for p in op.params)
    equations = tuple(map_exprs(eq, lambda e: transform(e, _rule)) for eq in op.equations)
    rules = tuple(
        replace(r, vjp=r.vjp and widened(r.vjp), jvp=r.jvp and widened(r.jvp)) for r in op.rules
    )
    return replace(op, params=params, equations=equations, rules=rules, _memo={})


def _rule(item: Expr) -> Expr:
    match item:
        case Cast(dtype, arg) if dtype.is_float:
            return Cast(f64, arg)
        case Const(value, DType() as dtype) if dtype.is_float:
            return Const(value, f64)
        case Reduce(reducer, indices, body, ranges, where, DType() as dtype) if dtype.is_float:
            return Reduce(reducer, indices, body, ranges, where, f64)
    return item


def _wide(dtype: DType | None) -> DType | None:
    return f64 if dtype is not None and dtype.is_float else dtype


def widened_graph(graph: Graph) -> tuple[tuple[Input, ...], tuple[Value, ...]]:
    """The inputs and outputs of a graph with every float type made f64."""
    inputs = tuple(Input(i.name, _wide_type(i.type)) for i in graph.inputs)
    known: dict[Value, Value] = dict(zip(graph.inputs, inputs, strict=True))
    results: dict[Apply, tuple[Result, ...]] = {}

    def new(value: Value) -> Value:
        if isinstance(value, Result):
            return results[value.apply][value.position]
        if isinstance(value, Literal) and value.type.dtype.is_float:
            return literal(in_float64(literal_array(value), value.type.dtype), f64)
        return known.get(value, value)

    for node in graph.nodes:
        results[node] = apply(widened(node.op), [new(arg) for arg in node.args])
    return inputs, tuple(map(new, graph.outputs))


def _wide_type(kind: ArrayType) -> ArrayType:
    return ArrayType(kind.shape, _wide(kind.dtype) or kind.dtype)
