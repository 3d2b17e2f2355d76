"""What a program is: a graph of operator applications, interned, so equal work is one node.

Common subexpressions are therefore the same object as soon as they are built. The graph says
nothing of devices, order, fusion or memory. `ids` names nodes for people and schedules:
"dense[0]" is the first application of `dense` in the order of tracing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..dtypes import DType
from ..errors import GraphError
from ..node import node
from ..tensor_expr.op import Op
from ..tensor_expr.operations import numpy_call, of_numpy


@node
class ArrayType:
    """Shape and element type of a value."""

    shape: tuple[int, ...]
    dtype: DType

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def _elementwise(operation: Any, *operands: Any) -> Value:
    from .elementwise import elementwise  # below us: it applies operators, which makes values

    return elementwise(operation, *operands)


Method = Callable[["Value", Any], "Value"]


def _binary(operation: str) -> tuple[Method, Method]:
    """The methods that apply an operation to a value and another operand, on its right or left."""
    return (
        lambda self, other: _elementwise(operation, self, other),
        lambda self, other: _elementwise(operation, other, self),
    )


class NoAttribute(GraphError, AttributeError):
    """An attribute that values do not have; also what `hasattr` looks for."""


class Value:
    """The base of graph values: an array that will exist when the program runs.

    Python's operators, an order (`a < b`) and NumPy's elementwise functions apply an elementwise
    operator; the operands have one shape, or one is a scalar. Equality is identity, so that values
    are dictionary keys; `elementwise.compare` compares.
    """

    __slots__ = ()

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

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("sub")
    __mul__, __rmul__ = _binary("mul")
    __truediv__, __rtruediv__ = _binary("div")
    __floordiv__, __rfloordiv__ = _binary("floordiv")
    __mod__, __rmod__ = _binary("mod")
    __pow__, __rpow__ = _binary("pow")
    __and__, __rand__ = _binary("and")
    __or__, __ror__ = _binary("or")
    __lt__, __gt__ = _binary("lt")[0], _binary("gt")[0]
    __le__, __ge__ = _binary("le")[0], _binary("ge")[0]

    def __neg__(self) -> Value:
        return _elementwise("neg", self)

    def __abs__(self) -> Value:
        return _elementwise("abs", self)

    def __invert__(self) -> Value:
        return _elementwise("not", self)

    def __matmul__(self, other: Any) -> Value:
        raise GraphError(
            f"a traced value of type {self.type} knows no matrix product of its own; write it as "
            'an operator, such as dt.op("C[i,j] = sum(A[i,k] * B[k,j])")'
        )

    __rmatmul__ = __matmul__

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Value:
        """What NumPy's functions, and `array + value`, do."""
        operation = of_numpy(ufunc, method, options)
        if operation is None:
            raise GraphError(
                f"{numpy_call(ufunc, method, options)} cannot take a traced value of type "
                f"{self.type}; write an operator"
            )
        return _elementwise(operation, *operands)

    def __len__(self) -> int:
        if not self.type.shape:
            raise GraphError(f"a traced value of type {self.type} has no dimension, so no length")
        return self.type.shape[0]

    def __getitem__(self, position: Any) -> Value:
        raise GraphError(
            f"a traced value of type {self.type} cannot be indexed in a program; write an operator "
            'that reads the elements, such as dt.op("y[j] = x[0,j]")'
        )

    def __getattr__(self, name: str) -> Any:
        raise NoAttribute(
            f"a traced value of type {self.type} has no attribute {name}, only shape, dtype and "
            'ndim; write an operator, such as dt.op("y[j,i] = x[i,j]")'
        )

    def __operation__(self, operation: Any, *operands: Any) -> Value:
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
