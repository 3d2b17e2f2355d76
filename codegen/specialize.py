"""One kernel for exact types, strides and schedule: lowered and compiled, or loaded from disk."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from ..algo import debug
from ..algo.dtypes import DType
from ..algo.errors import DeviceError
from ..algo.tensor_expr.op import Op
from ..lower.ir import AXES, Function, with_
from ..lower.ir_parse import parse_function
from ..lower.ir_print import print_function
from ..lower.kernel import lower
from ..sched.loop.nest import Nest, loops
from ..sched.loop.schedule import Schedule
from . import entry, jit, pool
from .cache import COMPILER, default_cache
from .emit import emit
from .outside import outside
from .signature import Form, Signature

Array = np.ndarray[Any, Any]
Types = Sequence[tuple[DType, tuple[int, ...]]]


@dataclass(eq=False, repr=False)
class NativeKernel:
    """Machine code, and how it is called. `reads` are the positions of the inputs that it reads,
    `sizes` the values of its dynamic sizes, as arrays of rank 0.

    Calls from several threads at once are safe: each has a workspace of its own.
    """

    name: str
    function: Function
    reads: tuple[int, ...]
    sites: tuple[str, ...]
    parallel: bool
    fixed_bytes: int
    thread_bytes: int
    schedule: str
    loaded: jit.Loaded
    tiny: bool
    skips: bool
    sizes: tuple[Array, ...] = ()
    _spare: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        address = self.loaded.address(f"{self.function.name}.entry")
        keep_lock = self.tiny and not self.parallel
        self._code = entry.callable_at(address, len(self.function.params), keep_lock)
        by_id = entry.data_offset() is not None
        everything = self.reads == tuple(range(len(self.reads))) and not self.skips
        plain = not self.parallel and not self.fixed_bytes
        self._direct = by_id and everything and plain
        self._tail = tuple(map(entry.token, self.sizes))

    def __repr__(self) -> str:
        return f"<native kernel {self.name}>"

    def run(self, arrays: Sequence[Array], outs: Sequence[Array]) -> int:
        """Calls the code; returns its status (see `entry.MISALIGNED` and `sites`)."""
        if self._direct:
            return self._code(0, 0, *map(id, arrays), *map(id, outs), *self._tail)
        tokens = [entry.token(arrays[i]) for i in self.reads] + [entry.token(out) for out in outs]
        tokens += self._tail
        threads = pool.current() if self.parallel else None
        address = threads.address() if threads is not None else 0
        size = self.fixed_bytes + (threads.slots if threads else 1) * self.thread_bytes
        if not size:
            return self._code(address, 0, *tokens)
        workspace = self._workspace(size)
        start = workspace.ctypes.data
        status = self._code(address, start + -start % 64, *tokens)
        self._spare.append(workspace)
        return status

    def _workspace(self, size: int) -> Array:
        try:
            found = self._spare.pop()
        except IndexError:
            return np.empty(size + 64, np.uint8)
        return found if found.size >= size + 64 else np.empty(size + 64, np.uint8)

    def error(self, status: int, op: Op, arrays: Sequence[Array]) -> Exception:
        """What a positive status of a call of `op` on `arrays` means."""
        return outside(op, self.sites[status - 1], arrays)

    @property
    def source(self) -> jit.Source:
        """The LLVM IR and the assembly, made again from the loop IR."""
        return jit.Source(emit(self.function, jit.host_target()))


_building = threading.RLock()  # isl and the compiler's own tables know one thread at a time
os.register_at_fork(
    before=_building.acquire, after_in_parent=_building.release, after_in_child=_building.release
)


def specialize(signature: Signature, schedule: Schedule | None, form: Form) -> NativeKernel:
    """The kernel for a signature, a schedule (None: the default one) and a form.

    Signatures that differ in the values of dynamic sizes alone share one code.
    """
    key = _key(signature, schedule, form)
    shared: dict[str, NativeKernel] = signature.op.memo("kernels", dict)
    with _building:
        kernel = shared.get(key)
        if kernel is None:
            found = default_cache().get(key)
            if found is None:
                found = _compile(signature, schedule, form)
                default_cache().put(key, *found)
            else:
                debug.say(2, f"{signature.op.name}: object {key[:12]} from the cache")
            kernel = _kernel(signature, *found)
            if signature.dynamic:
                shared[key] = kernel
    if not signature.dynamic:
        return kernel
    return replace(kernel, sizes=tuple(np.array(n, np.int64) for n in signature.dynamic.values()))


def _compile(
    signature: Signature, schedule: Schedule | None, form: Form
) -> tuple[dict[str, Any], bytes]:
    op = signature.op
    nest = signature.nest(schedule)
    _check_host(op, nest)
    strides, bytewise = _strides(signature, form)
    function = lower(nest, symbol(op.name), strides, signature.machine)
    function = _as_given(function, form.aligned, bytewise)
    text = print_function(function)
    debug.say(3, f"loop IR:\n{text}")
    emitted = emit(function, jit.host_target(), noalias=form.separate)
    entry.add_entry(emitted, form.aligned)
    start = time.perf_counter()
    code = jit.object_code(str(emitted.module))
    took = time.perf_counter() - start
    debug.say(2, f"{op.name}: {len(code)} bytes of code, LLVM took {1e3 * took:.0f} ms")
    if debug.level() >= 4:
        source = jit.Source(emitted)
        debug.say(4, f"LLVM IR:\n{source.llvm}")
        debug.say(5, f"assembly:\n{source.asm}")
    names = [p.name for p in op.params]
    facts = {
        "function": text,
        "reads": [names.index(p.name) for p in function.params if p.name in names],
        "sites": emitted.sites,
        "parallel": emitted.parallel,
        "fixed": emitted.workspace.kernel,
        "thread": emitted.workspace.thread,
        "schedule": "" if schedule is None else schedule.text,
    }
    return facts, code


def _check_host(op: Op, nest: Nest) -> None:
    """Refuses a schedule that is for a GPU."""
    bound = [f"loop {loop.name} is bound to {loop.kind}" for loop in loops(nest.tree)
             if loop.kind in AXES]  # fmt: skip
    bound += [f"{name} is in {buffer.scope} memory" for name, buffer in nest.buffers.items()
              if buffer.scope in ("shared", "local")]  # fmt: skip
    if bound:
        raise DeviceError(
            f"{op.name}: {bound[0]}, so this schedule is for a GPU "
            f'and the call is for the CPU; use schedule.on("cuda:0")(...), or schedule.on("simt")'
            f"(...) to emulate it"
        )


def _kernel(signature: Signature, facts: Mapping[str, Any], code: bytes) -> NativeKernel:
    return NativeKernel(
        signature.op.name,
        parse_function(facts["function"]),
        tuple(facts["reads"]),
        tuple(facts["sites"]),
        facts["parallel"],
        facts["fixed"],
        facts["thread"],
        facts["schedule"],
        jit.Loaded(code),
        signature.tiny,
        len(facts["reads"]) < len(signature.types),
    )


def _key(signature: Signature, schedule: Schedule | None, form: Form) -> str:
    """Everything on which the object depends."""
    parts = [
        COMPILER,
        llvmlite.__version__,
        *_processor(),
        entry.data_offset(),
        signature.op.text,
        [t.name for t, _ in signature.types],
        sorted(signature.bound.items()),
        None if schedule is None else schedule.text,
        repr(signature.machine),
        repr(form),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@cache
def _processor() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _strides(signature: Signature, form: Form) -> tuple[dict[str, tuple[int, ...]], set[str]]:
    """The strides in elements, and the tensors for which that cannot be: theirs are in bytes."""
    sizes = {
        p.name: t.itemsize for p, (t, _) in zip(signature.op.params, signature.types, strict=True)
    }
    outs = zip(signature.op.returns, signature.results, strict=True)
    sizes |= {name: dtype.itemsize for name, (_, dtype) in outs}
    bytewise = {name for name, strides in form.strides if any(s % sizes[name] for s in strides)}
    counted = {
        name: strides if name in bytewise else tuple(s // sizes[name] for s in strides)
        for name, strides in form.strides
    }
    return counted, bytewise


def _as_given(function: Function, aligned: bool, bytewise: set[str]) -> Function:
    """The function with parameters as its arrays lie in memory."""
    params = tuple(
        with_(p, align=1, bytewise=p.name in bytewise) if p.name in bytewise or not aligned else p
        for p in function.params
    )
    return Function(function.name, params, function.body)


def symbol(name: str) -> str:
    """A name that every assembler takes."""
    return re.sub(r"\W", "_", name, flags=re.ASCII) or "kernel"
