"""Methods that a class gets from layers above its own, whichever of the two is imported first.

So the top may say what a schedule does when it is called without importing schedules, which most
calls of operators do not need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

C = TypeVar("C", bound=type)
Methods = Mapping[str, Callable[..., Any]]
_classes: dict[str, type] = {}
_methods: dict[str, Methods] = {}


def open_upward(owner: C) -> C:
    """A class decorator: the class gets the methods that are given for its name."""
    _classes[owner.__name__] = owner
    _bind(owner.__name__)
    return owner


def give(owner: str, methods: Methods) -> None:
    """The class of this name gets these methods, now or when there is one."""
    _methods[owner] = methods
    _bind(owner)


def _bind(name: str) -> None:
    if name in _classes:
        for method, function in _methods.get(name, {}).items():
            function.__qualname__ = method  # as Python's own errors about arguments call it
            setattr(_classes[name], method, function)
