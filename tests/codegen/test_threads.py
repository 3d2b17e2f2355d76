"""Parallel operators in hostile surroundings: threads, processes, signals, an interpreter's end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen import pool
from diptych.codegen.pool import Pool

LIMIT = 60  # seconds, for what would hang

ROWS = dt.op("rows(x: f32[N, K]) -> y:\n    y[i] = sum(x[i,k] * x[i,k])")
CALL = ROWS.schedule().parallel("i")


def rows(n: int = 64) -> tuple[Any, Any]:
    x = np.arange(n * 8, dtype=np.float32).reshape(n, 8) % 7
    return x, (x * x).sum(axis=1)


@pytest.mark.parametrize("sharing", ["static", "dynamic"])
def test_r72_partial_counts_start_at_nothing(sharing: str) -> None:
    count = dt.op("S[] = sum(x[i] + where(i > 10, 1, 0))")
    by_blocks = count.schedule().split("i", 7).rfactor("io").parallel("io", sharing)
    with pool.using(Pool(1)):
        for n, want in ((0, 0), (1, 1), (10, 10), (1000, 1989), (1_000_000, 1999989)):
            x = np.ones(n, np.int64)
            for threads in (1, 2, 3, 5, 32):
                dt.threads(threads)
                for _ in range(3):
                    assert by_blocks(x) == want


def test_r74_eight_python_threads() -> None:
    x, want = rows()
    CALL(x)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(1000):
            if not (CALL(x) == want).all():
                wrong.append("a result")

    with pool.using(Pool(2)):  # this thread's; the others share the common one
        callers = [threading.Thread(target=work, daemon=True) for _ in range(8)]
        for caller in callers:
            caller.start()
        work()
        until = time.monotonic() + LIMIT
        for caller in callers:
            caller.join(max(0, until - time.monotonic()))
    assert not wrong and not any(caller.is_alive() for caller in callers)


def test_a_program_is_called_from_eight_python_threads() -> None:
    """Its arena is one, so calls take turns; results are each caller's own."""
    softmax = dt.op("e[i,j] = exp(x[i,j])\ny[i,j] = e[i,j] / sum(e[i,k])", returns="y")
    dense = dt.op("y[i,j] = sum(x[i,k] * w[k,j])")
    step = dt.program(lambda x, w: softmax(dense(dense(x, w), w)))
    rng = np.random.default_rng(0)
    w = rng.random((64, 64), np.float32) / 32
    given = [rng.random((96, 64), np.float32) for _ in range(8)]
    want = [step(x, w) for x in given]
    assert np.isfinite(want).all()
    wrong: list[int] = []

    def work(n: int) -> None:
        for _ in range(30):
            if not np.array_equal(step(given[n], w), want[n]):
                wrong.append(n)

    callers = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(8)]
    for caller in callers:
        caller.start()
    until = time.monotonic() + LIMIT
    for caller in callers:
        caller.join(max(0, until - time.monotonic()))
    assert not wrong and not any(caller.is_alive() for caller in callers)


SOFTMAX = (
    "m[i] = max(x[i,j])\ne[i,j] = exp(x[i,j] - m[i])\ns[i] = sum(e[i,j])\ny[i,j] = e[i,j] / s[i]"
)
BLUR = "t[i,j] = x[i,j] + x[i,j+1] + x[i,j+2]\ny[i,j] = t[i,j] + t[i+1,j] + t[i+2,j]"


@pytest.mark.parametrize("text, inner", [(SOFTMAX, "sem"), (BLUR, "t")], ids=["softmax", "blur"])
def test_each_of_eight_threads_has_a_workspace(text: str, inner: str) -> None:
    """More than there are processors; what lies in it is too large for a stack."""
    op = dt.op(text, returns="y")
    made = op.schedule().split("y.i", 64)
    for stage in inner:
        made = made.compute_at(stage, "y.io")
    made = made.parallel("y.io")
    x = np.random.default_rng(1).random((803, 302), np.float32)
    want = dt.interpret(op, x)
    with pool.using(Pool(8)):
        for _ in range(20):
            np.testing.assert_allclose(made(x), want, rtol=2e-5)
    facts = made._memo["runner"].last.last.code.facts
    assert facts["parallel"] and facts["thread"] > 64 * 300 * 4


def test_r74_parallel_do_of_parallel_loops() -> None:
    other = dt.op("twice(x: f32[N, K]) -> y:\n    y[i,k] = 2 * x[i,k]")

    @dt.program
    def both(x: Any) -> Any:
        return ROWS(x), other(x)

    x, want = rows()
    with dt.schedules(CALL, other.schedule().parallel("i")), pool.using(Pool(4)):
        split = both.schedule().parallel_do(x=0, devices=2)
        for _ in range(20):
            sums, doubled = split(x)
            np.testing.assert_array_equal(sums, want)
            np.testing.assert_array_equal(doubled, 2 * x)


