"""LLVM modules to machine code in this process: optimised objects, loaded by MCJIT.

LLVM is entered under one lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

from ..algo.errors import InternalError
from ..algo.forked import fork_lock, held_at_forks

# Destructors of LLVM's objects, which run in any thread, take the lock of llvmlite alone.
held_at_forks(llvm.ffi.lib._lock.__enter__, llvm.ffi.lib._lock.__exit__)
LOCK = fork_lock()
LEVEL = 2


@cache
def host_features() -> dict[str, bool]:
    """Instruction set extensions of this processor, by LLVM's names."""
    _initialize()
    with LOCK:
        return dict(llvm.get_host_cpu_features())


def dot_lanes(features: Mapping[str, bool]) -> tuple[int, ...]:
    """The lanes of i32 for which a machine with these extensions has VNNI's dot product."""
    if features.get("avx512vnni") and features.get("avx512vl"):
        return 4, 8, 16
    return (4, 8) if features.get("avxvnni") else ()


def pair_lanes(name: str, features: Mapping[str, bool]) -> tuple[int, ...]:
    """The lanes of i32 for which a machine of that triple adds two products of i16 (pmaddwd)."""
    if not name.startswith("x86_64"):
        return ()
    wide = {8: features.get("avx2"), 16: features.get("avx512bw")}
    return (4, *(lanes for lanes, there in wide.items() if there))


def half_lanes(features: Mapping[str, bool]) -> tuple[int, ...]:
    """The lanes of f32 for which a machine with these extensions has the dot product of bf16."""
    return (4, 8, 16) if features.get("avx512bf16") and features.get("avx512vl") else ()


def triple() -> str:
    """This machine's name in LLVM's words."""
    name: str = llvm.get_process_triple()
    return name


@cache
def _initialize() -> None:
    with LOCK:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()  # the thread pool pauses by inline assembly


def target_machine(cpu: str | None = None, features: str | None = None, level: int = LEVEL) -> Any:
    """A new LLVM target machine for this processor, or a lesser one of its kind."""
    _initialize()
    if cpu is None:
        cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=cpu, features=features or "", opt=level, reloc="pic", codemodel="small"
    )


def optimize(text: str, machine: Any, level: int = LEVEL) -> Any:
    """Parses, verifies and optimises LLVM IR text; returns LLVM's module."""
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses what codegen emitted: {error}\n{text}") from error
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    try:
        passes.run(module, builder)
    finally:
        # llvmlite 0.50 never frees them: an empty `_dispose` comes first in the order of classes.
        NewPassManager._dispose(passes)
        passes.detach()
    return module


class Loaded:
    """Machine code in memory. It lives as long as this object."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        with LOCK:
            _initialize()
            machine = target_machine()
            empty = llvm.parse_assembly("")
            empty.triple = llvm.get_process_triple()
            # llvmlite's own memory manager is not used: it reserves too little for some objects
            # and then aborts the process.
            self._engine = llvm.create_mcjit_compiler(empty, machine, use_lmm=False)
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """The address of a function."""
        with LOCK:
            found = self._engine.get_function_address(name)
        if not found:
            raise InternalError(f"the object has no function {name}")
        return int(found)


def object_code(text: str, machine: Any = None, level: int = LEVEL) -> bytes:
    """The optimised object file of LLVM IR text, for this processor or another machine."""
    with LOCK:
        machine = machine or target_machine(level=level)
        return bytes(machine.emit_object(optimize(text, machine, level)))
