"""Sums of products, without forming the product of every instance."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def contract(a: Array, b: Array, shape: tuple[int, ...], own: int) -> Array | None:
    """The sum of `a * b` over the first `own` axes of a box of extents `shape`.

    `a` and `b` broadcast to the box; the result has its other axes, of extent 1 where neither
    factor varies. None if an axis to be summed is in neither factor, so that instances repeat.
    """
    rank = len(shape)
    a, b = (x.reshape((1,) * (rank - x.ndim) + x.shape) for x in (a, b))
    axes = range(rank)
    varies = [n for n in axes if a.shape[n] != 1 or b.shape[n] != 1]
    if any(shape[n] != 1 and n not in varies for n in range(own)):
        return None
    operands: list[Any] = []
    for x in (a, b):
        kept = [n for n in axes if x.shape[n] != 1]
        operands += [x.reshape([x.shape[n] for n in kept]), kept]
    out = [n for n in varies if n >= own]
    with np.errstate(all="ignore"):
        found = np.einsum(*operands, out, optimize=True)
    full = [b.shape[n] if a.shape[n] == 1 else a.shape[n] for n in range(own, rank)]
    return np.asarray(found).reshape(full)
