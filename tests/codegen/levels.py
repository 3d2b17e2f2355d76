"""The feature levels of x86-64 as LLVM names them, so that code for lesser machines runs here."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import pytest
from diptych.codegen import host_code, jit
from diptych.codegen.target import Target

V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
V3 = (*V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
V4 = (*V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
LEVELS = {"x86-64": (), "x86-64-v2": V2, "x86-64-v3": V3, "x86-64-v4": V4}


def level(name: str) -> tuple[Target, Any]:
    """What the emitter and LLVM know of a machine of that level; the test is skipped elsewhere."""
    triple = llvm.get_process_triple()
    if not triple.startswith("x86_64"):
        pytest.skip("levels are those of x86-64")
    missing = [part for part in LEVELS[name] if not jit.host_features().get(part)]
    if missing:
        pytest.skip(f"this processor has no {missing[0]}")
    return host_code.target_of(triple, dict.fromkeys(LEVELS[name], True)), jit.target_machine(name)
