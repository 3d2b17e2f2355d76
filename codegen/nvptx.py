"""GPU kernels as PTX text, by LLVM's NVPTX back end. No CUDA toolkit and no GPU is needed.

Each nest of a function that loops over GPU axes is a kernel. It takes one global pointer for each
parameter of the function (aligned to its elements at least) and each buffer between its nests, in
that order, and last a pointer to an i64 status, which stays 0 unless a data-dependent index was
out of range.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import llvmlite.binding as llvm
import llvmlite.ir as ir

from ..algo.errors import DeviceError
from ..lower.ir import Buffer, Function, allocated, with_
from ..lower.launch import Launch, launch_of, launches
from .emit import emit
from .frame import Frame, Storage
from .gpu_limits import Limits, check, layout, limits_of
from .jit import LOCK, optimize
from .target import Target
from .values import I8, I32, I64, VOID

TRIPLE = "nvptx64-nvidia-cuda"
GLOBAL, SHARED = ir.PointerType(addrspace=1), ir.PointerType(addrspace=3)
ALLOCATION = 256
"""Bytes to which CUDA aligns what it allocates."""
TESTED = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a")
"""Targets for which what this emitter uses was tried: for others LLVM may abort the process."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch. `grid` and `block` are extents by x, y, z; `dynamic` bytes of shared memory are
    asked for at the launch. With an extent of 0 there is nothing to launch."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic: int


@dataclass(frozen=True, slots=True)
class Module:
    """PTX text, its kernels in launch order, and the buffers that the launcher allocates."""

    ptx: str
    target: str
    kernels: tuple[Kernel, ...]
    between: tuple[Buffer, ...]
    sites: tuple[str, ...]


def ptx(function: Function, target: str) -> str:
    """The PTX text of a function in the form that `lower.passes.barriers` gives."""
    return compile_ptx(function, target).ptx


def compile_ptx(function: Function, target: str | Limits) -> Module:
    """The kernels of a function for a target such as "sm_80", or for the limits of a device.

    Raises `DeviceError` for an unknown target, or a launch beyond the limits.
    """
    limits = limits_of(target) if isinstance(target, str) else target
    between = tuple(
        _aligned(buffer, ALLOCATION)
        for buffer in allocated(function.body)
        if buffer.scope == "heap"
    )
    params = (*(_aligned(p, p.dtype.itemsize) for p in function.params), *between)
    nests = list(launches(function.body))
    kernels: list[Kernel] = []
    texts: list[str] = []
    sites: list[str] = []
    for number, nest in enumerate(nests):
        launch = launch_of(nest)
        check(launch, limits)
        name = function.name if len(nests) == 1 else f"{function.name}_{number}"
        gpu = Nvptx(launch, limits, len(sites))
        emitted = emit(Function(name, params, nest), gpu)
        sites += emitted.sites
        texts.append(str(emitted.module))
        kernels.append(Kernel(name, _xyz(launch, "block"), _xyz(launch, "thread"), gpu.dynamic))
    return Module(_ptx(texts, limits), limits.target, tuple(kernels), between, tuple(sites))


def _aligned(buffer: Buffer, align: int) -> Buffer:
    """The buffer as a parameter whose address is a multiple of `align`."""
    if buffer.align > ALLOCATION:
        raise DeviceError(
            f"{buffer.name} is aligned to {buffer.align} bytes, and GPUs align global memory to "
            f"{ALLOCATION}; use align({buffer.name}, {ALLOCATION})"
        )
    return with_(buffer, scope="param", align=max(buffer.align, align))


def _xyz(launch: Launch, level: str) -> tuple[int, int, int]:
    extents = {axis.kind: axis.extent for axis in (*launch.blocks, *launch.threads)}
    x, y, z = (extents.get(f"{level}.{axis}", 1) for axis in "xyz")
    return x, y, z


