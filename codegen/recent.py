"""A bounded mapping that forgets what was used longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from ..algo.forked import TABLES

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The `most` entries used last. Threads may share it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._found: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: K) -> V | None:
        """What is kept under `key`, which is now the one used last."""
        with TABLES:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def __setitem__(self, key: K, value: V) -> None:
        gone = []  # what dies does so when the lock is free again
        with TABLES:
            self._found[key] = value
            self._found.move_to_end(key)
            if len(self._found) > self.most:
                gone.append(self._found.popitem(last=False))
        del gone
