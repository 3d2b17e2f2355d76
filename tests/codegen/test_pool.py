"""The thread pool: every iteration once, from any thread, in forked children, and a clean end."""

from __future__ import annotations

import gc
import math
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diptych.codegen import pool
from diptych.codegen.host import machine
from diptych.codegen.pool import Pool, ThreadCountError
from diptych.codegen.thread_count import EnvironmentValueError, cgroup_quota, default_threads

COUNT = """
function count(x: param i64[1000], y: param i64[1000]):
    for i in 3 .. 1000 step 2 parallel:
        alloc t: heap i64[8]:
            for k in 0 .. 8:
                t[k] = x[i] + k
            for k in 0 .. 8:
                y[i] sum= t[k]
"""


def run(kernel: Any, group: Pool, *arrays: Any) -> int:
    address, threads = group.lease()
    return int(kernel(*arrays, pool=address, threads=threads))


def check(kernel: Any, group: Pool, rounds: int = 20) -> None:
    """Iterations run once each, and no thread disturbs another's buffer."""
    x = np.arange(1000)
    want = np.zeros(1000, np.int64)
    want[3::2] = 8 * x[3::2] + 28
    for _ in range(rounds):
        y = np.zeros(1000, np.int64)
        assert run(kernel, group, x, y) == 0
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_iteration_runs_once(native: Any, threads: int) -> None:
    group = Pool(threads)
    check(native(COUNT), group)
    group.close()


RAGGED = """
function ragged(n: param i64[], y: param i64[64]):
    let end = min(max(n[], 0), 64):
        for i in 0 .. end KIND:
            y[i] sum= i + 1
"""


@pytest.mark.parametrize("kind", ["parallel", "dynamic"])
def test_more_threads_than_iterations(native: Any, kind: str) -> None:
    kernel, group = native(RAGGED.replace("KIND", kind)), Pool(1)
    for threads in (1, 2, 3, 7, 32):
        group.resize(threads)
        for n in (0, 1, 2, 3, 31, 32, 33, 64):
            y = np.zeros(64, np.int64)
            assert run(kernel, group, np.array(n), y) == 0
            np.testing.assert_array_equal(y, np.where(np.arange(64) < n, np.arange(1, 65), 0))
    group.close()


def test_a_lease_keeps_its_number_of_threads(native: Any) -> None:
    """A call has memory for so many threads, whatever number another sets meanwhile."""
    group = Pool(2)
    address, threads = group.lease()
    group.resize(5)
    assert group.lease()[1] == 5
    kernel, y = native(COUNT), np.zeros(1000, np.int64)
    assert kernel(np.arange(1000), y, pool=address, threads=threads) == 0
    assert y[999] == 8 * 999 + 28
    group.close()


def test_a_system_that_gives_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Pool(4)
    monkeypatch.setattr(pool._Crew, "grow", lambda crew, workers: 0)
    with pytest.warns(RuntimeWarning, match="the system gives 1 of 4 threads"):
        group.lease()
    assert group.lease()[1] == 4
    group.close()


def test_a_pool_that_is_gone_has_no_threads(native: Any) -> None:
    group = Pool(3)
    check(native(COUNT), group, 1)
    crew = group._crew
    assert crew is not None and crew.alive == 2
    del group
    gc.collect()
    until = time.monotonic() + 20
    while crew.alive and time.monotonic() < until:
        time.sleep(0.001)
    assert not crew.alive


def test_the_highest_failed_check_is_reported_by_whatever_thread(native: Any) -> None:
    kernel, group = native("""
function f(p: param i64[64], q: param i64[64], a: param i64[8], b: param i64[8], y: param i64[64]):
    for i in 0 .. 64 parallel:
        y[i] = a[p[i]] + b[q[i]]
"""), Pool(3)  # fmt: skip
    x, y = np.zeros(8, np.int64), np.zeros(64, np.int64)
    p, q = np.zeros(64, np.int64), np.zeros(64, np.int64)
    p[0], q[63] = 99, -1
    statuses = set()
    for rows in ((p, q), (p[::-1].copy(), q[::-1].copy())):
        statuses |= {run(kernel, group, *rows, x, x, y) for _ in range(20)}
    assert statuses == {2}
    group.close()