class Nvptx(Target):
    """The emitter's view of one launch. Threads keep their own buffers in registers or locally."""

    def __init__(self, launch: Launch, limits: Limits, first_site: int) -> None:
        super().__init__(TRIPLE)
        self.parallel = self.prefetches = self.streams = self.extrema = False
        self.launch, self.first_site = launch, first_site
        self.extents = {axis.kind: axis.extent for axis in (*launch.blocks, *launch.threads)}
        self.shared = layout(launch.shared)
        self.dynamic = self.shared.size if self.shared.size > limits.shared else 0
        self.memory: ir.GlobalVariable | None = None

    def pointer(self, scope: str) -> ir.PointerType:
        return {"param": GLOBAL, "heap": GLOBAL, "shared": SHARED}.get(scope, ir.PointerType())

    def declare(self, module: ir.Module, function: Function) -> ir.Function:
        params = [*(GLOBAL for _ in function.params), GLOBAL]
        name = re.sub(r"\W", "_", function.name)
        fn = ir.Function(module, ir.FunctionType(VOID, params), name)
        fn.calling_convention = "ptx_kernel"
        for arg, param in zip(fn.args, function.params, strict=False):
            arg.name = param.name
            if param.align > 1:
                arg.attributes.align = param.align
        for axis, size in zip("xyz", _xyz(self.launch, "thread"), strict=True):
            note = [fn, ir.MetaDataString(module, f"maxntid{axis}"), I32(max(size, 1))]
            module.add_named_metadata("nvvm.annotations", note)
        if self.shared.size:
            extern = self.dynamic > 0
            typ = ir.ArrayType(I8, 0 if extern else self.shared.size)
            self.memory = ir.GlobalVariable(module, typ, f"{name}_shared", addrspace=3)
            self.memory.type = SHARED  # llvmlite would give it a pointer to this array type
            self.memory.align = self.shared.align
            if not extern:
                self.memory.linkage = "internal"
                self.memory.initializer = ir.Constant(typ, ir.Undefined)
        return fn

    def open(self, frame: Frame, function: Function) -> None:
        *params, frame.status = frame.fn.args
        for param, pointer in zip(function.params, params, strict=True):
            frame.buffers[param.name] = Storage(param, pointer)

    def close(self, frame: Frame) -> None:
        frame.ib.ret_void()

    def report(self, frame: Frame, number: ir.Value) -> None:
        frame.ib.store(frame.ib.add(number, I64(self.first_site)), frame.status)

    def in_workspace(self, buffer: Buffer, size: int) -> bool:
        return False

    def allocate(self, frame: Frame, buffer: Buffer, count: int) -> ir.Value:
        if buffer.scope != "shared":
            return frame.alloca(buffer, count)
        offset = I64(self.shared.offsets[buffer.name])
        return frame.ib.gep(self.memory, [offset], inbounds=True, source_etype=I8)

    def axis(self, frame: Frame, kind: str) -> ir.Value:
        level, axis = kind.split(".")
        register = {"block": "ctaid", "thread": "tid"}[level]
        read = frame.unit.intrinsic(f"llvm.nvvm.read.ptx.sreg.{register}.{axis}", I32, [])
        return frame.ib.zext(frame.ib.call(read, []), I64)

    def covers(self, kind: str, extent: int | None) -> bool:
        return extent == self.extents[kind]

    def barrier(self, frame: Frame) -> None:
        # LLVM reads this name as the barrier that the target has.
        frame.ib.call(frame.unit.intrinsic("llvm.nvvm.barrier0", VOID, []), [])


def _ptx(texts: Sequence[str], limits: Limits) -> str:
    """One PTX text of several LLVM modules."""
    if limits.target in TESTED:
        return translate(texts, limits)
    # What LLVM cannot do for a target it answers by aborting the process, so that is another's.
    child = subprocess.run(
        [sys.executable, "-P", "-m", __name__, limits.target],
        input="\0".join(texts),
        capture_output=True,
        text=True,
        timeout=300,
    )
    if child.returncode != 0:
        words = child.stderr.strip().splitlines()[-1:] or [f"exit status {child.returncode}"]
        raise DeviceError(f"LLVM cannot make this kernel for {limits.target}: {words[0]}")
    return child.stdout


def translate(texts: Sequence[str], limits: Limits) -> str:
    """The PTX text of LLVM modules, in this process."""
    with LOCK:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
            cpu=limits.target, features=f"+{limits.ptx}", opt=3
        )
        whole = llvm.parse_assembly(f'target triple = "{TRIPLE}"')
        for text in texts:
            whole.link_in(optimize(text, machine))
        ptx_text: str = machine.emit_assembly(whole)
    return ptx_text


if __name__ == "__main__":
    sys.stdout.write(translate(sys.stdin.read().split("\0"), limits_of(sys.argv[1])))
