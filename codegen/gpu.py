"""Operators on GPUs: their PTX, their emulation on the host, and their run on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..algo.dtypes import DType, as_bits, from_numpy
from ..algo.errors import DeviceError, ScheduleError
from ..algo.tensor_expr.op import Op
from ..lower.context import parameter
from ..lower.ir import AXES, Function
from ..lower.kernel import lower
from ..sched.loop.machine import Machine
from ..sched.loop.nest import loops
from ..sched.loop.schedule import Schedule
from . import cuda, nvptx, simt
from .build import symbol
from .outside import OutsideError, outside
from .signature import Signature

Array = np.ndarray[Any, Any]
Types = Sequence[tuple[DType, tuple[int, ...]]]
MACHINE = Machine(vector_bytes=16, registers=128, grid=True)
"""A GPU thread as lowering sees it: its widest access has 16 bytes."""


def kernel_of(op: Op, types: Types, schedule: Schedule) -> Function:
    """The loop IR of an operator for GPUs, barriers included, dense arrays being given.

    Raises `ScheduleError` where the schedule binds no loop to a GPU axis.
    """
    signature = Signature(op, tuple((dtype, tuple(shape)) for dtype, shape in types))
    nest = signature.nest(schedule)
    if not any(loop.kind in AXES for loop in loops(nest.tree)):
        raise ScheduleError(
            f"{op.name}: the schedule binds no loop to a GPU axis; "
            f'bind one, such as bind("i", "block.x")'
        )
    try:
        return lower(nest, symbol(op.name), machine=MACHINE)
    except ScheduleError as error:
        raise ScheduleError(f"{op.name}: {error}") from None


def ptx_of(op: Op, types: Types, schedule: Schedule, target: str = "sm_80") -> str:
    """The PTX text of an operator for inputs of these element types and shapes."""
    return nvptx.ptx(kernel_of(op, types, schedule), target)


def parse_device(device: str) -> tuple[str, int]:
    """Kind and number of a device: ("simt", 0) of "simt", ("cuda", 1) of "cuda:1"."""
    kind, _, number = str(device).partition(":")
    if kind not in ("simt", "cuda") or not (number or "0").isdecimal():
        raise DeviceError(f"no device is called {device!r}; expected simt, simt:n, cuda or cuda:n")
    return kind, int(number or 0)


def run_on(op: Op, arrays: Sequence[Array], schedule: Schedule, device: str) -> Any:
    """The results of an operator on a device: "simt" (or "simt:n") emulates, "cuda:n" is a GPU.

    Raises `DeviceError` for a device that is not there, with what is missing.
    """
    kind, number = parse_device(device)
    if kind == "simt":
        return emulate_op(op, arrays, schedule)
    return run_op(op, arrays, schedule, number)


def emulate_op(op: Op, arrays: Sequence[Array], schedule: Schedule, seed: int = 0) -> Any:
    """The results of an operator, its GPU kernels emulated on the host with races checked.

    `seed` chooses the order of threads. Raises `simt.Race` where threads race.
    """
    return _run(op, arrays, schedule, lambda function, all_: simt.emulate(function, all_, seed))


def run_op(op: Op, arrays: Sequence[Array], schedule: Schedule, device: int = 0) -> Any:
    """The results of an operator, run on the GPU `cuda:device`."""
    return _run(op, arrays, schedule, cuda.device(device).run)


def _run(
    op: Op,
    arrays: Sequence[Array],
    schedule: Schedule,
    execute: Callable[[Function, Sequence[Array]], None],
) -> Any:
    """The result, or a tuple of them, as calls on the host give them."""
    dense = {p.name: np.ascontiguousarray(a) for p, a in zip(op.params, arrays, strict=True)}
    declared = [p.type.dtype for p in op.params]
    types = [
        (from_numpy(array.dtype, dtype), array.shape)
        for array, dtype in zip(dense.values(), declared, strict=True)
    ]
    function = kernel_of(op, types, schedule)
    signature = Signature(op, tuple(types))
    outs = {
        name: np.empty(shape, dtype)
        for name, (shape, dtype) in zip(op.returns, signature.results, strict=True)
    }
    sizes = {parameter(name): np.array(n, np.int64) for name, n in signature.dynamic.items()}
    try:
        given = dense | outs | sizes
        execute(function, [as_bits(given[param.name]) for param in function.params])
    except OutsideError as error:
        raise outside(op, error.site, list(dense.values())) from None
    results = tuple(outs[name] for name in op.returns)
    return results[0] if len(results) == 1 else results
