"""Passes over graphs: constant folding where it is certain to be exact, and dead code.

Common subexpressions need no pass: nodes are interned, so equal applications are one object.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..tensor_expr.expr import Call, Reduce, walk
from ..tensor_expr.interpret import interpret as interpret_op
from ..tensor_expr.op import Op
from .build import apply, ids, literal, literal_array, reachable
from .graph import Apply, Graph, Literal, Result, Value

# Operations that IEEE 754 and two's complement define to the last bit, so that folding them here
# gives what any machine would have computed.
EXACT = frozenset(
    [
        *("add", "sub", "mul", "div", "neg", "abs", "sign", "min", "max", "floor", "ceil", "sqrt"),
        *("where", "floordiv", "mod", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"),
    ]
)
LARGEST = 64  # elements of a folded constant; folding is for scalars and the like


def simplify(graph: Graph) -> Graph:
    """All passes, in order."""
    for each in PASSES:
        graph = each(graph)
    return graph


def fold(graph: Graph) -> Graph:
    """Applications of exact operations to small literals become literals."""
    known: dict[Apply, tuple[Value, ...]] = {}

    def new(value: Value) -> Value:
        return known[value.apply][value.position] if isinstance(value, Result) else value

    for node in graph.nodes:
        args = tuple(map(new, node.args))
        known[node] = _folded(node.op, args) or apply(node.op, args)
    return _rebuilt(graph, tuple(map(new, graph.outputs)), known)


def dead_code(graph: Graph) -> Graph:
    """Only what the outputs need."""
    return _rebuilt(graph, graph.outputs, {})


PASSES: tuple[Callable[[Graph], Graph], ...] = (fold, dead_code)


def _rebuilt(
    graph: Graph, outputs: tuple[Value, ...], known: dict[Apply, tuple[Value, ...]]
) -> Graph:
    """The graph with other outputs; `known` says what became of the nodes it had."""

    def new(node: Apply) -> Apply | None:
        first = known[node][0] if node in known else None
        return first.apply if isinstance(first, Result) else node if first is None else None

    live = set(reachable(outputs))
    moved = {node: fresh for node in graph.nodes if (fresh := new(node)) in live}
    nodes = tuple(dict.fromkeys(moved.values()))
    if nodes == graph.nodes and outputs == graph.outputs:
        return graph
    notes = dict(graph.notes)
    for kind in ("locations", "regions"):
        old = graph.notes.get(kind, {})
        notes[kind] = {fresh: old[node] for node, fresh in moved.items() if node in old}
    return Graph(graph.name, graph.inputs, nodes, outputs, ids(nodes), graph.structure, notes)


def _folded(op: Op, args: Sequence[Value]) -> tuple[Value, ...] | None:
    literals = [arg for arg in args if isinstance(arg, Literal)]
    if len(literals) != len(args) or not _is_exact(op):
        return None
    results = apply(op, literals)
    if any(math.prod(value.shape) > LARGEST for value in (*literals, *results)):
        return None
    dtypes = [literal.type.dtype for literal in literals]
    found = interpret_op(op, *map(literal_array, literals), dtypes=dtypes)
    arrays = found if isinstance(found, tuple) else (found,)
    return tuple(literal(a, r.dtype) for a, r in zip(arrays, results, strict=True))


def _is_exact(op: Op) -> bool:
    """Does the op only compute what every machine computes alike?"""
    for eq in op.equations:
        if eq.reducer is not None:
            return False
        for item in walk(eq.rhs):
            if isinstance(item, Reduce) or (isinstance(item, Call) and item.op not in EXACT):
                return False
    return True
