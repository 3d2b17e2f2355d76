"""Of which loop a loop is a copy: distribution calls the copies of `C.ii` `C.init.ii` and so on."""

from __future__ import annotations

from functools import lru_cache

PARTS = ("init", "update", "final", "load", "store", "acc", "rf")
"""Stages of one accumulation: copies of a loop under these are copies of one loop."""


@lru_cache(maxsize=1 << 14)
def base(name: str) -> str:
    """The loop of which a distributed copy was made: `C.init.ii` is a copy of `C.ii`."""
    *stage, index = name.split(".")
    while len(stage) > 1 and stage[-1] in PARTS:
        stage = stage[:-1]
    return ".".join([*stage, index])
