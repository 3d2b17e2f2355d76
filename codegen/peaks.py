"""The machine's peaks, measured by kernels of our own in well under a second, once.

They are kept in the cache folder, by compiler, processor and number of threads: what another
version measured, with other kernels and written in another form, is not this one's. Each figure is
the best of several short runs, so that a busy machine is not taken for a slow one.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..lower import passes
from ..lower.ir_parse import parse_function
from ..sched.loop.machine import Machine
from ..sched.loop.peaks import Peaks
from . import pool
from .cache import default_cache
from .host import machine
from .host_code import compile
from .jit import LOCK
from .kept import object_key

_RUNS = 7
_SECONDS = 0.01
"""How long one figure is measured, at least."""
_CHAINS = 12
"""Independent sums: more than an addition's latency times the additions a cycle."""
_BEHIND = 64 << 20
"""Bytes that do not fit into a second cache."""


def peaks(*, again: bool = False) -> Peaks:
    """This machine's peaks at the present number of threads; measured `again` they only rise."""
    host = machine()
    cache = default_cache()
    key = f"peaks-{object_key(host.vector_bytes, host.l1, host.l2, host.threads)}"
    entry = cache.get(key)
    found = None if entry is None else Peaks.of(entry[0])
    if found is None or again:
        now = measure(host)
        found = now if found is None else found.or_better(now)
        cache.put(key, found.facts(), b"")
    return found


def measure(host: Machine) -> Peaks:
    """The peaks, measured now."""
    counts = (1, host.threads)
    operations = {
        dtype: tuple(_operations(dtype, host, n) for n in counts) for dtype in ("f32", "f64")
    }
    if host.matrices:
        operations["i8"] = tuple(_products(host, n) for n in counts)
    elif 4 in host.dots:  # four products where f32 has one
        operations["i8"] = tuple(4 * rate for rate in operations["f32"])
    sizes = {"l1": host.l1 // 2, "l2": host.l2 // 2, "memory": _BEHIND}
    moved = {
        level: tuple(_bytes(max(size, 4096), host, n) for n in counts)
        for level, size in sizes.items()
    }
    return Peaks(
        host.threads,
        {dtype: (one, every) for dtype, (one, every) in operations.items()},
        {level: (one, every) for level, (one, every) in moved.items()},
        _region(host.threads) if host.threads > 1 else 0.0,
    )


def _operations(dtype: str, host: Machine, threads: int) -> float:
    """Additions and multiplications a second: chains of fused ones in registers."""
    lanes = host.lanes(8 if dtype == "f64" else 4)
    rounds, cells = 20_000, _CHAINS * lanes
    chains = "".join(
        f"                for v in {k * lanes} .. {k * lanes + lanes} vector({lanes}):\n"
        f"                    r[v] sum= r[v] * x[v]\n"
        for k in range(_CHAINS)
    )
    text = (
        f"function peak(x: param {dtype}[{cells}], y: param {dtype}[{threads}, {cells}]):\n"
        f"    for t in 0 .. {threads} parallel:\n"
        f"        alloc r: register {dtype}[{cells}] align 64:\n"
        + _each(lanes, "r[v] = x[v]")
        + f"            for n in 0 .. {rounds}:\n{chains}"
        + _each(lanes, "y[t, v] = r[v]")
    )
    kind = np.dtype("float64" if dtype == "f64" else "float32")
    x, y = np.full(cells, -0.5, kind), np.empty((threads, cells), kind)
    return 2.0 * rounds * cells * threads / _best(text, x, y)


def _products(host: Machine, threads: int) -> float:
    """The same on bytes in the matrix unit: the largest block, again and again."""
    rounds = 5_000
    text = (
        f"function peak(x: param i8[32, 64], y: param i32[{threads}, 32, 32],"
        " w: param i8[2, 16, 16, 4]):\n"
        f"    for t in 0 .. {threads} parallel:\n"
        f"        for n in 0 .. {rounds}:\n"
        "            for i in 0 .. 32 matrix:\n"
        "                for j in 0 .. 32 matrix:\n"
        "                    for k in 0 .. 64 matrix:\n"
        "                        y[t, i, j] sum= i32(x[i, k]) *"
        " i32(w[j // 16, k // 4, j % 16, k % 4])\n"
    )
    x, w = np.ones((32, 64), np.int8), np.ones((2, 16, 16, 4), np.int8)
    y = np.zeros((threads, 32, 32), np.int32)
    return 2.0 * rounds * 32 * 32 * 64 * threads / _best(text, x, y, w, host=host)


def _each(lanes: int, statement: str) -> str:
    """A statement for the cells of all chains."""
    return "".join(
        f"            for v in {k * lanes} .. {k * lanes + lanes} vector({lanes}):\n"
        f"                {statement}\n"
        for k in range(_CHAINS)
    )


def _bytes(size: int, host: Machine, threads: int) -> float:
    """Bytes a second that sums over arrays of that size, one a thread, read."""
    lanes = host.lanes(4)
    step = _CHAINS * lanes
    steps = max(1, size // (4 * step))
    rounds = max(1, (1 << 22) // size)
    chains = "".join(
        f"                    for v in {k * lanes} .. {k * lanes + lanes} vector({lanes}):\n"
        f"                        r[v] sum= x[t, {step} * i + v]\n"
        for k in range(_CHAINS)
    )
    text = (
        f"function peak(x: param f32[{threads}, {steps * step}],"
        f" y: param f32[{threads}, {step}]):\n"
        f"    for t in 0 .. {threads} parallel:\n"
        f"        alloc r: register f32[{step}] align 64:\n"
        + _each(lanes, "r[v] = 0.0:f32")
        + f"            for n in 0 .. {rounds}:\n"
        + f"                for i in 0 .. {steps}:\n{chains}"
        + _each(lanes, "y[t, v] = r[v]")
    )
    x, y = np.ones((threads, steps * step), np.float32), np.empty((threads, step), np.float32)
    return x.nbytes * rounds / _best(text, x, y)


def _region(threads: int) -> float:
    """Seconds of a parallel region with nothing to do."""
    text = (
        f"function peak(x: param f32[1], y: param f32[{threads}]):\n"
        f"    for n in 0 .. 100:\n"
        f"        for t in 0 .. {threads} parallel:\n"
        f"            y[t] = x[0]\n"
    )
    return _best(text, np.ones(1, np.float32), np.empty(threads, np.float32)) / 100


def _best(text: str, *arrays: np.ndarray[Any, Any], host: Machine | None = None) -> float:
    """The least seconds of a run of the function, after passes for a host where one is given."""
    run = _compiled(text, arrays, host)
    run()
    best, end = float("inf"), time.perf_counter() + _SECONDS
    for n in range(1000):
        if n >= _RUNS and time.perf_counter() > end:
            break
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def _compiled(
    text: str, arrays: tuple[np.ndarray[Any, Any], ...], host: Machine | None
) -> Callable[[], None]:
    function = parse_function(text)
    if host is not None:
        function = passes.run(function, host)
    with LOCK:
        code = compile(function)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * (2 + len(arrays)))
    call = kind(code.loaded.address(function.name))
    threads = pool.current()

    def run(keep: Any = (code, arrays)) -> None:
        call(threads.lease()[0], 0, *[a.ctypes.data for a in arrays])

    return run
