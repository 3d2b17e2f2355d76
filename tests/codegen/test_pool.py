"""The thread pool: every iteration once, from any thread, in forked children, and a clean end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
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


def check(kernel: Any, group: Pool, rounds: int = 20) -> None:
    """Iterations run once each, and no thread disturbs another's buffer."""
    x = np.arange(1000)
    want = np.zeros(1000, np.int64)
    want[3::2] = 8 * x[3::2] + 28
    for _ in range(rounds):
        y = np.zeros(1000, np.int64)
        assert kernel(x, y, pool=group.address(), threads=group.slots) == 0
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_iteration_runs_once(native: Any, threads: int) -> None:
    group = Pool(threads)
    check(native(COUNT), group)
    group.close()


def test_resizing(native: Any) -> None:
    kernel, group = native(COUNT), Pool(2)
    for threads in (2, 4, 1, 3):
        group.resize(threads)
        check(kernel, group, 5)
        assert (group.address() == 0) == (threads == 1)
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


def test_no_thread_at_import_and_a_clean_end(tmp_path: Path) -> None:
    script = """
import threading
import diptych.codegen.kernels
from diptych.codegen import pool
assert threading.active_count() == 1
group = pool.Pool(3)
assert group.address()
assert threading.active_count() == 3
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={**os.environ, "DIPTYCH_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("wrong", [0, -1, 2.0, True, "2"])
def test_wrong_numbers_of_threads(wrong: Any) -> None:
    with pytest.raises(ThreadCountError) as caught:
        Pool(wrong)
    assert str(caught.value) == f"threads: {wrong!r} came; expected an integer of at least 1"


def test_setting_the_number_of_threads() -> None:
    with pool.using(Pool(2)):
        assert pool.threads(3) == 3 == pool.threads() == machine().threads


def test_the_environment_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    monkeypatch.delenv("DIPTYCH_NUM_THREADS", raising=False)
    assert default_threads() == 3
    monkeypatch.setenv("DIPTYCH_NUM_THREADS", "5")
    assert default_threads() == 5
    monkeypatch.setenv("DIPTYCH_NUM_THREADS", "many")
    with pytest.raises(EnvironmentValueError) as caught:
        default_threads()
    assert str(caught.value) == (
        "DIPTYCH_NUM_THREADS is 'many'; expected a number of threads, at least 1"
    )
    monkeypatch.delenv("DIPTYCH_NUM_THREADS")
    monkeypatch.setenv("OMP_NUM_THREADS", "dynamic")
    assert 1 <= default_threads() <= len(os.sched_getaffinity(0))


def test_control_groups(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path) == float("inf")
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert cgroup_quota(tmp_path) == float("inf")
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("150000\n")
    assert cgroup_quota(tmp_path) == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cgroup_quota(tmp_path) == float("inf")
    (tmp_path / "cpu.max").write_text("300000 100000\n")
    assert cgroup_quota(tmp_path) == 3
