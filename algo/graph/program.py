"""Programs as users hold them: a Python function that is traced at the types it is called with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from ..upward import open_upward
from .graph import Graph, Value
from .interpret import interpret_tree
from .trace import Arguments, Convention, arguments, trace
from .tree import flatten


@open_upward
class Program:
    """A function from arrays to arrays (in dicts, lists, tuples) as a graph of operators.

    A graph follows from the types of the arrays and from the values of all other arguments; each
    is traced once. Called on traced values a program is a plain function, so programs nest.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", "program"))
        self.convention = Convention(function, self.name)
        self.graphs: dict[Hashable, Graph] = {}
        self.__doc__ = function.__doc__
        self.__module__ = getattr(function, "__module__", __name__)
        self.__name__ = self.name
        self.__wrapped__ = function

    if TYPE_CHECKING:
        # What reaches upward is bound by the root; here stand the types only.
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
        def schedule(self) -> Any: ...
        def with_schedule(self, schedule: Any) -> Any: ...
        def plan(self, *args: Any, **kwargs: Any) -> Any: ...

    @property
    def traced(self) -> tuple[Graph, ...]:
        """The graphs traced so far, the last one last."""
        return tuple(self.graphs.values())

    def arguments(self, *args: Any, **kwargs: Any) -> Arguments:
        """The arguments of a call, taken apart."""
        return arguments(self.convention, args, kwargs)

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph for these arguments, which are arrays or `ArrayType`s in their place."""
        return self.graph_for(self.arguments(*args, **kwargs))

    def graph_for(self, given: Arguments) -> Graph:
        """The graph for arguments that are taken apart already."""
        found = self.graphs.get(given.key)
        if found is None:
            found = self.graphs[given.key] = trace(self.function, given, name=self.name)
        return found

    def interpret(self, *args: Any, **kwargs: Any) -> Any:
        """What the program means: run node by node by the operators' interpreter (NumPy)."""
        given = self.arguments(*args, **kwargs)
        return interpret_tree(self.graph_for(given), given.arrays)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By name where the program stands in place of its function, as a decorator puts it."""
        found: Any = sys.modules.get(self.__module__)
        name = str(getattr(self.function, "__qualname__", ""))
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (Program, (self.function, self.name))

    def __repr__(self) -> str:
        return f"<program {self.name}{self.convention.signature}>"


def has_values(args: Any, kwargs: Any) -> bool:
    """Does any argument hold a traced value?"""
    leaves, _ = flatten((args, kwargs))
    return any(isinstance(leaf, Value) for leaf in leaves)
