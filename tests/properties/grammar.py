"""What random operators are made of: sizes and arrays, all from one generator."""

from __future__ import annotations

import random

import numpy as np
from guard import Array

SIZES = (1, 2, 3, 5, 7, 8, 11, 13, 16, 19)


class Source:
    """Draws operators. Sizes are small and mostly odd, so that factors rarely divide.

    Floats hold small integers, so that sums are exact and any legal order gives the same bits. In
    a third of the cases integers of the whole range stand for them, whose sums wrap around: the
    payload, of which no two elements look alike.
    """

    def __init__(self, rng: random.Random, sizes: tuple[int, ...] = SIZES) -> None:
        self.rng, self.sizes = rng, sizes
        self.np = np.random.default_rng(rng.randrange(1 << 30))
        self.payload = rng.random() < 1 / 3

    def size(self, low: int = 1) -> int:
        return self.rng.choice([n for n in self.sizes if n >= low])

    def array(self, *shape: int, dtype: str = "float32") -> Array:
        if self.payload:
            info = np.iinfo(np.int64)
            return self.np.integers(info.min, info.max, shape, endpoint=True)
        return self.np.integers(-4, 5, shape).astype(dtype)

    def index(self, extent: int, *shape: int) -> Array:
        kind = self.rng.choice(["int32", "int64"])
        return self.np.integers(0, extent, shape).astype(kind)

    def dtype(self) -> str:
        return self.rng.choice(["float32", "float32", "float64", "int32", "int16", "uint8"])
