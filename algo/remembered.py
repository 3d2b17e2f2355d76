"""What is remembered of objects that never change, by identity: no comparison, no hash of parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class _Same:
    """An object as a key that is equal to itself only."""

    __slots__ = ("it",)

    def __init__(self, it: object) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.it is self.it


class Remembered(Generic[K, T]):
    """A function of an object that gives the same again for the last `count` objects."""

    def __init__(self, function: Callable[[K], T], count: int) -> None:
        def held(key: _Same) -> T:
            return function(key.it)  # type: ignore[arg-type]

        self._held = lru_cache(maxsize=count)(held)
        update_wrapper(self, function)

    def __call__(self, it: K) -> T:
        return self._held(_Same(it))

    def cache_clear(self) -> None:
        """Forgets all values."""
        self._held.cache_clear()


def remembered(count: int) -> Callable[[Callable[[K], T]], Remembered[K, T]]:
    """Remembers what a function of one object gave for the last `count` of them."""
    return lambda function: Remembered(function, count)
