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
    """The result of a computation. What a computation raises it raises where it was yielded."""
    begun = [steps]
    result: Any = None
    error: Exception | None = None
    while begun:
        try:
            last = begun[-1]
            begun.append(last.send(result) if error is None else last.throw(error))
            result = error = None
        except StopIteration as end:
            begun.pop()
            result, error = end.value, None
        except Exception as raised:
            begun.pop()
            error = raised
    if error is not None:
        raise error
    return result
