"""What stays whole when another thread forks the process: a lock, and properties that need none.

A child has one thread only. A lock that another thread of its parent held would be held for ever,
so no child is born while one of these is held.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


def fork_lock() -> threading.RLock:
    """A lock for modules, not for objects, since it stays registered to the end.

    A fork takes the lock made last first, so what is locked within another must be made before it.
    One thread may take it again: signal handlers and destructors run wherever they like.
    """
    made = threading.RLock()
    held_at_forks(made.acquire, made.release)
    return made


def held_at_forks(acquire: Callable[[], Any], release: Callable[[], Any]) -> None:
    """The same for a lock of others: no child is born while another thread holds it."""
    os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release)


TABLES = fork_lock()
"""For a few steps on a table, within which no other lock is taken."""


class cached_property(Generic[T]):
    """As in `functools` from Python 3.12 on: before, one lock of a class was held meanwhile."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self.name, self.compute(instance))
