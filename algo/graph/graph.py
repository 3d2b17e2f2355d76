"""What a program is: a graph of operator applications, interned, so equal work is one node.

Common subexpressions are therefore the same object as soon as they are built. The graph says
nothing of devices, order, fusion or memory. `ids` names nodes for people and schedules:
"dense[0]" is the first application of `dense` in the order of tracing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..dtypes import DType
from ..node import node
from ..tensor_expr.op import Op


@node
class ArrayType:
    """Shape and element type of a value."""

    shape: tuple[int, ...]
    dtype: DType

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


class Value:
    """The base of graph values: an array that will exist when the program runs."""

    __slots__ = ()


@node
class Input(Value):
    """An argument of the program, named by its path: "x", "params.w1"."""

    name: str
    type: ArrayType


@node
class Literal(Value):
    """A constant array: dtype and shape in `type`, contents as bytes."""

    data: bytes
    type: ArrayType


@node
class Apply:
    """An operator applied to values, one an `op.params` entry. Not a value; its results are."""

    op: Op
    args: tuple[Value, ...]


@node
class Result(Value):
    """Output `position` of an application (in the order of `op.returns`)."""

    apply: Apply
    position: int
    type: ArrayType


@dataclass(frozen=True, slots=True)
class Graph:
    """A program at given argument types.

    `nodes` are in tracing order, which is a topological order. `outputs` are the flat results;
    `structure` says how to put them back into the tuples, lists and dicts of the user.
    """

    name: str
    inputs: tuple[Input, ...]
    nodes: tuple[Apply, ...]
    outputs: tuple[Value, ...]
    ids: Mapping[Apply, str]
    structure: Any = None
    notes: Mapping[str, Any] = field(default_factory=dict)
