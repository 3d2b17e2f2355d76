"""Attributes: values of expressions that are made of those of their parts, and remembered.

Every question of this kind is answered by one walk over the parts that are not known yet, with a
stack of its own. So it needs neither depth, nor that anything is still remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from .expr import Expr, children, walk

T = TypeVar("T")

LIMIT = 1 << 16
"""Values that an attribute remembers before it begins anew."""


class Attribute(Generic[T]):
    """A function of expressions, made by a rule: (expression, values of its parts) -> value."""

    def __init__(self, rule: Callable[[Expr, tuple[T, ...]], T]) -> None:
        self._rule = rule
        self._known: dict[Expr, T] = {}
        self.__doc__ = rule.__doc__

    def __call__(self, expr: Expr) -> T:
        known = self._known
        if expr not in known:
            if len(known) > LIMIT:
                known = self._known = {}  # a new one: other threads may still be using the old
            for item in walk(expr, known):
                known[item] = self._rule(item, tuple(known[part] for part in children(item)))
        return known[expr]

    def cache_clear(self) -> None:
        """Forgets all values."""
        self._known = {}


def attribute(rule: Callable[[Expr, tuple[T, ...]], T]) -> Attribute[T]:
    """Makes an attribute of a rule, which no longer calls itself."""
    return Attribute(rule)
