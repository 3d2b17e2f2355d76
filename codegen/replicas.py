"""Replicas of one program in one process: a Python thread each, with a group of compute threads.

Compiled code runs without the interpreter lock, so replicas really run at once. What fails in one
replica reaches the caller, and the others, which may be waiting for it, are released.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from .pool import Pool, threads, using


class Replicas:
    """`count` replicas; replica 0 runs in the caller's thread.

    Threads start at the first call and stay; a forked child starts its own. `meet` is where
    replicas wait for each other inside a run.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._barrier = threading.Barrier(count)
        self._process = -1
        self._pools: list[Pool] = []
        self._workers: ThreadPoolExecutor | None = None

    def meet(self) -> None:
        """Waits until every replica is here. Raises `BrokenBarrierError` when one has failed."""
        if self.count > 1:
            self._barrier.wait()

    def run(self, body: Callable[[int], None]) -> None:
        """body(0) .. body(count - 1) at the same time; raises what the first to fail raised."""
        if self.count == 1:
            body(0)
            return
        self._start()
        share = max(1, threads() // self.count)
        for pool in self._pools:
            if pool.threads != share:
                pool.resize(share)
        assert self._workers is not None
        failures: list[BaseException | None] = [None] * self.count
        order: list[int] = []

        def guarded(replica: int) -> None:
            try:
                with using(self._pools[replica]):
                    body(replica)
            except BaseException as error:
                failures[replica] = error
                order.append(replica)
                self._barrier.abort()

        others = [self._workers.submit(guarded, r) for r in range(1, self.count)]
        guarded(0)
        wait(others)
        if order:
            self._barrier.reset()
            raise _cause([failures[r] for r in order])

    def _start(self) -> None:
        if self._process == os.getpid():
            return
        self._process = os.getpid()
        self._barrier = threading.Barrier(self.count)
        self._pools = [Pool(1) for _ in range(self.count)]
        self._workers = ThreadPoolExecutor(self.count - 1, thread_name_prefix="diptych-replica")


def _cause(failures: Sequence[BaseException | None]) -> BaseException:
    """The failure that came first and is not only the consequence of another."""
    found = [f for f in failures if f is not None]
    own = [f for f in found if not isinstance(f, threading.BrokenBarrierError)]
    return (own or found)[0]
