"""The oracle for programs: node by node, with the operators' interpreter, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import as_bits, bf16, bf16_form
from ..tensor_expr.interpret import interpret as interpret_op
from .build import literal_array
from .graph import Apply, Graph, Literal, Result, Value
from .tree import Structure, unflatten


def interpret(graph: Graph, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The flat outputs for one array an input, in the order of `graph.inputs`. Those of bf16 are
    bfloat16 where an input is, else their bits."""
    given = [np.asarray(array) for array in arrays]
    known: dict[Value, Any] = dict(zip(graph.inputs, given, strict=True))
    results: dict[Apply, tuple[Any, ...]] = {}

    def read(value: Value) -> Any:
        match value:
            case Literal():
                return literal_array(value)
            case Result(apply, position, _):
                return results[apply][position]
        return known[value]

    for node in graph.nodes:
        dtypes = [arg.type.dtype for arg in node.args]
        found = interpret_op(node.op, *map(read, node.args), dtypes=dtypes)
        results[node] = found if isinstance(found, tuple) else (found,)
    form = bf16_form(given)
    outputs = [(np.array(read(value)), value.type.dtype) for value in graph.outputs]
    return [as_bits(array).view(form) if dtype is bf16 else array for array, dtype in outputs]


def interpret_tree(graph: Graph, arrays: Sequence[Any]) -> Any:
    """The outputs in the containers that the program returned."""
    outputs = interpret(graph, arrays)
    if isinstance(graph.structure, Structure):
        return unflatten(graph.structure, outputs)
    return outputs
