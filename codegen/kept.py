"""Object code that is kept on disk, and the names under which it is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from . import jit, matrix_unit
from .cache import compiler, default_cache


def object_key(*parts: Any) -> str:
    """The name of an object that these parts, the compiler and the processor determine.

    The parts are what JSON can write. They are text and numbers, never hashes of Python or of isl,
    so a key is the same in every process.
    """
    everything = [compiler(), llvmlite.__version__, *_processor(), *parts]
    return hashlib.sha256(json.dumps(everything).encode()).hexdigest()


@cache
def _processor() -> tuple[str, str, bool]:
    features = llvm.get_host_cpu_features().flatten()
    return llvm.get_host_cpu_name(), features, matrix_unit.permitted()


def kept_object(name: str, text: Callable[[], str], *parts: Any) -> bytes:
    """The object of LLVM IR text that the compiler itself brings, from the disk if it is there."""
    key = f"{name}-{object_key(*parts)}"
    found = default_cache().get(key)
    if found is None:
        found = {}, jit.object_code(text())
        default_cache().put(key, *found)
    return found[1]
