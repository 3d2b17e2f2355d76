"""What a program is: a graph of operator applications, interned, so equal work is one node.

Common subexpressions are therefore the same object as soon as they are built. The graph says
nothing of devices, order, fusion or memory. `ids` names nodes for people and schedules:
"dense[0]" is the first application of `dense` in the order of tracing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..dtypes import DType
from ..errors import GraphError
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
    """The base of graph values: an array that will exist when the program runs.

    Arithmetic applies an elementwise operator; the operands have one shape, or one is a scalar.
    Equality is identity, so that values are dictionary keys; `elementwise.compare` compares.
    """

    __slots__ = ()
    __array_ufunc__ = None  # so that `array + value` comes here, and not to a NumPy loop

    if TYPE_CHECKING:

        @property
        def type(self) -> ArrayType: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.type.shape)

    def __add__(self, other: Any) -> Value:
        return _elementwise("add", self, other)

    def __radd__(self, other: Any) -> Value:
        return _elementwise("add", other, self)

    def __sub__(self, other: Any) -> Value:
        return _elementwise("sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return _elementwise("sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return _elementwise("mul", self, other)

    def __rmul__(self, other: Any) -> Value:
        return _elementwise("mul", other, self)

    def __truediv__(self, other: Any) -> Value:
        return _elementwise("div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return _elementwise("div", other, self)

    def __neg__(self) -> Value:
        return _elementwise("neg", self)

    def __operation__(self, operation: str, *operands: Any) -> Value:
        """What `exp(value)` and the like call: `operation` of the table, element by element."""
        return _elementwise(operation, *operands)

    def __bool__(self) -> bool:
        raise GraphError(
            f"a traced value of type {self.type} was used as a Python condition, but it is known "
            "only when the program runs; use where(condition, a, b) inside an operator, or decide "
            "by a Python argument, which is static"
        )

    def __iter__(self) -> Any:
        raise GraphError(
            f"a traced value of type {self.type} cannot be iterated over in Python; write an "
            "operator over its indices"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise GraphError(
            f"a traced value of type {self.type} has no elements yet, so NumPy cannot take it; "
            "write an operator, or return the value from the program"
        )

    def __float__(self) -> float:
        raise GraphError(
            f"a traced value of type {self.type} was converted to a Python number, but it is known "
            "only when the program runs; keep it as a value, or return it from the program"
        )

    __int__ = __index__ = __float__


def _elementwise(operation: str, *operands: Any) -> Value:
    from .elementwise import elementwise  # below us: it applies operators, which makes values

    return elementwise(operation, *operands)


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

    def __repr__(self) -> str:
        return f"<literal {self.type}>"


@node
class Apply:
    """An operator applied to values, one an `op.params` entry. Not a value; its results are."""

    op: Op
    args: tuple[Value, ...]

    def __repr__(self) -> str:  # not the arguments: a graph shares them, its text would not
        return f"<{self.op.name} of {len(self.args)} values>"


@node
class Result(Value):
    """Output `position` of an application (in the order of `op.returns`)."""

    apply: Apply
    position: int
    type: ArrayType

    def __repr__(self) -> str:
        return f"<{self.apply.op.name}.{self.apply.op.returns[self.position]}: {self.type}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Graph:
    """A program at given argument types.

    `nodes` are in tracing order, which is a topological order. `outputs` are the flat results;
    `structure` says how to put them back into the tuples, lists and dicts of the user.
    `notes` may hold "locations" {Apply: Loc}, "regions" {Apply: "backward"} (absent: forward) and
    "dims" {input name: the declared size name of each dimension, or None}.
    """

    name: str
    inputs: tuple[Input, ...]
    nodes: tuple[Apply, ...]
    outputs: tuple[Value, ...]
    ids: Mapping[Apply, str]
    structure: Any = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<graph {self.name}: {len(self.inputs)} inputs, {len(self.nodes)} nodes>"

    def __str__(self) -> str:
        from .print import print_graph

        return print_graph(self)

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"
