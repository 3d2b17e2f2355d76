"""Hand-written schedules at extents near those that they were written for: `run.py --near`.

A row is a case and one of its extents, or all of them together; a number is the rate (work in a
second) at that extent less 7, less 1, plus 1 and plus 7, as a part of the rate at the extent
itself. All of a row's calls are timed in turn, on the same memory: what the system takes for new
arrays, and so how fast they are, depends on their size and on chance. Extents are sizes, and
numbers that stand in the operator's text; those below 16 (taps, one image) and above 100,000 (rows
of a table) stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import diptych as dt
import numpy as np
from case import Array, Case
from diptych.algo.dtypes import from_numpy
from diptych.algo.errors import ScheduleError
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.sizes import bind_sizes, shape_of
from diptych.algo.tensor_expr.stages import kernel
from diptych.sched.loop.access import groups
from measure import medians
from peers import Call
from pulled import behind

STEPS = (-7, -1, 1, 7)
KEPT = 0.9
"""The part of the rate that is to be kept."""
LEAST, MOST = 16, 100_000
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


@dataclass(frozen=True)
class _At:
    """A case at some extents: the operator, its arrays, and how much there is to do."""

    op: Any
    arrays: tuple[Array, ...]
    work: float


def near(cases: Sequence[Case], threads: int, rounds: int) -> Iterator[str]:
    """The rows of all cases that have a hand-written schedule, then a line that counts them."""
    yield f"{'case':26s} threads  extent      " + "".join(f"{step:>+8d}" for step in STEPS)
    found: list[float] = []
    for case in cases:
        if case.schedule("hand") is None:
            continue
        extents = _extents(case)
        for label, chosen in {**{str(e): [e] for e in extents}, "all": extents}.items():
            kept = _row(case, chosen, threads, rounds)
            found += [k for k in kept.values() if k is not None]
            cells = "".join(_cell(kept[step]) for step in STEPS if step in kept)
            low = min((k for k in kept.values() if k is not None), default=1.0)
            yield f"{case.name:26s} {threads:7d}  {label:12s}{cells}" + (
                f"  below {KEPT}" if low < KEPT else ""
            )
    below = sum(k < KEPT for k in found)
    yield f"{threads} thread{'s' if threads > 1 else ''}: {below} of {len(found)} below {KEPT}"


def _cell(kept: float | None) -> str:
    return " refused" if kept is None else f"{kept:8.2f}"


def _row(
    case: Case, extents: Sequence[str | int], threads: int, rounds: int
) -> dict[int, float | None]:
    """The part of the rate that each step keeps; None where the schedule is refused."""
    at = {step: _at(case, dict.fromkeys(extents, step)) for step in (0, *STEPS)}
    runs, results, kept = {}, {}, dict.fromkeys(STEPS, None)
    for step, here in at.items():
        try:
            run = here.op.with_schedule(_schedule(case, here.op), strict=True)
            got, want = run(*here.arrays), here.op(*here.arrays)
        except ScheduleError:
            continue
        if step:
            _compare(case, got, want)
        runs[step], results[step] = run, _several(got)
    arrays = _together({step: at[step].arrays for step in runs}, written=False)
    results = _together(results, written=True)
    calls = {str(step): _call(run, arrays[step], results[step]) for step, run in runs.items()}
    times = medians(calls, rounds, threads)
    base = at[0].work / times["0"]
    return kept | {int(s): at[int(s)].work / t / base for s, t in times.items() if int(s)}


def _call(run: Any, arrays: Sequence[Array], results: Sequence[Array]) -> Call:
    out = tuple(results) if len(results) > 1 else results[0]
    return lambda: run(*arrays, out=out)


def _together(steps: Mapping[int, Sequence[Array]], written: bool) -> dict[int, list[Array]]:
    """The arrays of each step in the memory of the longest ones, where they begin as those do or
    are written."""
    found: dict[int, list[Array]] = {step: [] for step in steps}
    for same in zip(*steps.values(), strict=True):
        longest = max(same, key=np.size).reshape(-1)
        parts = [longest[: a.size].reshape(a.shape) for a in same]
        shared = written or all(map(np.array_equal, parts, same))
        for step, array in zip(steps, parts if shared else same, strict=True):
            found[step].append(array)
    return found


def _schedule(case: Case, op: Any) -> Any:
    """The hand-written schedule, for an operator whose text may have other numbers."""
    file = case.schedule("hand")
    assert file is not None
    lines = [line for line in file.read_text().splitlines() if line and line[0] != "#"]
    return dt.Schedule.parse(op, "".join(f".{line}" for line in lines))


def _compare(case: Case, got: Any, want: Any) -> None:
    for mine, its in zip(_several(got), _several(want), strict=True):
        allowed = case.tolerance * float(np.abs(its).max())
        np.testing.assert_allclose(mine, its, case.tolerance, allowed, err_msg=case.name)


def _several(found: Any) -> tuple[Array, ...]:
    return found if isinstance(found, tuple) else (found,)


def _extents(case: Case) -> list[str | int]:
    """The sizes, and the numbers in the text, that are to change."""
    op, arrays = case.op(), case.drawn()
    sizes = bind_sizes(check(op), _shapes(op, arrays))
    numbers = {int(found) for found in _NUMBER.findall(case.text)}
    named = [name for name, n in sizes.items() if LEAST <= n <= MOST]
    return [*named, *sorted(n for n in numbers if LEAST <= n <= MOST)]


def _shapes(op: Any, arrays: Sequence[Array]) -> dict[str, tuple[int, ...]]:
    return {p.name: a.shape for p, a in zip(op.params, arrays, strict=False)}  # then cotangents


def _at(case: Case, steps: Mapping[str | int, int]) -> _At:
    """The case with some of its extents changed."""
    base, drawn = case.op(), case.drawn()
    sizes = bind_sizes(check(base), _shapes(base, drawn))

    def number(found: re.Match[str]) -> str:
        n = int(found[0])
        return str(n + steps.get(n, 0))

    op = dt.op(_NUMBER.sub(number, case.text), returns=case.returns)
    sizes = {name: n + steps.get(name, 0) for name, n in sizes.items()}
    checked = check(op)
    tensors = [*(p.name for p in op.params), *(op.returns if case.wrt else ())]
    arrays = tuple(
        np.resize(a, shape_of(checked, name, sizes)) for name, a in zip(tensors, drawn, strict=True)
    )
    if case.wrt:
        op, arrays = behind(case, op, arrays)
        checked = check(op)
        sizes = bind_sizes(checked, _shapes(op, arrays))
    types = {
        p.name: p.type.dtype or from_numpy(a.dtype) for p, a in zip(op.params, arrays, strict=True)
    }
    return _At(op, arrays, sum(g.work for g in groups(kernel(checked, types, sizes))))
