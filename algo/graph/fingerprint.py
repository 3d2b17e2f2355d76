"""What tells one program from another, whatever the sizes it is traced at."""

from __future__ import annotations

import hashlib

from .build import literal_array
from .graph import Graph, Literal, Value
from .print import value_name


def fingerprint(graph: Graph) -> str:
    """A key of a graph: its operators, how they are connected, element types and ranks.

    Sizes do not count, so that a schedule serves a program at any of them.
    """

    def name(value: Value) -> str:
        kind = f"{value.dtype}:{value.ndim}"
        if isinstance(value, Literal):
            return f"{literal_array(value)} {kind}" if not value.shape else f"const {kind}"
        return f"{value_name(graph, value)} {kind}"

    lines = [name(value) for value in graph.inputs]
    for node in graph.nodes:
        args = ", ".join(map(name, node.args))
        lines.append(f"{graph.ids[node]} = {node.op.fingerprint}({args})")
    lines += [name(value) for value in graph.outputs]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
