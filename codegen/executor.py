"""The executor: runs a plan. It knows kernels, places and collectives, and nothing of planning.

What can be decided once is decided when the executor is made: kernels are compiled, arenas
allocated, every value of an arena has its array. A call only binds arguments and outputs, and
walks the steps. So nothing is allocated in steady state but the outputs.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..algo.dtypes import DType, as_bits, bf16, bf16_form, from_numpy
from ..algo.errors import DTypeError, ScheduleError, ShapeError, check_count
from ..algo.graph.graph import ArrayType, Literal
from ..algo.tensor_expr.op import Op
from ..lower.plan import (
    ALIGN,
    AllGather,
    AllReduce,
    Copy,
    Launch,
    Plan,
    PlanInput,
    Slice,
    Slot,
    Step,
)
from ..sched.loop.schedule import Schedule
from . import collectives
from .kernels import compile_op
from .pool import Pool, threads, using
from .replicas import Replicas

Array = np.ndarray[Any, Any]
Types = Sequence[tuple[DType, tuple[int, ...]]]
Kernel = Callable[[Sequence[Array], Sequence[Array]], None]
"""Reads the first arrays, writes the second, which are dense, aligned and apart."""
Compile = Callable[[Op, Types, str | None], Kernel]


def compile_kernel(op: Op, types: Types, schedule: str | None) -> Kernel:
    """The machine code of an operator under the text of a loop schedule. Its calls check nothing
    that the plan has settled, only indices that come from data.

    A schedule that does not fit these sizes gives way to the default one, with a warning.
    """
    try:
        given = None if schedule is None else Schedule.parse(op, schedule)
        native = compile_op(op, types, given).dense
    except ScheduleError as error:
        if schedule is None:
            raise
        warnings.warn(
            f"{op.name}: its schedule does not fit these sizes, so the default runs: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        native = compile_op(op, types).dense

    def run(arrays: Sequence[Array], outs: Sequence[Array]) -> None:
        status = native.run(arrays, outs)
        if status:
            raise native.error(status, op, arrays)

    return run


class Executor:
    """Runs `plan`: called with one array an input, it returns one array an output.

    Calls are serialised, since they share the arenas. Raises `ShapeError` and `DTypeError` for
    arguments of other types than the plan's.
    """

    def __init__(self, plan: Plan, compile: Compile = compile_kernel) -> None:
        self.plan = plan
        ends = [given.type for given in plan.inputs] + [out.type for out in plan.outputs]
        self._halves = any(kind.dtype is bf16 for kind in ends)
        made: dict[tuple[Any, ...], Kernel] = {}
        self.kernels: dict[str, Kernel] = {}
        for name, spec in plan.kernels.items():
            key = (spec.op, spec.types, spec.schedule)
            if key not in made:
                types = [(t.dtype, t.shape) for t in spec.types]
                made[key] = compile(spec.op, types, spec.schedule)
            self.kernels[name] = made[key]
        # Groups of threads share out the processors, as replicas and devices run side by side.
        groups = max(plan.replicas, sum(device != "cpu" for device in plan.arenas), 1)
        each = max(1, threads() // groups)
        self.pools = {device: Pool(each) for device in plan.arenas if device != "cpu"}
        self.replicas = Replicas(plan.replicas)
        self._lock = threading.Lock()
        _executors.add(self)
        self._shards = [_Shard(self, replica, compile) for replica in range(plan.replicas)]
        for shard in self._shards:
            shard.connect(self._shards)

    def __call__(self, *arrays: Any) -> list[Array]:
        """The outputs, in arrays of their own; those of bf16 are bfloat16 where an input is."""
        plan = self.plan
        check_count(plan.name, [given.name for given in plan.inputs], len(arrays))
        given = [_argument(plan, g, a) for g, a in zip(plan.inputs, arrays, strict=True)]
        whole = [as_bits(array) for array in given] if self._halves else given
        outputs = [np.empty(out.type.shape, out.type.dtype.numpy) for out in plan.outputs]
        with self._lock:
            self.replicas.run(lambda replica: self._shards[replica].run(whole, outputs))
        if not self._halves:
            return outputs
        form = bf16_form(given)
        kinds = [out.type.dtype for out in plan.outputs]
        return [a.view(form) if k is bf16 else a for a, k in zip(outputs, kinds, strict=True)]


class _Shard:
    """One replica: its arenas, the arrays of its slots, and its steps ready to run."""

    def __init__(self, owner: Executor, replica: int, compile: Compile) -> None:
        plan = owner.plan
        self.owner, self.plan, self.replica = owner, plan, replica
        self.arenas = {device: _aligned(size) for device, size in plan.arenas.items()}
        self.arrays: dict[str, Array] = {}
        self.steps: list[Callable[[], None]] = []
        for slot in plan.slots.values():
            if slot.home == "arena":
                self.arrays[slot.name] = _view(self.arenas[slot.device], slot.offset, slot.type)
            elif slot.home == "const":
                self.arrays[slot.name] = _constant(plan.literals[slot.index])
            elif not self._is_bound(slot):
                self.arrays[slot.name] = _view(_aligned(_bytes(slot.type)), 0, slot.type)
        self.reductions = {
            at: collectives.AllReduce(
                self._run_of(step), self._dtype(step), step.reducer, replica, plan.replicas, compile
            )
            for at, step in enumerate(plan.steps)
            if isinstance(step, AllReduce)
        }

    def connect(self, shards: Sequence[_Shard]) -> None:
        """Prepares the steps, now that every replica has its arrays."""
        self.steps = [self._step(at, step, shards) for at, step in enumerate(self.plan.steps)]

    def run(self, whole: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Block 1, on this replica's part of the arguments, into its part of the outputs."""
        plan, arrays = self.plan, self.arrays
        for given, array in zip(plan.inputs, whole, strict=True):
            part = array if given.split is None else self._part(array, given.split)
            if self._is_bound(plan.slots[given.name]):
                arrays[given.name] = part
            else:
                np.copyto(arrays[given.name], part)
        targets: list[tuple[Array, str]] = []
        for index, out in enumerate(plan.outputs):
            slot = plan.slots[out.slot]
            if out.split is None and self.replica > 0:
                continue  # every replica has it, and the first one gives it
            target = outputs[index]
            part = target if out.split is None else self._part(target, out.split)
            if slot.home == "output" and slot.index == index:
                arrays[out.slot] = part
            else:
                targets.append((part, out.slot))
        for step in self.steps:
            step()
        for part, name in targets:
            np.copyto(part, arrays[name])
        for slot in plan.slots.values():
            if self._is_bound(slot):
                del arrays[slot.name]  # the caller's arrays are not kept alive

    def _is_bound(self, slot: Slot) -> bool:
        """Is the slot the caller's memory, bound anew at every call?"""
        if slot.home == "input":
            return self.plan.inputs[slot.index].split in (None, 0)
        if slot.home == "output":
            return self.replica == 0 or self.plan.outputs[slot.index].split is not None
        return False

    def _part(self, array: Array, dim: int) -> Array:
        size = array.shape[dim] // self.plan.replicas
        at = slice(self.replica * size, (self.replica + 1) * size)
        found: Array = array[(slice(None),) * dim + (at,)]
        return found

    def _dtype(self, step: AllReduce) -> DType:
        return self.plan.slots[step.values[0]].type.dtype

    def _run_of(self, step: AllReduce) -> Array:
        """The elements that an all_reduce covers: its values and the gaps between them."""
        slot = self.plan.slots[step.values[0]]
        whole = ArrayType((step.length,), slot.type.dtype)
        return _view(self.arenas[slot.device], step.offset, whole)

    def _step(self, at: int, step: Step, shards: Sequence[_Shard]) -> Callable[[], None]:
        arrays, meet = self.arrays, self.owner.replicas.meet
        match step:
            case Launch(name, args, results, device, _, _):
                return self._launch(name, args, results, self.owner.pools.get(device))
            case Copy(source, target, _):
                return lambda: np.copyto(arrays[target], arrays[source])
            case Slice(source, target, dim):
                return lambda: np.copyto(arrays[target], self._part(arrays[source], dim))
            case AllGather(source, target, dim, _):
                return lambda: collectives.all_gather(
                    arrays[target], lambda: [shard.arrays[source] for shard in shards], dim, meet
                )
            case AllReduce():
                sides = [shard.reductions[at] for shard in shards]
                return lambda: self.reductions[at](sides, meet)

    def _launch(
        self, name: str, args: Sequence[str], results: Sequence[str], pool: Pool | None
    ) -> Callable[[], None]:
        arrays, kernel = self.arrays, self.owner.kernels[name]

        def launch() -> None:
            kernel([arrays[arg] for arg in args], [arrays[result] for result in results])

        def launch_on_pool() -> None:
            assert pool is not None
            with using(pool):
                launch()

        return launch if pool is None else launch_on_pool


