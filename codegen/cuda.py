"""Running kernels on NVIDIA GPUs through pycuda, the optional extra `cuda`.

Nothing of CUDA is touched before a device is asked for, so importing this module starts nothing.
pycuda raises for every status of the driver that is not success; here that becomes a
`DeviceError`. A forked child must not use what its parent began, so it is refused by name.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from ..algo.errors import DeviceError
from ..lower.ir import Function, Store, Update, contiguous, walk
from .gpu_limits import LIMITS, bytes_of, target_for
from .nvptx import Module, compile_ptx
from .outside import OutsideError

Array = np.ndarray[Any, Any]
DRIVER = "libcuda.so.1"
_lock = threading.RLock()
_devices: dict[int, Cuda] = {}
_inherited = False


def missing() -> list[str]:
    """What this machine lacks for CUDA, in words; nothing is initialised to find out."""
    lacks = []
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        lacks.append(f"NVIDIA's driver ({DRIVER}) was not found")
    if importlib.util.find_spec("pycuda") is None:
        lacks.append("pycuda is not installed (the extra diptych[cuda])")
    return lacks


def driver_version() -> str | None:
    """The newest CUDA that NVIDIA's driver knows, None without a driver. Nothing is initialised."""
    number = ctypes.c_int()
    try:
        failed = ctypes.CDLL(DRIVER).cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return None if failed else f"CUDA {number.value // 1000}.{number.value % 1000 // 10}"


def device(index: int = 0) -> Cuda:
    """The GPU `cuda:index`, initialised when first asked for.

    Raises `DeviceError` that names what is missing.
    """
    if _inherited:
        raise DeviceError(
            f"cuda:{index}: CUDA was used before this process was forked, and cannot be used after "
            f"fork; start processes with multiprocessing's spawn or forkserver"
        )
    with _lock:
        if index not in _devices:
            lacks = missing()
            if lacks:
                raise DeviceError(f"cuda:{index} cannot be used: {' and '.join(lacks)}")
            _devices[index] = Cuda(index)
        return _devices[index]


class Cuda:
    """One GPU, by its primary context. Kernels are compiled once for each function."""

    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"
        self._driver: Any = importlib.import_module("pycuda.driver")
        self._modules: dict[Function, tuple[Module, list[Any]]] = {}
        with self._checked("cannot be initialised"):
            self._driver.init()
            count = self._driver.Device.count()
            if index >= count:
                raise DeviceError(f"{self.name} does not exist: the driver finds {count} GPUs")
            gpu = self._driver.Device(index)
            self._context = gpu.retain_primary_context()
            limits = LIMITS[target_for(gpu.compute_capability())]
            attribute = self._driver.device_attribute
            self.limits = replace(
                limits,
                shared=gpu.get_attribute(attribute.MAX_SHARED_MEMORY_PER_BLOCK),
                opt_in=gpu.get_attribute(attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
                threads=gpu.get_attribute(attribute.MAX_THREADS_PER_BLOCK),
            )

    def run(self, function: Function, arrays: Sequence[Array]) -> None:
        """Runs a function, in the form that `lower.passes.barriers` gives, on dense host arrays.

        What it writes is copied back in place when all of it has succeeded. Raises `DeviceError`
        where CUDA fails, `OutsideError` for an index read from an array that is out of range.
        """
        _check_dense(function, arrays)
        written = {s.buffer for s in walk(function.body) if isinstance(s, (Store, Update))}
        with _lock, self._checked(f"{function.name} failed"), self._current():
            module, kernels = self._load(function)
            driver = self._driver
            status = np.zeros(1, np.int64)
            host = [*arrays, status]
            memory = [driver.mem_alloc(max(array.nbytes, 1)) for array in host]
            between = [driver.mem_alloc(max(bytes_of(b), 1)) for b in module.between]
            for array, there in zip(host, memory, strict=True):
                if array.nbytes:
                    driver.memcpy_htod(there, array)
            pointers = [*memory[:-1], *between, memory[-1]]
            for kernel, code in zip(module.kernels, kernels, strict=True):
                if all((*kernel.grid, *kernel.block)):
                    code(*pointers, grid=kernel.grid, block=kernel.block, shared=kernel.dynamic)
            self._context.synchronize()
            driver.memcpy_dtoh(status, memory[-1])
            if not status[0]:
                for param, array, there in zip(function.params, arrays, memory, strict=False):
                    if param.name in written and array.nbytes:
                        driver.memcpy_dtoh(array, there)
        if status[0]:
            raise OutsideError(function.name, module.sites[int(status[0]) - 1])

    def _load(self, function: Function) -> tuple[Module, list[Any]]:
        if function not in self._modules:
            module = compile_ptx(function, self.limits)
            loaded = self._driver.module_from_buffer(module.ptx.encode() + b"\0")
            kernels = [loaded.get_function(kernel.name) for kernel in module.kernels]
            asked = self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            for kernel, code in zip(module.kernels, kernels, strict=True):
                if kernel.dynamic:
                    code.set_attribute(asked, kernel.dynamic)
            self._modules[function] = module, kernels
        return self._modules[function]

    @contextmanager
    def _current(self) -> Iterator[None]:
        self._context.push()
        try:
            yield
        finally:
            self._context.pop()

    @contextmanager
    def _checked(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._driver.Error as error:
            raise DeviceError(f"{self.name}: {what}: {error}") from error


def _check_dense(function: Function, arrays: Sequence[Array]) -> None:
    for param, array in zip(function.params, arrays, strict=True):
        dense = param.extents or param.strides == contiguous(param.shape)
        if not (dense and array.flags.c_contiguous):
            raise DeviceError(
                f"{function.name}: {param.name} has strides {array.strides}, and only dense arrays "
                f"are copied to a GPU; pass np.ascontiguousarray({param.name})"
            )


def _after_fork() -> None:
    global _lock, _inherited
    _lock = threading.RLock()
    _inherited = _inherited or bool(_devices)


os.register_at_fork(after_in_child=_after_fork)
