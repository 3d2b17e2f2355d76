"""What the installed package says of itself, and what is missing where there is no GPU."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import diptych as dt
import numpy as np
import pytest
from diptych.codegen import cuda

PROJECT = tomllib.loads((Path(dt.__file__).parent / "pyproject.toml").read_text())["project"]


def test_r85_the_metadata_states_what_is_needed() -> None:
    assert PROJECT["requires-python"] == ">=3.11"
    for package in ("islpy", "llvmlite"):
        (stated,) = [r for r in PROJECT["dependencies"] if re.match(rf"{package}\b", r)]
        found = re.fullmatch(r"\w+>=([\d.]+),<([\d.]+)", stated)
        assert found, stated
        low, here, high = (_number(v) for v in (found[1], version(package), found[2]))
        assert low <= here < high


def _number(text: str) -> list[int]:
    return [int(part) for part in text.split(".")[:2]] + [0] * (1 - text.count("."))


def test_r84_pycuda_is_an_extra() -> None:
    assert not [r for r in PROJECT["dependencies"] if "cuda" in r]
    assert [r for r in PROJECT["optional-dependencies"]["cuda"] if r.startswith("pycuda")]


def test_r84_a_gpu_that_is_asked_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence names what is missing; nothing of CUDA's compiler is needed, so not nvcc."""
    monkeypatch.setattr(cuda, "DRIVER", "libthere-is-no-such.so")
    monkeypatch.setattr(cuda, "_devices", {})
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: None)
    schedule = dt.op("y[i] = x[i] + 1").schedule().bind("i", "thread.x")
    with pytest.raises(dt.DeviceError) as caught:
        schedule.on("cuda:0")(np.ones(4, np.float32))
    assert str(caught.value) == (
        "cuda:0 cannot be used: NVIDIA's driver (libthere-is-no-such.so) was not found and pycuda "
        "is not installed (the extra diptych[cuda])"
    )
    assert cuda.driver_version() is None
