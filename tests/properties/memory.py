"""Where the arrays of a random run lie: strided, reversed, repeated, or beside protected pages."""

from __future__ import annotations

import random

import numpy as np
from guard import Array, Fenced

POISON = 0xAB


def dense(a: Array, rng: random.Random) -> Array:
    return a


def spread(a: Array, rng: random.Random) -> Array:
    """Every second or third element of a larger array along one axis."""
    return _along(a, rng, rng.choice([2, 3]))


def backwards(a: Array, rng: random.Random) -> Array:
    """An axis with a negative stride."""
    return _along(a, rng, -1)


def fortran(a: Array, rng: random.Random) -> Array:
    return np.asfortranarray(a)


def repeated(a: Array, rng: random.Random) -> Array:
    """An axis with stride 0: other values, the same everywhere along it."""
    if a.ndim == 0 or 0 in a.shape:
        return a
    axis = rng.randrange(a.ndim)
    return np.broadcast_to(np.take(a, [0], axis), a.shape)


def fenced(a: Array, rng: random.Random) -> Array:
    """Dense, its first or last byte beside a page without access."""
    return Fenced(np.ascontiguousarray(a), at_end=rng.random() < 0.6).array


PLACES = {f.__name__: f for f in (dense, spread, backwards, fortran, repeated, fenced)}


def _along(a: Array, rng: random.Random, step: int) -> Array:
    if a.ndim == 0:
        return a
    axis = rng.randrange(a.ndim)
    shape = list(a.shape)
    shape[axis] *= abs(step)
    whole = np.zeros(shape, a.dtype)
    view = whole[tuple(slice(None, None, step if n == axis else None) for n in range(a.ndim))]
    view[...] = a
    return view


def arranged(arrays: list[Array], rng: random.Random) -> tuple[list[Array], set[str]]:
    """The inputs of a run, and how some of them lie; all in the one way for half of the runs."""
    ways = rng.choices(list(PLACES), k=len(arrays))
    if rng.random() < 0.5:
        ways = [rng.choice(["dense", "fenced"])] * len(arrays)
    return [PLACES[way](a, rng) for way, a in zip(ways, arrays, strict=True)], set(ways)


def poisoned(like: Array, rng: random.Random) -> Array:
    """An output full of nonsense, in half of the runs beside a page without access."""
    out = np.empty_like(like, order="C")
    out.reshape(-1).view(np.uint8).fill(POISON)
    return fenced(out, rng) if rng.random() < 0.5 else out
