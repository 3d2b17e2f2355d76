"""Operators in a program take their values by name too, whether they were called before or not."""

from __future__ import annotations

import diptych as dt
import numpy as np


def test_values_by_name_reach_an_operator_that_was_never_called() -> None:
    scaled = dt.op("y[i] = x[i] * w[i] + 1", name="scaled")

    @dt.program
    def f(a, b):  # type: ignore[no-untyped-def]
        return scaled(w=b, x=a), scaled(a, w=b)

    a, b = np.arange(4.0), np.arange(1.0, 5.0)
    for result in f(a, b):
        np.testing.assert_array_equal(result, a * b + 1)
