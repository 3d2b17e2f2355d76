"""The thread pool of parallel loops: system threads that live in compiled code.

No thread starts before a parallel kernel first runs. Workers know nothing of Python: they hold no
interpreter lock, take no signal, and an interpreter that ends need not wait for them. A forked
child starts workers of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from operator import index
from typing import Any, SupportsIndex

import llvmlite.binding as llvm
import numpy as np

from ..algo.errors import Error
from . import jit
from .kept import kept_object
from .pool_code import BYTES, FIELDS, OFFSETS, pool_llvm
from .thread_count import MOST, available, default_threads

EAGER, PATIENT = 50e-6, 1e-3
"""Seconds for which a thread without work looks for it all the time, and then between letting
others run, before it sleeps. To wake one takes some 20 us."""

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_local = threading.local()


class ThreadCountError(Error, ValueError):
    """A number of threads that is none, below 1, or more than a pool counts."""


class Pool:
    """Up to `threads` threads, the caller's included, for one parallel loop at a time."""

    def __init__(self, threads: SupportsIndex) -> None:
        self.threads = _count(threads)
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._crew: _Crew | None = None
        self._leases: dict[int, tuple[int, int]] = {1: (0, 1)}

    def lease(self) -> tuple[int, int]:
        """What one call of a kernel gets: the address of a handle, workers running (0 for one
        thread), and how many threads may work for it, each of which needs its part of memory."""
        return self._leases.get(self.threads) or self._start(self.threads)

    def resize(self, threads: SupportsIndex) -> None:
        """Sets the number of threads from the next call of a kernel on."""
        self.threads = _count(threads)

    def _start(self, threads: int) -> tuple[int, int]:
        with self._lock:
            if self._crew is None:
                self._crew = _Crew()
            crew = self._crew
            running = crew.grow(threads - 1)
            if running < threads - 1:
                warnings.warn(
                    f"the system gives {running + 1} of {threads} threads; parallel loops use them",
                    RuntimeWarning,
                    stacklevel=2,
                )
            lease = crew.handle(min(running, threads - 1)), threads
            everyone = sum(pool._crew.workers + 1 for pool in list(_pools) if pool._crew)
            # Where threads outnumber processors, one that spins keeps another from its work.
            crew.wait(*((EAGER, PATIENT) if everyone <= available() else (0, EAGER)))
            self._leases[threads] = lease
            return lease

    def close(self) -> None:
        """Ends the workers; the next parallel loop starts others."""
        with self._lock:
            crew, self._crew, self._leases = self._crew, None, {1: (0, 1)}
        if crew is not None:
            crew.end()

    def __del__(self) -> None:
        crew = getattr(self, "_crew", None)
        if crew is not None:
            crew.end()


class _Crew:
    """Workers, and the memory that they and the launchers of regions share."""

    def __init__(self) -> None:
        self.workers = 0
        self._memory = _lines(BYTES)
        self._handles: list[Any] = []
        code().setup(self._memory.ctypes.data)

    def grow(self, workers: int) -> int:
        """Starts workers until there are that many; returns how many there are."""
        self.workers = code().grow(self._memory.ctypes.data, workers)
        return self.workers

    def handle(self, workers: int) -> int:
        """The address of a handle for regions of up to `workers` workers; it lives as we do."""
        handle = _lines(64)
        self._handles.append(handle)
        code().handle(handle.ctypes.data, self._memory.ctypes.data, workers)
        return int(handle.ctypes.data)

    def wait(self, eager: float, patient: float) -> None:
        """Sets for how many seconds a thread waits before it sleeps."""
        for name, seconds in (("eager", eager), ("patient", patient)):
            at = OFFSETS[name]
            self._memory[at : at + 8].view(np.int64)[0] = seconds / code().pause

    @property
    def alive(self) -> int:
        """Workers that have not ended."""
        at = OFFSETS["alive"]
        return int(self._memory[at : at + 4].view(np.int32)[0])

    def end(self) -> None:
        """Makes the workers end as soon as they have no work; the memory stays until they have."""
        code().stop(self._memory.ctypes.data)
        _ending.append(self)
        _ending[:] = [crew for crew in _ending if crew.alive]


_ending: list[_Crew] = []


def _lines(count: int) -> Any:
    """Zeroed memory that starts with a cache line."""
    raw = np.zeros(count + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + count]


def _count(threads: SupportsIndex) -> int:
    try:
        number = 0 if isinstance(threads, bool) else index(threads)
    except TypeError:
        number = 0
    if not 1 <= number <= MOST:
        raise ThreadCountError(f"threads: {threads!r} came; expected an integer from 1 to {MOST}")
    return number


class _Code:
    """The compiled half. `pause` is how long a pause takes, in seconds."""

    def __init__(self) -> None:
        text = partial(pool_llvm, llvm.get_process_triple())
        self.loaded = jit.Loaded(kept_object("pool", text))
        # Workers may outlive the interpreter, and all that it frees.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.loaded))
        pointer = ctypes.c_void_p
        # These are short: they keep the interpreter lock.
        self.setup = self._function("setup", None, pointer)
        self.handle = self._function("handle", None, pointer, pointer, ctypes.c_int64)
        self.grow = self._function("grow", ctypes.c_int, pointer, ctypes.c_int)
        self.stop = self._function("stop", None, pointer)
        self.pause = self._pause()

    def _function(self, name: str, result: Any, *args: Any) -> Any:
        return ctypes.PYFUNCTYPE(result, *args)(self.loaded.address(name))

    def _pause(self) -> float:
        pauses, taken = self._function("pauses", None, ctypes.c_int64), []
        for _ in range(3):  # the shortest is the one that nobody interrupted
            start = time.perf_counter()
            pauses(1000)
            taken.append(time.perf_counter() - start)
        return max(min(taken) / 1000, 1e-10)


@cache
def code() -> _Code:
    """The compiled half, made when it is first needed."""
    return _Code()


class _Shared:
    """The pool of all threads that have no other, made when it is first needed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pool: Pool | None = None

    def get(self) -> Pool:
        if self.pool is None:
            with self.lock:
                self.pool = self.pool or Pool(default_threads())
        return self.pool


_shared = _Shared()


def current() -> Pool:
    """The pool that this Python thread's parallel loops use."""
    found: Pool | None = getattr(_local, "pool", None)
    return found or _shared.get()


def threads(n: SupportsIndex | None = None) -> int:
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
        if pool._crew is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool._crew))  # as it may outlive us
        pool.close()


def _after_fork() -> None:
    """The child has none of the workers, and locks may have been held by threads now gone."""
    _ending.clear()
    _shared.lock = threading.Lock()
    for pool in list(_pools):
        pool._reset()


os.register_at_fork(after_in_child=_after_fork)
assert set(OFFSETS) <= set(FIELDS)
