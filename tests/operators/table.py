"""The table of common layers and kernels, and what agreement with a reference is."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import diptych as dt
import numpy as np

DOCS = Path(dt.__file__).parent / "docs"
MAKE = runpy.run_path(str(DOCS / "operators.py"))
ENTRIES = MAKE["entries"]()


def agree(entry: Any, run: Any, dtype: str) -> None:
    """The results have the reference's values, within what the type resolves; inputs are read."""
    arrays = entry.arrays(dtype)
    names = [p.name for p in entry.op().params]
    found = run(*(arrays[name] for name in names))
    found = found if isinstance(found, tuple) else (found,)
    for name, array in entry.arrays(dtype).items():
        np.testing.assert_array_equal(arrays[name], array)
    expected = entry.expected(arrays)
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        want = np.asarray(want)
        assert got.shape == want.shape
        if got.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
            continue
        assert np.isfinite(want).all() and want.any(), "the reference says nothing"
        eps = max(np.finfo(got.dtype).eps, np.finfo(dtype).eps)
        allowed = entry.within * float(eps)
        np.testing.assert_allclose(got, want, allowed, allowed * np.abs(want).max())
