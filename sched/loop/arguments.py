"""Arguments of primitives: a class declares the types of its fields, and what users write fits.

A traced index stands for its name, any integer type for an integer, a list for a tuple and a
dictionary for the tuple of its items. `Annotated` adds a `Rule` to a type.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.terms import Term
from .text import short


@dataclass(frozen=True)
class Rule:
    """What messages call the values of a type, and which of the type's values they are."""

    what: str
    holds: Callable[[Any], bool] = lambda value: True


NewName = Annotated[str, Rule("identifier", str.isidentifier)]
"""The last component of the name of a loop that a primitive makes."""


class Misfit(Exception):
    """A value that is not of the declared type."""


def fit(primitive: str, kind: type, argument: str, value: Any) -> Any:
    """The value of a primitive's argument as its class `kind` declares it, or `ScheduleError`."""
    declared = signature(kind)[argument]
    try:
        return _fitted(value, declared)
    except Misfit:
        raise ScheduleError(
            f"{primitive}: argument {argument}: expected {_described(declared)}, "
            f"got {short(repr(value))}"
        ) from None


@cache
def signature(kind: type) -> dict[str, Any]:
    """The declared types of a dataclass's fields."""
    hints = get_type_hints(kind, include_extras=True)
    return {f.name: hints[f.name] for f in fields(kind)}


def pairs(written: Any, named: Mapping[str, int]) -> Any:
    """The items of a dictionary and of keywords; what is no dictionary stays, to be refused."""
    if written is None:
        return tuple(named.items())
    return (*written.items(), *named.items()) if isinstance(written, Mapping) else written


def _fitted(value: Any, kind: Any) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        found = _fitted(value, args[0])
        if not args[1].holds(found):
            raise Misfit
        return found
    if origin in (Union, UnionType):
        return None if value is None else _fitted(value, _some(args))
    if origin is tuple:
        items = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(items, (list, tuple)):
            raise Misfit
        kinds = [args[0]] * len(items) if args[-1] is Ellipsis else args
        if len(kinds) != len(items):
            raise Misfit
        return tuple(map(_fitted, items, kinds))
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and not isinstance(value, bool) and hasattr(value, "__index__"):
        try:
            return int(operator.index(value))
        except TypeError:  # an array of several
            raise Misfit from None
    if kind is str and isinstance(value, (str, Term)):
        return str(value)
    raise Misfit


def _described(kind: Any) -> str:
    """A type as messages say it: `(name, integer)`, `(name, ...) or None`."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        what: str = args[1].what
        return what
    if origin in (Union, UnionType):
        return f"{_described(_some(args))} or None"
    if origin is tuple:
        return f"({', '.join('...' if a is Ellipsis else _described(a) for a in args)})"
    return {str: "name", int: "integer", bool: "True or False"}[kind]


def _some(args: tuple[Any, ...]) -> Any:
    """T of `T | None`."""
    return next(arg for arg in args if arg is not NoneType)
