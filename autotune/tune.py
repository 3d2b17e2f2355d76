"""Tuning from Python: `tune_op` and `tune_program`, what the `autotune` command calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..algo.dtypes import DType
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.op import Op
from ..algo.tensor_expr.sizes import bind_sizes
from ..codegen.host import host_name, machine
from ..codegen.pool import threads as thread_count
from ..sched.graph.schedule import GraphSchedule
from ..sched.loop.machine import Machine
from ..sched.loop.schedule import Schedule
from .measure import Measurer
from .program_space import ProgramSpace
from .progress import Progress
from .records import Records, key
from .search import Found, Search
from .space import LoopSpace
from .tasks import OpTask, ProgramTask


def tune_op(
    op: Op,
    types: Mapping[str, tuple[DType, tuple[int, ...]]],
    *,
    output: Path,
    seconds: float = 60.0,
    trials: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    records: Path | None = None,
) -> Found:
    """Searches loop schedules of an operator for `seconds`; `output` always holds the best so far.

    `types` gives element type and shape by parameter. The default schedule is measured first and
    nothing slower is returned. Raises what the operator raises at these types.
    """
    progress = Progress(seconds)
    threads = threads or thread_count()
    sizes = bind_sizes(check(op), {name: shape for name, (_, shape) in types.items()})
    dtypes = {name: dtype for name, (dtype, _) in types.items()}
    space = LoopSpace(op, dtypes, sizes, _with_threads(threads))

    def save(found: Found) -> None:
        schedule = Schedule.parse(op, found.text)
        schedule.save(output, sizes, _figures(found, threads))

    described = " ".join(f"{d}{list(s)}" for d, s in types.values())
    label = key(op.fingerprint, described, f"{host_name()} threads={threads}")
    task = OpTask(op, dict(types), threads)
    search = Search(
        space, Measurer(task), seconds, seed, trials, Records(records), label, save, progress.start
    )
    return _run(search, progress)


def tune_program(
    target: tuple[str, str],
    inputs: tuple[str, str],
    *,
    output: Path,
    loops: bool = False,
    seconds: float = 60.0,
    trials: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    records: Path | None = None,
) -> Found:
    """Searches graph schedules of a program (and with `loops` its kernels' loop schedules).

    `target` and `inputs` are (file, name) of the program and of its example arguments, or of a
    function that returns them as a tuple.
    """
    progress = Progress(seconds)
    threads = threads or thread_count()
    task = ProgramTask(*target, *inputs, threads)
    task.load()
    graph = task.program.graph(*task.inputs)
    space = ProgramSpace(task.program, graph, _with_threads(threads), loops=loops)
    task = ProgramTask(*target, *inputs, threads)

    def save(found: Found) -> None:
        schedule = GraphSchedule(space.program).replay(found.text)
        schedule.save(output, _figures(found, threads))

    label = key(space.fingerprint, "", f"{host_name()} threads={threads} loops={loops}")
    search = Search(
        space, Measurer(task), seconds, seed, trials, Records(records), label, save, progress.start
    )
    return _run(search, progress)


def _run(search: Search, progress: Progress) -> Found:
    try:
        with search.measurer:
            return search.run(progress)
    finally:
        progress.close()


def _with_threads(threads: int) -> Machine:
    return replace(machine(), threads=threads)


def _figures(found: Found, threads: int) -> dict[str, str]:
    return {
        "ms": f"{found.seconds * 1e3:.4g}",
        "default ms": f"{found.default_seconds * 1e3:.4g}",
        "threads": str(threads),
        "machine": host_name(),
        "found after trials": str(found.trials),
    }
