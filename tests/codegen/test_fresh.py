"""Large results start where a cache line does, and far in a page from what they are computed of."""

from __future__ import annotations

import diptych as dt
import numpy as np


def test_large_results_are_aligned() -> None:
    op = dt.op("y[i,j] = x[j,i]")
    for shape in ((512, 1024), (513, 1025), (3, 5)):
        x = np.random.default_rng(0).random(shape, np.float32)
        for _ in range(2):  # the second call finds the kernel of the first
            y = op(x)
            np.testing.assert_array_equal(y, x.T)
            assert y.flags.c_contiguous and y.flags.writeable
            assert y.nbytes < 1 << 20 or y.ctypes.data % 64 == 0


def _start(array: np.ndarray) -> int:
    return array.ctypes.data % 4096


def test_large_results_start_away_from_their_arguments() -> None:
    """In a page, counted around its end: the last 12 bits of addresses that are used together."""
    op = dt.op("""
        y[i] = x[i] + 1
        z[i] = x[i] * 2
    """, returns=("y", "z"))  # fmt: skip
    memory = np.zeros(2 << 20, np.uint8)
    for offset in (0, 16, 64, 1040, 2048, 4032):
        first = (offset - memory.ctypes.data) % 4096
        x = memory[first : first + (1 << 20)].view(np.float32)
        found = [x, *op(x)]
        np.testing.assert_array_equal(found[1], x + 1)
        for n, one in enumerate(found):
            for other in found[:n]:
                away = (_start(one) - _start(other)) % 4096
                assert min(away, 4096 - away) >= 768
