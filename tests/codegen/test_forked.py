"""Forks while other threads call, and calls from signal handlers: nothing waits for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import diptych as dt
import numpy as np
import pytest

DOUBLE = """
    double(a: f32[N]) -> y:
        dynamic N <= 999
        y[i] = a[i] * 2.0
"""


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns after every few steps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurried")
def test_children_born_while_threads_meet_new_shapes_call_on() -> None:
    double = dt.op(DOUBLE)
    arrays = [np.ones(n, np.float32) for n in range(1, 999)]
    double(arrays[0])
    over = threading.Event()

    def call(n: int) -> None:
        while not over.is_set():
            double(arrays[n % len(arrays)])
            n += 7

    callers = [threading.Thread(target=call, args=(31 * k,)) for k in range(3)]
    for caller in callers:
        caller.start()
    ends = []
    try:
        for n in range(8):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                for k in range(3):
                    double(arrays[(13 * n + k) % len(arrays)])
                os._exit(0)
            ends.append(os.waitpid(child, 0)[1])
    finally:
        over.set()
        for caller in callers:
            caller.join()
    assert ends == [0] * 8


def test_children_born_while_a_thread_runs_a_program_run_it_too() -> None:
    product = dt.op("C[i,j] = sum(A[i,k] * B[k,j])")

    @dt.program
    def cube(a: Any) -> Any:
        return product(product(a, a), a)

    a = np.ones((300, 300), np.float32)
    cube(a)
    over = threading.Event()

    def call() -> None:
        while not over.is_set():
            cube(a)

    caller = threading.Thread(target=call)
    caller.start()
    ends = []
    try:
        for _ in range(3):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                cube(a)
                os._exit(0)
            ends.append(os.waitpid(child, 0)[1])
    finally:
        over.set()
        caller.join()
    assert ends == [0] * 3


def test_signal_handlers_call_wherever_they_come() -> None:
    double = dt.op(DOUBLE)
    arrays = [np.ones(n, np.float32) for n in range(1, 999)]
    double(arrays[0])
    handled = 0

    def handle(*_: object) -> None:
        nonlocal handled
        handled += 1
        double(arrays[(7 * handled) % len(arrays)])
        signal.setitimer(signal.ITIMER_REAL, 0.0005)  # the next one, not within this one

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    try:
        end = time.process_time() + 1
        n = 0
        while time.process_time() < end:
            n += 1
            assert double(arrays[n % len(arrays)]).shape == (n % len(arrays) + 1,)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert handled
