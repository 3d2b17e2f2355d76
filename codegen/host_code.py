"""Loop IR to machine code of this host, and its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from ..lower.ir import Function
from .emit import Emitted, emit
from .jit import (
    LEVEL,
    LOCK,
    Loaded,
    dot_lanes,
    half_lanes,
    host_features,
    object_code,
    optimize,
    pair_lanes,
    target_machine,
)
from .target import Target


@cache
def host_target() -> Target:
    """The emitter's view of this machine."""
    return target_of(llvm.get_process_triple(), host_features())


def target_of(triple: str, features: Mapping[str, bool]) -> Target:
    """The emitter's view of a machine with these extensions (only x86 lacks what is asked for)."""
    if not triple.startswith(("x86_64", "i386", "i686")):
        return Target(triple, masks=0)
    return Target(
        triple,
        fma=features.get("fma", False),
        rounding=features.get("sse4.1", False),
        half=features.get("f16c", False),
        avx512=all(features.get(f"avx512{part}", False) for part in ("f", "vl", "dq", "bw")),
        masks=_masks(features),
        dots=dot_lanes(features),
        pairs=pair_lanes(triple, features),
        halves=half_lanes(features),
        stack=64 if features.get("avx512f") else 32 if features.get("avx") else 0,
    )


def _masks(features: Mapping[str, bool]) -> int:
    if features.get("avx512bw"):
        return 1
    return 4 if features.get("avx") else 0


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What a module became, as text."""

    emitted: Emitted

    @property
    def llvm(self) -> str:
        """The optimised LLVM IR."""
        with LOCK:
            return str(optimize(str(self.emitted.module), target_machine()))

    @property
    def asm(self) -> str:
        """The assembly."""
        with LOCK:
            machine = target_machine()
            text: str = machine.emit_assembly(optimize(str(self.emitted.module), machine))
            return text


@dataclass(frozen=True, slots=True, eq=False)
class Native(Source):
    """A compiled function, and its code in memory."""

    loaded: Loaded


def compile(function: Function, *, noalias: bool = True, level: int = LEVEL) -> Native:
    """Compiles loop IR for this machine; at `level` 0 fast, to code that is slow."""
    emitted = emit(function, host_target(), noalias=noalias)
    return Native(emitted, Loaded(object_code(str(emitted.module), level=level)))
