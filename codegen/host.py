"""What this machine is: vector width, registers, caches, and how many threads may run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from ..sched.loop.machine import Machine
from . import matrix_unit, pool
from .jit import dot_lanes, half_lanes, host_features, pair_lanes, triple

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def host_name() -> str:
    """The processor's name in LLVM's words."""
    name: str = llvm.get_host_cpu_name()
    return name


def machine() -> Machine:
    """This machine, as schedules may know it; `threads` is what `pool.threads` says now."""
    width, registers = _vectors()
    sizes = _cache_sizes()
    plain = Machine()
    return Machine(
        vector_bytes=width,
        registers=registers,
        l1=sizes.get(1, plain.l1),
        l2=sizes.get(2, plain.l2),
        l3=sizes.get(3, sizes.get(2, plain.l3)),
        threads=pool.threads(),
        dots=_dots(),
        pairs=bool(pair_lanes(triple(), host_features())),
        matrices=matrix_unit.permitted(),
    )


@cache
def _dots() -> tuple[int, ...]:
    """The lengths of the dot products that this machine has."""
    features = host_features()
    lanes = {2: half_lanes(features), 4: dot_lanes(features)}
    return tuple(length for length, found in lanes.items() if found)


@cache
def _vectors() -> tuple[int, int]:
    """Bytes of a vector register and the number of them."""
    features = host_features()
    if features.get("avx512f"):
        return 64, 32
    if features.get("avx2"):
        return 32, 16
    if features.get("sse2"):
        return 16, 16
    return 16, 32  # Arm's NEON


@cache
def _cache_sizes() -> dict[int, int]:
    """Bytes of data cache by level, where the system tells."""
    sizes = {}
    for index in sorted(_CACHES.glob("index*")):
        try:
            level, kind, size = (
                (index / name).read_text().strip() for name in ("level", "type", "size")
            )
        except OSError:
            continue
        if kind != "Instruction":
            sizes[int(level)] = _bytes(size)
    return sizes


def _bytes(text: str) -> int:
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit
