"""Immutable, slotted, interned nodes: two nodes with the same fields are the same object.

So equality is `is`, a node is a dictionary key at the price of its identity, and sharing costs
nothing. The intern table holds nodes weakly. Nodes pickle as their class and fields and are
interned again where they arrive.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from .forked import TABLES

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type[T]) -> type[T]:
    """Makes a class of annotated fields a node class. Defaults are class attributes.

    A class may define `_check(self)`; it runs once when a node is first made. Fields are keyed by
    type as well as value, so that 1, 1.0 and True, or 0.0 and -0.0, are different nodes.
    """
    names: tuple[str, ...] = tuple(inspect.get_annotations(cls))
    defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
    body = {k: v for k, v in cls.__dict__.items() if k not in (*names, "__dict__", "__weakref__")}
    body["__slots__"] = (*names, "__weakref__")
    body["__match_args__"] = names
    body["_fields"] = names
    check: Callable[[Any], None] | None = body.get("_check")
    table: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
    count = len(names)
    optional = [defaults[name] for name in names if name in defaults]
    needed = count - len(optional) if names[count - len(optional) :] == tuple(defaults) else count
    tail = tuple(optional)

    def __new__(klass: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and needed <= len(args) < count:
            args += tail[len(args) - needed :]
        elif kwargs or len(args) != count:
            args = _complete(cls.__name__, names, defaults, args, kwargs)
        key = tuple([v if v.__class__ in _keys_of_themselves else _key(v) for v in args])
        found = table.get(key)  # at once: most nodes are there
        if found is not None:
            return found
        fresh = object.__new__(klass)
        for name, value in zip(names, args, strict=True):
            object.__setattr__(fresh, name, value)
        if check is not None:
            check(fresh)
        with TABLES:
            return table.setdefault(key, fresh)

    def __reduce__(self: Any) -> Any:
        return type(self), tuple(getattr(self, name) for name in names)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        raise AttributeError(f"{cls.__name__} is immutable")

    def __repr__(self: Any) -> str:
        return f"{cls.__name__}({', '.join(repr(getattr(self, name)) for name in names)})"

    body["__new__"] = __new__
    body["__reduce__"] = __reduce__
    body["__setattr__"] = __setattr__
    body["__copy__"] = lambda self: self
    body["__deepcopy__"] = lambda self, memo: self
    body.setdefault("__repr__", __repr__)
    make: Any = type(cls)
    made: type[T] = make(cls.__name__, cls.__bases__, body)
    _keys_of_themselves.add(made)
    return made


_keys_of_themselves: set[type] = {str, type(None)}  # and all node classes


def _key(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple([v if v.__class__ in _keys_of_themselves else _key(v) for v in value])
    if isinstance(value, float):
        return (float, value.hex())
    if isinstance(value, (int, bool)):
        return (type(value), value)
    return value


def _complete(
    owner: str,
    names: tuple[str, ...],
    defaults: dict[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, ...]:
    given = dict(zip(names, args, strict=False)) | kwargs
    values = {**defaults, **given}
    missing = [name for name in names if name not in values]
    unknown = [name for name in kwargs if name not in names]
    if missing or unknown or len(args) > len(names):
        raise TypeError(f"{owner}: missing {missing}, unknown {unknown}, {len(args)} positional")
    return tuple(values[name] for name in names)