def test_the_number_of_threads_changes_while_others_call() -> None:
    x, want = rows()
    stop, wrong = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            if not (CALL(x) == want).all():
                wrong.append("a result")

    before = dt.threads()
    callers = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for caller in callers:
        caller.start()
    try:
        for threads in [1, 2, 7, 3, 16, 2] * 5:
            dt.threads(threads)
            np.testing.assert_array_equal(CALL(x), want)
    finally:
        stop.set()
        dt.threads(before)
    for caller in callers:
        caller.join(LIMIT)
    assert not wrong and not any(caller.is_alive() for caller in callers)


# Processes


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_r75_children(method: str) -> None:
    x, want = rows()
    np.testing.assert_array_equal(CALL(x), want)
    with multiprocessing.get_context(method).Pool(1) as children:
        np.testing.assert_array_equal(children.apply_async(CALL, (x,)).get(LIMIT), want)
    np.testing.assert_array_equal(CALL(x), want)


def test_forks_while_other_threads_are_in_parallel_loops() -> None:
    x, want = rows()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            CALL(x)

    callers = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                signal.alarm(LIMIT)
                os._exit(0 if (CALL(x) == want).all() else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
    for caller in callers:
        caller.join(LIMIT)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for all scripts, so that the first one compiles for the others."""
    return tmp_path_factory.mktemp("scripts")


def script(text: str, kept: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python text in a process of its own, in which `op` runs in parallel."""
    head = """
import os, signal, sys, threading, time
before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
import numpy as np
numpy_has = len(os.listdir("/proc/self/task")) if before else 0
import diptych as dt
x = np.ones((64, 8), np.float32)
op = dt.op("rows(x: f32[N, K]) -> y:\\n    y[i] = sum(x[i,k] * x[i,k])")
call = op.schedule().parallel("i")
long = dt.op("y[i] = sum(sin(x[i] * k)) where k in 0:100000").schedule().parallel("i")
"""
    return subprocess.run(
        [sys.executable, "-P", "-c", head + text],
        env={**os.environ, "DIPTYCH_CACHE_DIR": str(kept), "DIPTYCH_NUM_THREADS": "3"},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT,
    )


def ends_well(text: str, kept: Path) -> None:
    done = script(text, kept)
    assert (done.returncode, done.stderr) == (0, "")


def test_r75_no_thread_at_import_and_a_clean_end(kept: Path) -> None:
    ends_well(
        """
if before:
    assert len(os.listdir("/proc/self/task")) == numpy_has
assert (call(x) == 8).all()
if before:
    assert len(os.listdir("/proc/self/task")) == numpy_has + 2
assert threading.active_count() == 1
""",
        kept,
    )


def test_an_end_amid_parallel_loops(kept: Path) -> None:
    """Threads of Python that are in a kernel, or always enter another, keep nobody."""
    ends_well(
        """
z = np.ones(4096)
long(z[:2])
def always():
    while True:
        call(x)
for target in (always, always, lambda: long(z)):
    threading.Thread(target=target, daemon=True).start()
time.sleep(0.05)
""",
        kept,
    )


def test_an_interrupt_waits_for_the_kernel(kept: Path) -> None:
    """What Ctrl-C interrupts is raised when the kernel is through: its output is whole."""
    ends_well(
        """
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts us may have ignored it
z, y = np.ones(64), np.zeros(64)
want = long(z)
timer = threading.Timer(0.01, lambda: os.kill(os.getpid(), signal.SIGINT))
timer.start()
try:
    for _ in range(1000):
        y[:] = 0
        long(z, out=y)
    raise SystemExit("no interrupt came")
except KeyboardInterrupt:
    pass
timer.join()
assert (y == want).all() or (y == 0).all()
assert (call(x) == 8).all()
""",
        kept,
    )


def test_signals_reach_python_and_no_worker(kept: Path) -> None:
    """A handler that runs between and within many regions disturbs none of them."""
    ends_well(
        """
call(x)
seen = []
def handler(number, frame):
    seen.append((call(x) == 8).all())  # a parallel loop within a handler
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
until = time.monotonic() + 20
while len(seen) < 50 and time.monotonic() < until:
    assert (call(x) == 8).all()
signal.setitimer(signal.ITIMER_REAL, 0)
assert len(seen) >= 50 and all(seen)
""",
        kept,
    )


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no such masks")
def test_fewer_processors_at_run_time(kept: Path) -> None:
    """All threads of the process on one processor, then on all again."""
    ends_well(
        """
all_of_them = os.sched_getaffinity(0)
assert (call(x) == 8).all()
for mask in ({min(all_of_them)}, {max(all_of_them)}, all_of_them):
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), mask)
    start = time.process_time()
    for _ in range(200):
        assert (call(x) == 8).all()
    assert time.process_time() - start < 10
    dt.threads(2 + len(mask))
    assert (call(x) == 8).all()
""",
        kept,
    )