def _argument(plan: Plan, given: PlanInput, array: Any) -> Array:
    found = np.asarray(array)
    if found.shape != given.type.shape or from_numpy(found.dtype) is not given.type.dtype:
        got = ArrayType(found.shape, from_numpy(found.dtype))
        kind = DTypeError if got.dtype is not given.type.dtype else ShapeError
        raise kind(f"{plan.name}: {given.name} is {got}; this plan is for {given.type}")
    if found.flags.c_contiguous and found.flags.aligned:
        return found
    return np.array(found, order="C")


def _constant(value: Literal) -> Array:
    array = np.frombuffer(value.data, value.type.dtype.numpy).reshape(value.type.shape)
    held = _view(_aligned(_bytes(value.type)), 0, value.type)
    np.copyto(held, array)
    return held


def _bytes(type_: ArrayType) -> int:
    return math.prod(type_.shape) * type_.dtype.itemsize


def _aligned(size: int) -> Array:
    """`size` bytes that start at a multiple of `ALIGN`."""
    raw = np.zeros(size + ALIGN, np.uint8)
    skip = -raw.ctypes.data % ALIGN
    return raw[skip : skip + size]


def _view(memory: Array, offset: int, type_: ArrayType) -> Array:
    found: Array = memory[offset : offset + _bytes(type_)].view(type_.dtype.numpy)
    return found.reshape(type_.shape)


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


def _after_fork() -> None:
    """The thread that was running a plan is not in the child; a run starts from its inputs."""
    for executor in list(_executors):
        executor._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
