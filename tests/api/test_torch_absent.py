"""What `dt.torch` says where torch is not installed."""

from __future__ import annotations

import sys

import diptych as dt
import pytest
from diptych import torch_tensors


def test_torch_is_missed_kindly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    torch_tensors.torch_module.cache_clear()
    with pytest.raises(dt.UnsupportedError) as error:
        dt.torch(dt.op("y[i] = sin(x[i])"))
    torch_tensors.torch_module.cache_clear()
    assert str(error.value) == (
        "dt.torch makes functions of torch tensors, and torch is not installed here; install it "
        "(pip install torch), or call the operator on arrays"
    )
