"""From a Python function to a graph: the function runs once, on values in place of arrays.

Arrays (and NumPy scalars) among the arguments become inputs of the graph, named by their path:
"x", "params.w1". Everything else, Python numbers included, is static: the function sees it as it
is, may branch and loop on it, and another value means another graph. Functions are first class;
Python loops unroll.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..dtypes import TensorType, from_numpy
from ..errors import DTypeError, GradientError, GraphError, ShapeError, counted
from ..location import located
from .build import graph_of, literal, recording
from .graph import ArrayType, Graph, Input, Value
from .passes import simplify
from .tree import LEAF, Structure, flatten, leaf_count, paths, unflatten


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call of a program, taken apart.

    `arrays` are its array leaves and `names` their input names; `key` is equal for two calls that
    have the same graph.
    """

    names: tuple[str, ...]
    arrays: tuple[Any, ...]
    types: tuple[ArrayType, ...]
    key: Hashable
    structure: Structure
    leaves: tuple[Any, ...]

    def rebuild(self, values: Sequence[Any]) -> dict[str, Any]:
        """The function's arguments by name, with `values` in place of the arrays."""
        fresh = iter(values)
        leaves = [next(fresh) if _type_of(leaf) is not None else leaf for leaf in self.leaves]
        found: dict[str, Any] = unflatten(self.structure, leaves)
        return found


class Convention:
    """How a function is called: its parameters, and a quick way for plain positional calls."""

    def __init__(self, function: Callable[..., Any], name: str = "") -> None:
        self.name = name or str(getattr(function, "__name__", "program"))
        try:
            self.signature = inspect.signature(function)
        except ValueError:
            raise GraphError(
                f"{self.name} does not say which arguments it takes, as some functions that are "
                f"built in; wrap it: lambda x: {self.name}(x)"
            ) from None
        parameters = self.signature.parameters.values()
        plain = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        self._plain = tuple(self.signature.parameters) if plain else None

    def _positional(self) -> int:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return sum(parameter.kind in kinds for parameter in self.signature.parameters.values())

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Every parameter's argument by name, defaults included, in the order of the parameters."""
        if not kwargs and self._plain is not None and len(args) == len(self._plain):
            return dict(zip(self._plain, args, strict=True))
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            many = "too many" in str(error)
            told = f": {self._positional()} expected, {len(args)} given" if many else ""
            raise GraphError(f"{self.name}{self.signature}: {error}{told}") from None
        bound.apply_defaults()
        return dict(bound.arguments)


