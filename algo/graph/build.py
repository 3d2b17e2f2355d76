"""Making graph nodes: an operator applied to values, its results typed and its sizes checked.

A trace records the applications made while it runs, in order, with the place in the user's source
and the region they belong to. Without a trace in progress nodes are made all the same; `graph_of`
finds them from the outputs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..dtypes import BY_NAME, DType, as_bits, bool_, from_numpy, i64, promote, promote_weak
from ..errors import DTypeError, GraphError, ShapeError, counted
from ..location import Loc, caller
from ..tensor_expr.check import check
from ..tensor_expr.expr import Access, accesses, walk
from ..tensor_expr.numbers import numbers
from ..tensor_expr.op import Checked, Op
from ..tensor_expr.settle import settled
from ..tensor_expr.sizes import bind_sizes, evaluate
from ..tensor_expr.types import infer
from .graph import Apply, ArrayType, Graph, Input, Literal, Result, Value


@dataclass(slots=True)
class Recording:
    """The trace of program `name` with these inputs: its applications, in order, each with its
    source line and its region."""

    name: str = ""
    inputs: frozenset[Input] = frozenset()
    nodes: dict[Apply, Loc] = field(default_factory=dict)
    regions: dict[Apply, str] = field(default_factory=dict)
    region: str = ""


class _Active(threading.local):
    def __init__(self) -> None:
        self.stack: list[Recording] = []


_active = _Active()


@contextlib.contextmanager
def recording(name: str, inputs: Sequence[Input]) -> Iterator[Recording]:
    """Records what is applied in this thread until the block ends."""
    record = Recording(name, frozenset(inputs))
    _active.stack.append(record)
    try:
        yield record
    finally:
        _active.stack.pop()


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    """Says that new applications in the block belong to region `name` ("backward").

    A node that an earlier part of the program applied already stays where it was.
    """
    record = _active.stack[-1] if _active.stack else Recording()
    before, record.region = record.region, name
    try:
        yield
    finally:
        record.region = before


def is_traced(args: Sequence[Any]) -> bool:
    """Is any of these a graph value, so that an operator called on them becomes a node?"""
    return any(isinstance(arg, Value) for arg in args)


def call(op: Op, *args: Any, **named: Any) -> Value | tuple[Value, ...]:
    """What `op(...)` means on values: its one result, or a tuple of its results."""
    results = apply(op, _by_position(op, args, named))
    return results[0] if len(results) == 1 else results


def apply(op: Op, args: Sequence[Any]) -> tuple[Result, ...]:
    """The results of `op` on values, arrays (which become literals) and, where the operator has a
    parameter of rank 0, Python scalars (which take the type of their partners).

    Raises `ShapeError` and `DTypeError` as a call on arrays does.
    """
    shapes = [a.type.shape if isinstance(a, Value) else np.shape(a) for a in args]
    op = settled(op, dict(zip((p.name for p in op.params), shapes, strict=False)))
    values = _values(op, check(op), args)
    for param, value in zip(op.params, values, strict=True):
        declared = param.type.dtype
        if declared is not None and declared is not value.type.dtype:
            raise DTypeError(
                f"{op.name}: {param.name} is declared {declared}, got {value.type}; cast it with "
                "an operator"
            )
    node = Apply(op, tuple(values))
    results = results_of(node)
    if _active.stack:
        record = _active.stack[-1]
        if node not in record.nodes:
            record.nodes[node] = caller()
            if record.region:
                record.regions[node] = record.region
    return results


def results_of(node: Apply) -> tuple[Result, ...]:
    """The results of an application, in the order of the operator's returns."""
    types = result_types(node.op, tuple(arg.type for arg in node.args))
    return tuple(Result(node, position, found) for position, found in enumerate(types))


def result_types(op: Op, types: tuple[ArrayType, ...]) -> tuple[ArrayType, ...]:
    """The types of what `op` returns for arguments of these types; raises where they misfit."""

    def find() -> tuple[ArrayType, ...]:
        checked = check(op)
        by_name = {param.name: found for param, found in zip(op.params, types, strict=True)}
        sizes = bind_sizes(checked, {name: found.shape for name, found in by_name.items()})
        dtypes = infer(checked, {name: found.dtype for name, found in by_name.items()})
        return tuple(
            ArrayType(tuple(evaluate(e, sizes) for e in checked.shapes[name]), dtypes[name])
            for name in op.returns
        )

    found: tuple[ArrayType, ...] = op.memo(f"result types {types}", find)
    return found


def literal(array: Any, dtype: DType | None = None) -> Literal:
    """A constant array as a value; `dtype` converts it."""
    found = np.asarray(array)
    kind = from_numpy(found.dtype) if dtype is None else dtype
    bits = as_bits(found) if kind.lies_in(found.dtype) else found
    data = np.ascontiguousarray(bits, dtype=kind.numpy).tobytes()
    return Literal(data, ArrayType(tuple(found.shape), kind))


def literal_array(value: Literal) -> np.ndarray[Any, Any]:
    """The contents of a literal, read only."""
    return np.frombuffer(value.data, value.type.dtype.numpy).reshape(value.type.shape)


