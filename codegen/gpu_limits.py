"""What GPUs allow a launch to be, checked before anything is compiled.

Source: CUDA C++ Programming Guide, "Compute Capabilities" (technical specifications).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..algo.errors import DeviceError
from ..lower.ir import Buffer, reach
from ..lower.launch import Axis, Launch

ALIGN = 16
"""Bytes to which shared buffers are aligned at least: the widest access of a thread."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A target's limits. `shared` is what a block has without asking, `opt_in` what it may ask for,
    in bytes; `ptx` is the version of PTX text that LLVM writes for it."""

    target: str
    ptx: str
    opt_in: int
    shared: int = 48 << 10
    threads: int = 1024
    block: tuple[int, int, int] = (1024, 1024, 64)
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)


LIMITS: dict[str, Limits] = {
    limits.target: limits
    for limits in (
        Limits("sm_75", "ptx63", 64 << 10),
        Limits("sm_80", "ptx78", 163 << 10),
        Limits("sm_86", "ptx78", 99 << 10),
        Limits("sm_89", "ptx78", 99 << 10),
        Limits("sm_90", "ptx80", 227 << 10),
        Limits("sm_90a", "ptx80", 227 << 10),
        Limits("sm_100", "ptx86", 227 << 10),
        Limits("sm_120", "ptx87", 99 << 10),
    )
}


EMULATED = Limits("simt", "", 227 << 10)
"""An emulated GPU: what every target allows, and the shared memory of the largest."""


def limits_of(target: str) -> Limits:
    """The limits of a target; `DeviceError` with the known ones for any other."""
    if target not in LIMITS:
        raise DeviceError(f"GPU target {target} is not known; expected one of {', '.join(LIMITS)}")
    return LIMITS[target]


def target_for(capability: tuple[int, int]) -> str:
    """The best target whose code a device of that compute capability runs."""
    number = 10 * capability[0] + capability[1]
    fitting = [t for t in LIMITS if t[3:].isdigit() and int(t[3:]) <= number]
    if not fitting:
        raise DeviceError(
            f"GPUs of compute capability {capability[0]}.{capability[1]} are not supported; "
            f"expected 7.5 or later"
        )
    return max(fitting, key=lambda t: int(t[3:]))


def check(launch: Launch, limits: Limits) -> None:
    """Raises `DeviceError`, naming the loops or buffers, for a launch beyond the limits."""
    for axes, most in ((launch.threads, limits.block), (launch.blocks, limits.grid)):
        for axis in axes:
            allowed = most["xyz".index(axis.kind[-1])]
            if axis.extent > allowed:
                unit = "threads" if axis.kind.startswith("thread") else "blocks"
                raise DeviceError(
                    f"loop {axis.var} gives {axis.extent} {unit} on {axis.kind}, and "
                    f"{limits.target} allows {allowed}; {_fewer(axis, allowed, most[0])}"
                )
    if launch.block_size > limits.threads:
        raise DeviceError(_too_many_threads(launch.threads, launch.block_size, limits))
    size = layout(launch.shared).size
    if size > limits.opt_in:
        each = ", ".join(f"{b.name} {bytes_of(b)}" for b in launch.shared)
        raise DeviceError(
            f"the shared buffers of a block need {size} bytes ({each}), and {limits.target} allows "
            f"{limits.opt_in}; stage smaller tiles"
        )


def _fewer(axis: Axis, allowed: int, along_x: int) -> str:
    """What helps where an axis is too long."""
    if axis.extent <= along_x:
        return f"bind it to {axis.kind[:-1]}x, which allows {along_x}"
    inner = "the inner loop" if axis.kind.startswith("thread") else "one of the two loops"
    return f"split it by at most {allowed} and bind {inner} to {axis.kind}"


def _too_many_threads(threads: Sequence[Axis], count: int, limits: Limits) -> str:
    product = "*".join(str(axis.extent) for axis in threads)
    loops = " and ".join(f"{axis.var} ({axis.kind}, {axis.extent})" for axis in threads)
    return (
        f"loops {loops} give {product}={count} threads a block, and {limits.target} allows "
        f"{limits.threads}; split them by smaller factors"
    )


@dataclass(frozen=True, slots=True)
class Layout:
    """A block's shared memory: where each buffer begins, how much there is, padding included, and
    to what its beginning is aligned, in bytes."""

    offsets: Mapping[str, int]
    size: int
    align: int


def layout(shared: Sequence[Buffer]) -> Layout:
    """Lays shared buffers out one behind the other."""
    offsets: dict[str, int] = {}
    size, most = 0, ALIGN
    for buffer in shared:
        align = max(ALIGN, buffer.align)
        size = -(-size // align) * align
        offsets[buffer.name] = size
        size += bytes_of(buffer)
        most = max(most, align)
    return Layout(offsets, size, most)


def bytes_of(buffer: Buffer) -> int:
    """Bytes from the first element of a buffer to behind its last."""
    if 0 in buffer.shape:
        return 0
    return (reach(buffer) + 1) * buffer.dtype.itemsize
