"""What is differentiated, as a check of derivatives sees it: named arrays, results, both modes.

An operator and a graph of operators answer the same questions. Each says what its gradient is, a
function of the same kind, so that any order of derivatives is checked by the same code. `Run` says
how they are computed; here nothing does so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..algo.dtypes import from_numpy, in_float64
from ..algo.errors import GradientError
from ..algo.graph.build import graph_of
from ..algo.graph.graph import Graph, Input, Value
from ..algo.graph.trace import Arguments
from ..algo.graph.trace import trace as traced
from ..algo.graph.tree import paths
from ..algo.tensor_expr.op import Op
from ..algo.tensor_expr.settle import settled_on
from .forward import tangent
from .graph import pulled, tangents
from .results import returning
from .reverse import adjoint, refuse_integer
from .widen import widened, widened_graph

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


class Run(Protocol):
    """Computes operators and graphs."""

    def __call__(self, what: Op | Graph, arrays: Sequence[Array]) -> Sequence[Array]:
        """The results, in order, on arrays, one a parameter."""
        ...

    def each(
        self, what: Op | Graph, calls: Iterable[Sequence[Array]], moved: tuple[str, ...]
    ) -> Iterator[Sequence[Array]]:
        """The results of several calls, which differ in the parameters `moved` alone."""
        ...


class Differentiable(Protocol):
    """A function of named arrays at `values`, all floats in float64, differentiated by `wrt`."""

    values: dict[str, Array]
    wrt: tuple[str, ...]

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def __call__(self, values: Arrays) -> dict[str, Array]:
        """The results that are floats, by name."""
        ...

    def each(self, points: Iterable[Arrays]) -> Iterator[dict[str, Array]]:
        """The results at several values, which differ in those of `wrt` alone."""
        ...

    def pull(self, values: Arrays, cotangents: Arrays) -> dict[str, Array]:
        """The cotangents of `wrt`, for one of each result."""
        ...

    def push(self, values: Arrays, moves: Arrays) -> dict[str, Array]:
        """The tangents of the results, for one of each of `wrt`."""
        ...

    def gradient(self, cotangents: Arrays) -> Differentiable:
        """What `pull` computes, a function of `values` and the cotangents, by all of `wrt` and of
        them."""
        ...

    @property
    def backward(self) -> str:
        """The text of what `pull` computes."""
        ...

    @property
    def forward(self) -> str:
        """The text of what `push` computes."""
        ...


@dataclass
class OfOperator:
    """An operator; its derivatives are the operators `adjoint` and `tangent`."""

    op: Op
    values: dict[str, Array]
    wrt: tuple[str, ...]
    run: Run

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def back(self) -> Op:
        """The gradient operator."""
        return adjoint(self.op, self.wrt)

    @property
    def forth(self) -> Op:
        """The tangent operator."""
        return tangent(self.op, self.wrt)

    def __call__(self, values: Arrays) -> dict[str, Array]:
        return self._run(self.op, values, self.op.returns)

    def each(self, points: Iterable[Arrays]) -> Iterator[dict[str, Array]]:
        calls = ([values[p.name] for p in self.op.params] for values in points)
        for found in self.run.each(self.op, calls, self.wrt):
            yield dict(zip(self.op.returns, found, strict=True))

    def pull(self, values: Arrays, cotangents: Arrays) -> dict[str, Array]:
        return self._run(self.back, {**values, **self._seeds(cotangents)}, self.wrt)

    def push(self, values: Arrays, moves: Arrays) -> dict[str, Array]:
        names = [p.name for p in self.forth.params[-len(self.wrt) :]]
        given = {**values, **self(values)}  # of a result it may need the type
        given |= zip(names, (moves[name] for name in self.wrt), strict=True)
        return self._run(self.forth, given, self.op.returns)

    def gradient(self, cotangents: Arrays) -> OfOperator:
        seeds = self._seeds(cotangents)
        given = {**self.values, **seeds}
        values = {p.name: given[p.name] for p in self.back.params}
        wrt = tuple(name for name in (*self.wrt, *seeds) if name in values)
        return OfOperator(self.back, values, wrt, self.run)

    @property
    def backward(self) -> str:
        return self.back.text

    @property
    def forward(self) -> str:
        return self.forth.text

    def _seeds(self, cotangents: Arrays) -> dict[str, Array]:
        names = [p.name for p in self.back.params[-len(self.op.returns) :]]
        return dict(zip(names, (cotangents[r] for r in self.op.returns), strict=True))

    def _run(self, op: Op, values: Arrays, names: Sequence[str]) -> dict[str, Array]:
        found = self.run(op, [values[p.name] for p in op.params])
        return dict(zip(names, found, strict=True))


@dataclass
class OfGraph:
    """A graph of operators, by its inputs and outputs; its derivatives are graphs too."""

    name: str
    inputs: tuple[Input, ...]
    outputs: dict[str, Value]
    values: dict[str, Array]
    wrt: tuple[str, ...]
    run: Run
    gradients: tuple[dict[str, Input], list[Value]] | None = None
    moved: tuple[dict[str, Input], list[Value]] | None = None
    graphs: dict[tuple[Value, ...], Graph] = field(default_factory=dict)

    def __call__(self, values: Arrays) -> dict[str, Array]:
        found = self._run(self._graph(list(self.outputs.values())), values)
        return dict(zip(self.outputs, found, strict=True))

    def each(self, points: Iterable[Arrays]) -> Iterator[dict[str, Array]]:
        graph = self._graph(list(self.outputs.values()))
        calls = ([values[i.name] for i in graph.inputs] for values in points)
        for found in self.run.each(graph, calls, self.wrt):
            yield dict(zip(self.outputs, found, strict=True))

    def pull(self, values: Arrays, cotangents: Arrays) -> dict[str, Array]:
        seeds, gradients = self._pulled()
        given = {seed.name: cotangents[r] for r, seed in seeds.items()}
        found = self._run(self._graph(gradients, seeds), {**values, **given})
        return dict(zip(self.wrt, found, strict=True))

    def push(self, values: Arrays, moves: Arrays) -> dict[str, Array]:
        inputs, moved = self._pushed()
        given = {move.name: moves[name] for name, move in inputs.items()}
        found = self._run(self._graph(moved, inputs), {**values, **given})
        return dict(zip(self.outputs, found, strict=True))

    def gradient(self, cotangents: Arrays) -> OfGraph:
        seeds, gradients = self._pulled()
        given = {seed.name: cotangents[r] for r, seed in seeds.items()}
        outputs = {f"d{name}": g for name, g in zip(self.wrt, gradients, strict=True)}
        inputs = (*self.inputs, *seeds.values())
        values, wrt = {**self.values, **given}, (*self.wrt, *given)
        return OfGraph(f"{self.name}_grad", inputs, outputs, values, wrt, self.run)

    @property
    def backward(self) -> str:
        seeds, gradients = self._pulled()
        return str(self._graph(gradients, seeds))

    @property
    def forward(self) -> str:
        inputs, moved = self._pushed()
        return str(self._graph(moved, inputs))

    def _pulled(self) -> tuple[dict[str, Input], list[Value]]:
        if self.gradients is None:
            seeds = {r: Input(self._fresh(f"d{r}"), v.type) for r, v in self.outputs.items()}
            by = [i for i in self.inputs if i.name in self.wrt]
            found = pulled(zip(self.outputs.values(), seeds.values(), strict=True), by)
            self.gradients = seeds, found
        return self.gradients

    def _pushed(self) -> tuple[dict[str, Input], list[Value]]:
        if self.moved is None:
            by = [i for i in self.inputs if i.name in self.wrt]
            moves = {i.name: Input(self._fresh(f"d{i.name}"), i.type) for i in by}
            self.moved = moves, tangents(list(self.outputs.values()), by, list(moves.values()))
        return self.moved

    def _fresh(self, name: str) -> str:
        taken = {i.name for i in self.inputs}
        while name in taken:
            name = f"{name}_"
        return name

    def _graph(self, outputs: Sequence[Value], more: Mapping[str, Input] | None = None) -> Graph:
        made = self.graphs.get(tuple(outputs))
        if made is None:
            inputs = (*self.inputs, *(more or {}).values())
            made = self.graphs[tuple(outputs)] = graph_of(self.name, inputs, outputs)
        return made

    def _run(self, graph: Graph, values: Arrays) -> Sequence[Array]:
        return self.run(graph, [values[i.name] for i in graph.inputs])


def of_operator(op: Op, arrays: Sequence[Array], wrt: Sequence[str] | None, run: Run) -> OfOperator:
    """An operator at these arguments; `wrt` are names, by default those of all floats."""
    op = settled_on(op, arrays)
    types = {
        p.name: from_numpy(a.dtype, p.type.dtype) for p, a in zip(op.params, arrays, strict=True)
    }
    given = dict(zip(types, arrays, strict=True))
    names = _wanted(op.name, [n for n, t in types.items() if t.is_float], list(types), wrt)
    for name in names:
        refuse_integer(op, name, types[name])
    values = {name: in_float64(a, types[name]) for name, a in given.items()}
    wide = widened(op)
    floats = tuple(
        name
        for name, found in zip(op.returns, run(wide, list(values.values())), strict=True)
        if found.dtype.kind == "f"
    )
    _some(op.name, floats)
    return OfOperator(returning(wide, floats), values, names, run)


def of_function(
    name: str, function: Callable[..., Any], args: Arguments, wrt: Sequence[str] | None, run: Run
) -> OfGraph:
    """A function of values at these arguments; `wrt` are paths ("x", "params.w1", or "params" for
    all below it), by default those of all floats."""
    graph = traced(function, args, name=name)
    types = {i.name: i.type.dtype for i in graph.inputs}
    inside = [
        path
        for path in types
        if wrt is None or any(path == w or path.startswith(f"{w}.") for w in wrt)
    ]
    unknown = [w for w in wrt or () if not any(p == w or p.startswith(f"{w}.") for p in types)]
    floats = [path for path in inside if types[path].is_float]
    names = _wanted(name, floats, list(types), unknown or None)
    inputs, outputs = widened_graph(graph)
    labels = paths(graph.structure, "result")
    results = {label: v for label, v in zip(labels, outputs, strict=True) if v.type.dtype.is_float}
    _some(name, results)
    values = {
        i.name: in_float64(a, i.type.dtype) for i, a in zip(graph.inputs, args.arrays, strict=True)
    }
    return OfGraph(name, inputs, results, values, names, run)


def _wanted(
    name: str, floats: Sequence[str], known: Sequence[str], wrt: Sequence[str] | None
) -> tuple[str, ...]:
    for wanted in wrt or ():
        if wanted not in known:
            raise GradientError(
                f"check_grads of {name} by {wanted}: there is no such argument; expected one of "
                f"{', '.join(known)}"
            )
    names = tuple(floats if wrt is None else wrt)
    if not names:
        raise GradientError(f"check_grads of {name}: no argument is a float, nothing to check")
    return names


def _some(name: str, results: Any) -> None:
    if not results:
        raise GradientError(f"check_grads of {name}: no result is a float, nothing to check")
