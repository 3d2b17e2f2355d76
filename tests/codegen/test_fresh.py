"""Large results start where a cache line does."""

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
