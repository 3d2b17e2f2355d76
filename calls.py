"""Calling operators, and the schedules under which they are called.

The compiler behind a call (`runner.py`, `codegen/`, `lower/`) is imported at the first one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

from .algo.errors import ScheduleError
from .algo.graph import build
from .algo.location import caller
from .algo.tensor_expr.fold_terms import Reducer
from .algo.tensor_expr.op import Op
from .algo.tensor_expr.parse import parse
from .algo.tensor_expr.refusing import error
from .algo.tensor_expr.scalar_terms import ScalarFunction, own
from .algo.tensor_expr.settle import needs
from .algo.tensor_expr.trace import trace
from .attached import attached

if TYPE_CHECKING:
    from .runner import Runner
    from .sched.loop.schedule import Schedule


def threads(n: SupportsIndex | None = None) -> int:
    """Sets the number of threads of parallel loops, if given, and returns it.

    Default schedules are chosen for it; plain calls find again what they used at an earlier number.
    Until it is set it is DIPTYCH_NUM_THREADS, else OMP_NUM_THREADS, else what the affinity and the
    cgroup quota of the process grant, read once, when it is first needed: whoever changes those
    later sets it. Raises `ValueError` for what is no integer from 1 to 32767.
    """
    from .codegen import pool

    found = pool.threads(n)
    if n is not None:
        attached.resize(found)
    return found


class CacheInfo(NamedTuple):
    """Objects that this process has compiled, has loaded from the disk, and has in memory."""

    compiled: int
    loaded: int
    alive: int


def cache_info() -> CacheInfo:
    """What calls have cost so far, in objects: one for each operator, signature and schedule.

    An operator keeps those of the 256 shapes used last, and forgets the others; so does a schedule
    that is called.
    """
    from .codegen import specialize

    return CacheInfo(**specialize.counts, alive=len(specialize.codes))


def op(
    definition: Any = None,
    *,
    name: str | None = None,
    returns: Any = None,
    reducers: Mapping[str, Reducer] | None = None,
    functions: Mapping[str, ScalarFunction] | None = None,
) -> Any:
    """An operator from a Python function (also as a decorator) or from text.

    `returns` names the returned tensor or tensors of a text that has no header; without it, those
    that are defined and not read. A text may use `reducers` made by `dt.reducer`, and `functions`
    made by `dt.scalar`, by these names.
    Raises `ParseError` or `OpError`, with the place.
    """
    if definition is None:
        return lambda function: op(function, name=name, returns=returns)
    if isinstance(definition, str):
        for given, reducer in (reducers or {}).items():
            if not isinstance(reducer, Reducer):
                raise error(f"reducers= has {reducer!r} for {given}; expected dt.reducer(...)")
        folds = {name: reducer.fold.called(name) for name, reducer in (reducers or {}).items()}
        made = parse(
            definition, name=name, returns=returns, loc=caller(), reducers=folds,
            functions=own(functions or {}),
        )  # fmt: skip
    else:
        made = trace(definition, name=name)
    needs(made)
    return made


def call(self: Op, *arrays: Any, out: Any = None, **named: Any) -> Any:
    """`op(...)`: under the attached schedule, else the default one."""
    state, runner = self._memo.get("runner", _NO_RUNNER)
    if state is not attached.state:
        if build.is_traced((*arrays, *named.values())):
            if named:
                from .arguments import in_order

                arrays = in_order(self, arrays, named)
            return build.call(self, *arrays)
        from .runner import plain_runner

        state = attached.state
        runner = plain_runner(self, state)
        self._memo["runner"] = (state, runner)
    if not named:  # the most common calls, which are worth a step less
        if out is None:
            found = runner.dispatch.new(*arrays)
            if found is not None:
                return found
        elif len(arrays) == len(self.params) and runner.dispatch.into(*arrays, out):
            return out
    return runner(*arrays, out=out, **named)


_NO_RUNNER = (None, None)


def with_schedule(self: Op, schedule: Any, strict: bool = False) -> Runner:
    """The operator under a schedule or a schedule file; `strict` raises where it does not fit."""
    from .sched.loop.schedule import Schedule

    if isinstance(schedule, (str, Path)):
        schedule = Schedule.load(self, schedule)
    if not isinstance(schedule, Schedule):
        raise ScheduleError(
            f"{self.name}: expected a schedule, as {self.name}.schedule() makes one, or the path "
            f"of a schedule file, {_shown(schedule)} came"
        )
    if schedule.op.text != self.text:  # whatever rules for derivatives they have
        raise ScheduleError(
            f"this schedule was made for another operator:\n{schedule.op}\nnot for\n{self}"
        )
    from .runner import Runner

    return Runner(self, schedule, strict)


def runner_of(schedule: Schedule) -> Runner:
    """The runner of a schedule that is called itself."""
    runner: Runner | None = schedule._memo.get("runner")
    if runner is None:
        from .runner import Runner

        runner = schedule._memo.setdefault("runner", Runner(schedule.op, schedule))
    return runner


def attach(self: Schedule) -> Schedule:
    """Plain calls of the operator, and programs that call it, use this schedule from now on."""
    attached.put(self.op, self)
    return self


def detach(self: Schedule) -> None:
    """Undoes `attach`."""
    attached.put(self.op, None)


def _shown(given: Any) -> str:
    """What came instead of a schedule, in a few words."""
    return f"the operator {given.name}" if isinstance(given, Op) else repr(given)


@contextlib.contextmanager
def schedules(*given: Schedule) -> Iterator[None]:
    """Attaches schedules within a `with` block."""
    from .sched.loop.schedule import Schedule

    for s in given:
        if not isinstance(s, Schedule):
            raise ScheduleError(
                f"schedules: expected schedules, as mm.schedule() makes one, {_shown(s)} came"
            )
    before = [(s.op, attached.get(s.op)) for s in given]
    for s in given:
        attached.put(s.op, s)
    try:
        yield
    finally:
        for operator, old in before:
            attached.put(operator, old)
