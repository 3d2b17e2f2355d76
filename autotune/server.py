"""The measuring server: a process of its own that forks a disposable child for every trial.

It starts before any threaded library has run, prepares a task once, and then answers requests
line by line. A child that crashes, hangs, eats memory, gives a wrong answer or is far slower than
the best costs only itself. It talks over stdin and stdout.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import resource
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from .messages import Outcome, receive, send

MEMORY_HEADROOM = 8 << 30  # bytes of address space a trial may take beyond the server's own


def trial(task: Any, candidate: str, best: float | None) -> Outcome:
    """Builds, verifies and times one candidate; runs in the child."""
    run = task.build(candidate)
    start = time.perf_counter()
    result = run()
    first = time.perf_counter() - start
    complaint = task.wrong(result)
    if complaint is not None:
        return Outcome(None, f"wrong result: {complaint}")
    if best is not None and first > 5 * best + 0.01:
        return Outcome(first, "cut short: far slower than the best")
    times: list[float] = []
    spent, budget = 0.0, 0.15
    while spent < budget or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
        spent += times[-1]
        if best is not None and len(times) == 3 and min(times) > 1.5 * best:
            break
        if len(times) >= 1000:
            break
    return Outcome(min(times))  # what others do on the machine only adds


def forked(task: Any, candidate: str, best: float | None, timeout: float) -> Outcome:
    """Runs `trial` in a child with limits of time and memory."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 0
        try:
            os.close(reader)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            pages = Path("/proc/self/statm").read_text().split()[0]
            used = int(pages) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_HEADROOM,) * 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            faulthandler.disable()  # a candidate that crashes is one line, not a page
            sys.stdout = sys.stderr
            try:
                outcome = trial(task, candidate, best)
            except BaseException as error:
                outcome = Outcome(None, f"{type(error).__name__}: {error}")
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(pickle.dumps(outcome))
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:
            os._exit(code)
    os.close(writer)
    try:
        return _collect(reader, child, timeout)
    finally:
        os.close(reader)


def _collect(reader: int, child: int, timeout: float) -> Outcome:
    data, deadline = b"", time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Outcome(None, f"took longer than {timeout:.1f} s")
        piece = os.read(reader, 1 << 16)
        if not piece:
            break
        data += piece
    _, status = os.waitpid(child, 0)
    if data:
        found = pickle.loads(data)
        if isinstance(found, Outcome):
            return found
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return Outcome(None, f"the trial was ended by {name}")
    return Outcome(None, f"the trial exited with {os.waitstatus_to_exitcode(status)} and no result")


def main() -> None:
    """Serves ("prepare", task) and ("trial", candidate, best, timeout) until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a user's file prints must not mix with the messages
    task: Any = None
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        answer: Any = None
        try:
            if request[0] == "prepare":
                task = request[1]
                task.prepare()
                gc.freeze()
            else:
                answer = forked(task, *request[1:])
        except BaseException as error:
            answer = error if _pickles(error) else RuntimeError(f"{error}")
        try:
            send(answers, answer)
        except BrokenPipeError:  # the tuner was interrupted
            return


def _pickles(error: BaseException) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


if __name__ == "__main__":
    main()