def test_resizing(native: Any) -> None:
    kernel, group = native(COUNT), Pool(2)
    for threads in (2, 4, 1, 3):
        group.resize(threads)
        check(kernel, group, 5)
        assert (group.lease()[0] == 0) == (threads == 1)
    group.close()


def test_sleeping_workers_wake(native: Any) -> None:
    kernel, group = native(COUNT), Pool(3)
    check(kernel, group, 1)
    threading.Event().wait(0.05)  # longer than a worker spins
    check(kernel, group, 3)
    group.close()


def test_one_pool_from_many_threads(native: Any) -> None:
    """A busy pool makes its caller work alone: no deadlock and no mixture."""
    kernel, group = native(COUNT), Pool(2)
    failures = []

    def work() -> None:
        try:
            check(kernel, group, 30)
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not failures and not any(caller.is_alive() for caller in callers)
    group.close()


def test_groups_of_threads() -> None:
    outer = pool.current()
    with pool.using(Pool(3)) as group:
        assert pool.current() is group and pool.threads() == 3
        seen = []
        other = threading.Thread(target=lambda: seen.append(pool.current()))
        other.start()
        other.join()
        assert seen == [outer]
    assert pool.current() is outer


def test_a_forked_child_has_workers_of_its_own(native: Any) -> None:
    kernel, group = native(COUNT), Pool(2)
    check(kernel, group, 2)
    child = os.fork()
    if child == 0:
        try:
            check(kernel, group, 10)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    check(kernel, group, 2)
    group.close()


@pytest.mark.parametrize(
    "wrong", [0, -1, 2.0, True, "2", 32768, np.int64(0), np.float64(2), np.True_]
)
def test_wrong_numbers_of_threads(wrong: Any) -> None:
    with pytest.raises(ThreadCountError) as caught:
        Pool(wrong)
    assert str(caught.value) == f"threads: {wrong!r} came; expected an integer from 1 to 32767"


def test_setting_the_number_of_threads() -> None:
    with pool.using(Pool(2)):
        assert pool.threads(3) == 3 == pool.threads() == machine().threads
        for two in (np.int64(2), np.uint8(2), np.array(2)):
            found = pool.threads(two)
            assert (type(found), found) == (int, 2)


def test_the_environment_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    monkeypatch.delenv("DIPTYCH_NUM_THREADS", raising=False)
    assert default_threads() == 3
    monkeypatch.setenv("DIPTYCH_NUM_THREADS", "5")
    assert default_threads() == 5
    for wrong in ("many", "0", "-1", "²", "٣", "1_0", "100000", "9" * 5000):
        monkeypatch.setenv("DIPTYCH_NUM_THREADS", wrong)
        with pytest.raises(EnvironmentValueError) as caught:
            default_threads()
        assert str(caught.value) == (
            f"DIPTYCH_NUM_THREADS is {wrong!r}; expected a number of threads from 1 to 32767"
        )
    monkeypatch.delenv("DIPTYCH_NUM_THREADS")
    for wrong in ("dynamic", "²", "100000"):
        monkeypatch.setenv("OMP_NUM_THREADS", wrong)
        assert 1 <= default_threads() <= len(os.sched_getaffinity(0))


def test_control_groups(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def quota() -> float:
        return cgroup_quota(tmp_path, tmp_path / "ours")

    assert quota() == math.inf
    write("cpu/cpu.cfs_period_us", "100000\n")
    write("cpu/cpu.cfs_quota_us", "-1\n")
    assert quota() == math.inf
    write("cpu/cpu.cfs_quota_us", "650000\n")
    assert quota() == 6.5
    write("cpu.max", "max 100000\n")
    assert quota() == 6.5
    write("cpu.max", "300000 100000\n")
    assert quota() == 3
    write("ours", "4:memory:/box\n3:cpu,cpuacct:/box/inner\n0::/slice/ours\n")
    assert quota() == 3  # nothing is said of these groups
    write("slice/cpu.max", "250000 100000\n")
    assert quota() == 2.5
    write("slice/ours/cpu.max", "max 100000\n")
    assert quota() == 2.5
    write("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n")
    write("cpu,cpuacct/box/cpu.cfs_quota_us", "50000\n")
    assert quota() == 0.5
    write("slice/ours/cpu.max", "nonsense\n")
    write("ours", "nonsense\n0::/slice/ours\n")
    assert quota() == 2.5
