"""The thread pool of parallel loops: Python threads that live in compiled code.

No thread starts before a parallel kernel first runs. Workers are daemon threads that hold no
interpreter lock; they are stopped at exit, and a forked child starts workers of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from ..algo.errors import Error
from . import jit
from .kept import kept_object
from .pool_code import FIELDS, OFFSETS, PAGE, pool_llvm
from .thread_count import available, default_threads

SPINS = 2000  # pauses before a thread goes to sleep: some tens of microseconds
_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_local = threading.local()


class ThreadCountError(Error, ValueError):
    """A number of threads below 1 or not a number."""


class Pool:
    """Up to `threads` threads, the caller's included, for one parallel loop at a time."""

    def __init__(self, threads: int) -> None:
        self.threads = _count(threads)
        self._lock = threading.Lock()
        self._workers: list[threading.Thread] = []
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        raw = np.zeros(PAGE + 64, np.uint8)
        skip = -raw.ctypes.data % 64
        self._memory = raw[skip : skip + PAGE]
        self._workers.clear()
        self._ready = 0  # workers running

    def address(self) -> int:
        """What kernels get: the pool's memory with its workers started, or 0 for one thread."""
        if self._ready != self.threads - 1:
            self._start()
        return 0 if self.threads == 1 else int(self._memory.ctypes.data)

    @property
    def slots(self) -> int:
        """How many threads may be in a parallel loop at once, just after `resize` too."""
        return max(self.threads, len(self._workers) + 1)

    def resize(self, threads: int) -> None:
        """Sets the number of threads from the next parallel loop on."""
        self.threads = _count(threads)

    def _start(self) -> None:
        with self._lock:
            code = _code()
            address = self._memory.ctypes.data
            if not self._workers:
                code.setup(address)
            for index in range(len(self._workers), self.threads - 1):
                worker = threading.Thread(
                    target=_live,
                    args=(code, self._memory, index),
                    name=f"diptych-{index}",
                    daemon=True,
                )
                self._workers.append(worker)
                worker.start()
            running = sum(len(pool._workers) + 1 for pool in list(_pools) if pool._workers)
            # Where threads outnumber processors, one that spins keeps another from its work.
            self._field("spins", np.int64)[0] = SPINS if running <= available() else SPINS // 20
            self._field("limit", np.int32)[0] = self.threads - 1
            self._ready = self.threads - 1

    def _field(self, name: str, dtype: Any) -> Any:
        at = OFFSETS[name]
        return self._memory[at : at + np.dtype(dtype).itemsize].view(dtype)

    def close(self) -> None:
        """Ends the workers."""
        with self._lock:
            if self._workers:
                _code().stop(self._memory.ctypes.data)
                for worker in self._workers:
                    worker.join(timeout=1)
            self._reset()


def _live(code: _Code, memory: Any, index: int) -> None:
    code.worker(memory.ctypes.data, index)


def _count(threads: int) -> int:
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads < 1 << 15:
        raise ThreadCountError(f"threads: {threads!r} came; expected an integer of at least 1")
    return threads


class _Code:
    """The compiled half."""

    def __init__(self) -> None:
        text = partial(pool_llvm, llvm.get_process_triple())
        self.loaded = jit.Loaded(kept_object("pool", text))
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        signature = ctypes.CFUNCTYPE(None, pointer)
        self.setup = signature(self.loaded.address("setup"))
        self.stop = signature(self.loaded.address("stop"))
        self.worker = ctypes.CFUNCTYPE(None, pointer, number)(self.loaded.address("worker"))


@cache
def _code() -> _Code:
    return _Code()


@cache
def _default() -> Pool:
    return Pool(default_threads())


def current() -> Pool:
    """The pool that this Python thread's parallel loops use."""
    found: Pool | None = getattr(_local, "pool", None)
    return found or _default()


def threads(n: int | None = None) -> int:
    """Sets the number of threads of parallel loops, if given, and returns it."""
    if n is not None:
        current().resize(n)
    return current().threads


@contextmanager
def using(pool: Pool) -> Iterator[Pool]:
    """Within: this Python thread's parallel loops run on `pool`, a group of threads of its own."""
    before = getattr(_local, "pool", None)
    _local.pool = pool
    try:
        yield pool
    finally:
        _local.pool = before


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def _after_fork() -> None:
    """The child has none of the workers, and locks may have been held by threads now gone."""
    for pool in list(_pools):
        pool._lock = threading.Lock()
        pool._reset()


os.register_at_fork(after_in_child=_after_fork)
assert set(OFFSETS) <= set(FIELDS)
