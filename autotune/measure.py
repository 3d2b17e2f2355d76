"""The tuner's side of measuring: starts the server, sends candidates, never dies of one."""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType
from typing import Any

from ..algo.errors import InternalError
from .messages import Outcome, receive, send


class Measurer:
    """Measures candidates of one task. A context manager; the server ends with it.

    `timeout` bounds one trial in seconds. A server that dies (it should not: children do the
    work) is started again once and the trial counted as failed.
    """

    def __init__(self, task: Any, timeout: float = 20.0) -> None:
        self.task, self.timeout = task, timeout
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Measurer:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def measure(
        self, candidate: str, best: float | None = None, timeout: float | None = None
    ) -> Outcome:
        """Builds, verifies and times a candidate in a process of its own.

        A trial is ended after `timeout` seconds, or after the measurer's own limit if that is less.
        """
        assert self._process is not None
        limit = self.timeout if timeout is None else min(timeout, self.timeout)
        try:
            answer = self._ask(("trial", candidate, best, limit))
        except (EOFError, BrokenPipeError):
            code = self._process.wait()
            self._start()
            return Outcome(None, f"the measuring server ended with {code}")
        if isinstance(answer, BaseException):
            return Outcome(None, f"{type(answer).__name__}: {answer}")
        if not isinstance(answer, Outcome):
            raise InternalError(f"the measuring server answered {answer!r}")
        return answer

    def _ask(self, message: Any) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None and self._process.stdout is not None
        send(self._process.stdin, message)
        return receive(self._process.stdout)

    def _start(self) -> None:
        # A session of its own: Ctrl-C reaches the tuner, which then ends the server.
        single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "diptych.autotune.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | single,
        )
        answer = self._ask(("prepare", self.task))
        if isinstance(answer, BaseException):
            self._stop()
            raise answer

    def _stop(self) -> None:
        if self._process is None:
            return
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        self._process = None
