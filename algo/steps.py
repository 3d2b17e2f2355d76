"""Recursion on a stack of its own, so that depth does not matter.

A recursive function is written as a generator: where it would call itself it yields the call, and
gets its result.

    def weight(tree):
        return 1 if tree.leaf else (yield weight(tree.left)) + (yield weight(tree.right))

    finish(weight(tree))
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

Steps = Generator["Steps", Any, Any]
"""A computation that yields the computations whose results it needs, one at a time."""


def finish(steps: Steps) -> Any:
    """The result of a computation."""
    begun = [steps]
    result: Any = None
    while begun:
        try:
            begun.append(begun[-1].send(result))
            result = None
        except StopIteration as end:
            begun.pop()
            result = end.value
    return result