def arguments(
    convention: Convention, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> Arguments:
    """Takes the arguments of a call apart. Leaves are arrays, or `ArrayType`s standing for them."""
    leaves, structure = flatten(convention.bind(args, kwargs or {}))
    names, arrays, types = [], [], []
    static: list[Hashable] = []
    for name, leaf in zip(_names(structure), leaves, strict=True):
        found = _type_of(leaf)
        if found is None:
            static.append((type(leaf), leaf))
        else:
            names.append(name)
            arrays.append(leaf)
            types.append(found)
            static.append(found)
    key = (structure, tuple(static))
    try:
        hash(key)
    except TypeError:
        bad = next(
            f"{name} is a {type(leaf).__name__}"
            for name, leaf in zip(_names(structure), leaves, strict=True)
            if _type_of(leaf) is None and not isinstance(leaf, Hashable)
        )
        raise GraphError(
            f"argument {bad}; expected arrays in dicts, lists and tuples, or static values that "
            "can be hashed"
        ) from None
    return Arguments(tuple(names), tuple(arrays), tuple(types), key, structure, tuple(leaves))


def trace(
    function: Callable[..., Any],
    args: Arguments | Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
) -> Graph:
    """The graph of `function` at the types of these arguments: dead code removed, outputs in the
    order of the leaves of what it returned.

    Parameters annotated like an operator's (`f32["B", 784]`) are checked, and the names declare
    sizes that schedules may speak of.
    """
    if not isinstance(args, Arguments):
        args = arguments(Convention(function), args, kwargs)
    given = args
    title = name or str(getattr(function, "__name__", "program"))
    dims = _declared(title, function, given)
    inputs = [Input(n, t) for n, t in zip(given.names, given.types, strict=True)]
    with (
        recording(title, inputs) as record,
        located(GraphError, ShapeError, DTypeError, GradientError),
    ):
        returned = _call(function, given.rebuild(inputs))
    leaves, structure = flatten(returned)
    labels = paths(structure, "result")
    outputs = [_output(title, path, leaf) for path, leaf in zip(labels, leaves, strict=True)]
    if not outputs:
        raise GraphError(f"program {title} returns no value; return what it computes")
    return simplify(graph_of(title, inputs, outputs, record, structure, dims))


def _call(function: Callable[..., Any], by_name: dict[str, Any]) -> Any:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        value = by_name[parameter.name]
        match parameter.kind:
            case parameter.VAR_POSITIONAL:
                positional.extend(value)
            case parameter.VAR_KEYWORD:
                named.update(value)
            case parameter.KEYWORD_ONLY:
                # What the function has by itself it may refuse to be given.
                if value is not parameter.default:
                    named[parameter.name] = value
            case _:
                positional.append(value)
    return function(*positional, **named)


def _type_of(leaf: Any) -> ArrayType | None:
    if isinstance(leaf, ArrayType):
        return leaf
    if isinstance(leaf, (np.ndarray, np.generic)):
        return ArrayType(tuple(leaf.shape), from_numpy(leaf.dtype))
    if isinstance(leaf, Value):
        return leaf.type
    return None


@lru_cache(maxsize=256)
def _names(structure: Structure) -> tuple[str, ...]:
    """Input names: the parameter's, then the path inside it."""
    return tuple(
        name
        for key, part in zip(structure.keys, structure.parts, strict=True)
        for name in paths(part, key)
    )


def _output(title: str, path: str, leaf: Any) -> Value:
    if isinstance(leaf, Value):
        return leaf
    if isinstance(leaf, (np.ndarray, np.generic, bool, int, float)):
        return literal(leaf)
    raise GraphError(
        f"program {title} returns a {type(leaf).__name__} at {path}; expected values, arrays or "
        "numbers in dicts, lists and tuples"
    )


def _declared(
    title: str, function: Callable[..., Any], given: Arguments
) -> dict[str, tuple[str | None, ...]]:
    """The size names that annotations declare, by input; raises where the arguments differ."""
    try:
        annotations = inspect.get_annotations(function, eval_str=True)
    except Exception:  # an annotation that only a type checker can read declares nothing here
        annotations = {}
    types = dict(zip(given.names, given.types, strict=True))
    bound: dict[str, tuple[int, str]] = {}
    dims: dict[str, tuple[str | None, ...]] = {}
    for key, part in zip(given.structure.keys, given.structure.parts, strict=True):
        declared = annotations.get(key)
        if not isinstance(declared, TensorType) or part is not LEAF or key not in types:
            continue
        found = types[key]
        if declared.dtype is not None and declared.dtype is not found.dtype:
            raise DTypeError(f"program {title}: {key} is declared {declared.dtype}, got {found}")
        if declared.dims is None:
            continue
        if len(declared.dims) != len(found.shape):
            raise ShapeError(
                f"program {title}: {key} is declared with "
                f"{counted(len(declared.dims), 'dimension')}, got {found}"
            )
        for axis, (dim, extent) in enumerate(zip(declared.dims, found.shape, strict=True)):
            want, where = (dim, "declared") if isinstance(dim, int) else bound.setdefault(
                dim, (extent, f"from {key} dim {axis}")
            )  # fmt: skip
            if want != extent:
                raise ShapeError(
                    f"program {title}: size {dim}: {want} {where}, {extent} from {key} dim {axis}"
                )
        dims[key] = tuple(dim if isinstance(dim, str) else None for dim in declared.dims)
    return dims


def leaf_names(graph: Graph) -> list[str]:
    """A name for each output, by its path in what the program returned."""
    if isinstance(graph.structure, Structure) and leaf_count(graph.structure) == len(graph.outputs):
        return paths(graph.structure, "result")
    return [f"result.{position}" for position in range(len(graph.outputs))]
