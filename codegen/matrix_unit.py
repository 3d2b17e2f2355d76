"""May this process use the processor's matrix unit? Linux asks for a request first.

x86's AMX has 8 KiB of registers a thread. Linux saves them for processes that asked for them
(Documentation/arch/x86/xstate.rst), threads and children included; whoever uses them without is
killed.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from functools import cache

from .jit import host_features

ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILE_DATA = 158, 0x1023, 18
FEATURES = ("amx-tile", "amx-int8", "amx-bf16")


def has_matrices(features: Mapping[str, bool]) -> bool:
    """Has a machine with these extensions products of matrices of bytes and of bf16?"""
    return all(features.get(name, False) for name in FEATURES)


@cache
def permitted() -> bool:
    """Has this machine a matrix unit, and may this process use it? The first call asks for it."""
    if not has_matrices(host_features()) or sys.platform != "linux":
        return False
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return False
    return bool(call(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0)