def graph_of(
    name: str,
    inputs: Sequence[Input],
    outputs: Sequence[Value],
    record: Recording | None = None,
    structure: Any = None,
    dims: Mapping[str, tuple[str | None, ...]] | None = None,
) -> Graph:
    """The graph that computes `outputs` from `inputs`, with nothing in it that they do not need.

    Nodes stand in the order of `record`, where there is one, else in the order of their uses.
    Raises `GraphError` where an output depends on an input that is not listed.
    """
    found = reachable(outputs)
    _check_inputs(name, frozenset(inputs), outputs, found)
    if record is not None:
        place = {node: position for position, node in enumerate(record.nodes)}
        found.sort(key=lambda node: place.get(node, -1))
    notes: dict[str, Any] = {"dims": dict(dims or {})}
    if record is not None:
        notes["locations"] = {n: record.nodes[n] for n in found if n in record.nodes}
        notes["regions"] = {n: record.regions[n] for n in found if n in record.regions}
    return Graph(name, tuple(inputs), tuple(found), tuple(outputs), ids(found), structure, notes)


def check_own(values: Sequence[Value]) -> None:
    """Raises `GraphError` where one of these values is of another trace than that in progress.

    Inputs of one name and type are one value, of whatever trace.
    """
    if _active.stack:
        record = _active.stack[-1]
        _check_inputs(record.name, record.inputs, values, reachable(values))


def _check_inputs(
    name: str, known: frozenset[Input], values: Sequence[Value], nodes: Sequence[Apply]
) -> None:
    for value in (*values, *(arg for node in nodes for arg in node.args)):
        if isinstance(value, Input) and value not in known:
            raise GraphError(
                f"program {name}: input {value.name} belongs to another program; a value may be "
                "used only in the trace that made it, so pass it in as an argument"
            )


def ids(nodes: Sequence[Apply]) -> dict[Apply, str]:
    """Names for people and schedules: "dense[0]", counted by the name of the operator."""
    counts: dict[str, int] = {}
    names: dict[Apply, str] = {}
    for node in nodes:
        count = counts.get(node.op.name, 0)
        names[node] = f"{node.op.name}[{count}]"
        counts[node.op.name] = count + 1
    return names


def reachable(outputs: Sequence[Value]) -> list[Apply]:
    """The applications that `outputs` need, each after those it needs; a stack, not recursion."""
    order: dict[Apply, None] = {}
    opened: set[Apply] = set()
    stack = [v.apply for v in reversed(outputs) if isinstance(v, Result)]
    while stack:
        node = stack[-1]
        if node in order:
            stack.pop()
        elif node in opened:
            order[stack.pop()] = None
        else:
            opened.add(node)
            stack.extend(
                arg.apply
                for arg in reversed(node.args)
                if isinstance(arg, Result) and arg.apply not in order
            )
    return list(order)


def _by_position(op: Op, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    names = [param.name for param in op.params]
    given = dict(zip(names, args, strict=False))
    signature = f"{op.name}({', '.join(names)})"
    unknown = [name for name in named if name not in names]
    if len(args) > len(names) or unknown:
        extra = f"argument {unknown[0]}" if unknown else f"{len(args)} arguments"
        raise ShapeError(f"{signature} does not take {extra}")
    twice = [name for name in named if name in given]
    if twice:
        raise ShapeError(f"{signature} got {twice[0]} by position and by name")
    given.update(named)
    missing = [name for name in names if name not in given]
    if missing:
        raise ShapeError(f"{signature} misses {', '.join(missing)}")
    return [given[name] for name in names]


def _values(op: Op, checked: Checked, args: Sequence[Any]) -> list[Value]:
    if len(args) != len(op.params):
        names = ", ".join(param.name for param in op.params)
        takes = counted(len(op.params), "argument")
        raise ShapeError(f"{op.name}({names}) takes {takes}, {len(args)} given")
    strong = [a.type.dtype if isinstance(a, Value) else from_numpy(a.dtype)
              for a in args if isinstance(a, (Value, np.ndarray, np.generic))]  # fmt: skip
    values: list[Value] = []
    for param, arg in zip(op.params, args, strict=True):
        if isinstance(arg, Value):
            values.append(arg)
        elif isinstance(arg, (np.ndarray, np.generic)):
            values.append(literal(arg))
        elif isinstance(arg, (bool, int, float)):
            rank = len(checked.shapes[param.name])
            if rank:
                raise ShapeError(
                    f"{op.name}: {param.name} has {rank} dimensions, got the number {arg!r}; "
                    "give an array"
                )
            dtype = param.type.dtype or _fitting(op, param.name, arg, strong)
            values.append(literal(numbers(f"{op.name}: {param.name}", arg, dtype), dtype))
        else:
            raise GraphError(
                f"{op.name}: {param.name} is a {type(arg).__name__}; expected a value of the "
                "program, an array, or a number"
            )
    return values


def _fitting(op: Op, name: str, scalar: bool | int | float, strong: Sequence[DType]) -> DType:
    """The type of a scalar argument: an index is i64; else it is weak, as a literal would be."""
    if isinstance(scalar, bool):
        return bool_
    used = [
        access for eq in op.equations for part in (*eq.lhs, eq.rhs) for access in accesses(part)
    ]
    for access in used:
        inner = [item for index in access.indices for item in walk(index)]
        if any(isinstance(item, Access) and item.tensor == name for item in inner):
            return i64
    floats = [dtype for dtype in strong if dtype.is_float]
    others = floats or [dtype for dtype in strong if dtype is not bool_]
    if not others:
        return i64 if isinstance(scalar, int) else BY_NAME["f32"]
    common = others[0]
    for dtype in others[1:]:
        common = promote(common, dtype)
    return promote_weak(common, scalar)
