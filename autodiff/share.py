"""Gradients in a graph that read what the forward pass computed, instead of computing it again.

The graph of a program says of each application what its gradient is, and a gradient operator
computes again what it reads of the operator's temporaries. Where the application itself is there
too, it may return them: it becomes that of `keeping`, and its gradient one that takes them. What
is worth it `worth_keeping` says, as for calls. The values are the same; the graph of the program
stays as it is, for this is a matter of schedules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..algo.graph.build import apply, ids, results_of
from ..algo.graph.graph import Apply, Graph, Result, Value
from .graph import Origin
from .keep import keeping, kept, worth_keeping
from .results import returning
from .reverse import adjoint


def shared(graph: Graph, apart: Collection[str] = ()) -> Graph:
    """The graph whose gradients take what is worth keeping from the applications that they are of;
    nodes with the ids `apart` stay as they are."""
    sources = _sources(graph, apart)
    wanted: dict[Apply, dict[str, None]] = {}
    names: dict[Apply, tuple[str, ...]] = {}
    for node, (source, origin) in reversed(sources.items()):
        # One whose own gradient takes something of it stays as that gradient knows it.
        names[node] = () if wanted.get(node) else worth_keeping(origin.op, origin.wrt)
        wanted.setdefault(source, {}).update(dict.fromkeys(names[node]))
    if not any(wanted.values()):
        return graph
    known: dict[Apply, Mapping[str, Value]] = {}

    def new(value: Value) -> Value:
        if not isinstance(value, Result):
            return value
        return known[value.apply][value.apply.op.returns[value.position]]

    moved: dict[Apply, Apply] = {}
    for node in graph.nodes:
        args = tuple(map(new, node.args))
        op = node.op
        if node in sources and names[node]:
            source, origin = sources[node]
            op = adjoint(
                returning(origin.op, origin.returns), origin.wrt,
                tuple(dict.fromkeys((*origin.op.returns, *names[node]))), origin.ties,
            )  # fmt: skip
            values = {p.name: new(a) for p, a in zip(source.op.params, source.args, strict=True)}
            values |= known[source]
            count = len(origin.returns)
            primal = [values[p.name] for p in op.params[:-count]]
            args = (*primal, *args[len(args) - count :])
        elif wanted.get(node):
            op = keeping(op, kept(tuple(wanted[node])))
        results = apply(op, args)
        known[node] = dict(zip(op.returns, results, strict=True))
        moved[node] = results[0].apply
    nodes = tuple(dict.fromkeys(moved.values()))
    notes = dict(graph.notes)
    for kind in ("locations", "regions"):
        old = graph.notes.get(kind, {})
        notes[kind] = {fresh: old[node] for node, fresh in moved.items() if node in old}
    outputs = tuple(map(new, graph.outputs))
    return Graph(graph.name, graph.inputs, nodes, outputs, ids(nodes), graph.structure, notes)


def _sources(graph: Graph, apart: Collection[str]) -> dict[Apply, tuple[Apply, Origin]]:
    """Of each application of a gradient operator, the one that it is of, if it is in the graph
    before it."""
    found: dict[Apply, tuple[Apply, Origin]] = {}
    by_op: dict[str, list[Apply]] = {}
    for node in graph.nodes:
        by_op.setdefault(node.op.fingerprint, []).append(node)
        origin: Origin | None = node.op._memo.get(Origin.key)
        if origin is None or graph.ids[node] in apart:
            continue
        count = len(origin.returns)
        primal = zip((p.name for p in node.op.params[:-count]), node.args[:-count], strict=True)
        reads = dict(primal)
        for source in by_op.get(origin.op.fingerprint, ()):
            results = zip(source.op.returns, results_of(source), strict=True)
            params = zip((p.name for p in source.op.params), source.args, strict=True)
            values = dict(params) | dict(results)
            fits = source.op == origin.op and graph.ids[source] not in apart
            if fits and all(values.get(name) is value for name, value in reads.items()):
                found[node] = (source, origin)
                break
    return found
