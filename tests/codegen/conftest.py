"""What the tests of code generation share: running loop IR as machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diptych.codegen import host_code, jit
from diptych.codegen.emit import emit
from diptych.codegen.target import Target
from diptych.lower.ir import Function
from diptych.lower.ir_parse import parse_function
from diptych.lower.verify import verify

POISON = 0xA5


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads what another process compiled."""
    monkeypatch.setenv("DIPTYCH_CACHE_DIR", str(tmp_path / "cache"))


class Native:
    """Machine code of loop IR; call it with one array a parameter, written in place."""

    def __init__(
        self, loops: str | Function, target: Target | None = None, machine: Any = None
    ) -> None:
        self.function = parse_function(loops) if isinstance(loops, str) else loops
        verify(self.function, final=True)
        self.emitted = emit(self.function, target or host_code.host_target())
        self.text = str(self.emitted.module)
        self.compiler = machine
        self.object = jit.object_code(self.text, machine)
        self.loaded = jit.Loaded(self.object)
        count = len(self.function.params) + 2
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * count)
        self.code = kind(self.loaded.address(self.function.name))

    def __call__(self, *arrays: np.ndarray[Any, Any], pool: int = 0, threads: int = 1) -> int:
        size = self.emitted.workspace.bytes(threads)
        workspace = np.full(size + 64, POISON, np.uint8)
        start = workspace.ctypes.data
        return self.code(pool, start + -start % 64, *[a.ctypes.data for a in arrays])


@pytest.fixture
def native() -> Callable[..., Native]:
    """Compiles loop IR, as text too."""
    return Native
