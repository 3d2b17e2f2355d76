"""A kernel from its operator: nest, loop IR, LLVM IR, object. Imported where one is compiled."""

from __future__ import annotations

import re
import time
from typing import Any

from ..algo import debug
from ..algo.errors import DeviceError
from ..algo.tensor_expr.op import Op
from ..lower.ir import AXES, Function, with_
from ..lower.ir_print import print_function
from ..lower.kernel import lower
from ..sched.loop.nest import Nest, loops
from ..sched.loop.schedule import Schedule
from . import jit
from .emit import emit
from .entry import add_entry
from .host_code import Source, host_target
from .signature import Form, Signature


def build(
    signature: Signature, schedule: Schedule | None, form: Form
) -> tuple[dict[str, Any], bytes]:
    """The object of a kernel, and what `native.Code` says of it."""
    op = signature.op
    nest = signature.nest(schedule)
    _check_host(op, nest)
    strides, bytewise = _strides(signature, form)
    function = lower(nest, symbol(op.name), strides, signature.machine)
    function = _as_given(function, form.aligned, bytewise)
    text = print_function(function)
    debug.say(3, f"loop IR:\n{text}")
    emitted = emit(function, host_target(), noalias=form.separate)
    add_entry(emitted)
    start = time.perf_counter()
    code = jit.object_code(str(emitted.module))
    took = time.perf_counter() - start
    debug.say(2, f"{op.name}: {len(code)} bytes of code, LLVM took {1e3 * took:.0f} ms")
    if debug.level() >= 4:
        source = Source(emitted)
        debug.say(4, f"LLVM IR:\n{source.llvm}")
        debug.say(5, f"assembly:\n{source.asm}")
    names = [p.name for p in op.params]
    facts = {
        "function": text,
        "symbol": function.name,
        "reads": [p.name for p in function.params if p.name in names],
        "sizes": list(signature.dynamic),
        "outputs": len(op.returns),
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
