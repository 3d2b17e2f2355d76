"""The text of a graph, for people: one line a node, values named by the ids of their nodes."""

from __future__ import annotations

from ..location import Loc
from .build import literal_array, results_of
from .graph import Apply, Graph, Input, Literal, Result, Value
from .trace import leaf_names


def value_name(graph: Graph, value: Value) -> str:
    """An input's name; a small literal's contents; "dense[0]", with ".m" for one of several
    results."""
    match value:
        case Input(name, _):
            return name
        case Literal(_, type_):
            return str(literal_array(value)) if not type_.shape else f"const {type_}"
        case Result(apply, position, _):
            name = graph.ids[apply]
            many = len(apply.op.returns) > 1
            return f"{name}.{apply.op.returns[position]}" if many else name
    raise TypeError(f"not a value: {value!r}")


def regions_of(graph: Graph) -> dict[Apply, str]:
    """Which part of a training step each node is in: forward; backward, if a gradient made it;
    update, if it comes after gradients."""
    marks = graph.notes.get("regions", {})
    found: dict[Apply, str] = {}
    region = "forward"
    for node in graph.nodes:
        if marks.get(node) == "backward":
            region = "backward"
        elif region == "backward":
            region = "update"
        found[node] = region
    return found


def print_graph(graph: Graph, locations: bool = False) -> str:
    """The whole graph; with `locations`, where each node was written."""
    names = {value: value_name(graph, value) for value in graph.inputs}
    places: dict[object, Loc] = dict(graph.notes.get("locations", {})) if locations else {}
    regions = regions_of(graph)
    lines = [f"program {graph.name}"]
    lines += [f"  input {names[value]}: {value.type}" for value in graph.inputs]
    region = "forward"
    for node in graph.nodes:
        if regions[node] != region:
            region = regions[node]
            lines.append(f"  # {region}")
        args = ", ".join(value_name(graph, arg) for arg in node.args)
        types = ", ".join(str(result.type) for result in results_of(node))
        where = f"  # {places[node]}" if node in places else ""
        lines.append(f"  {graph.ids[node]}: {types} = {node.op.name}({args}){where}")
    for name, value in zip(leaf_names(graph), graph.outputs, strict=True):
        lines.append(f"  {name} = {value_name(graph, value)}")
    return "\n".join(lines)
