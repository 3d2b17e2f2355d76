"""Calling operators: arguments, signatures, schedules that are attached."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .algo.dtypes import BFLOAT, bf16, from_numpy
from .algo.errors import ScheduleError
from .algo.graph import build
from .algo.location import caller
from .algo.tensor_expr.fold_terms import Reducer
from .algo.tensor_expr.op import Op
from .algo.tensor_expr.parse import parse
from .algo.tensor_expr.refusing import error
from .algo.tensor_expr.settle import needs, settled_on
from .algo.tensor_expr.trace import trace
from .arguments import arguments, in_order
from .codegen import pool
from .codegen.dispatch import Dispatch
from .codegen.kernels import Compiled, Types, outputs
from .codegen.recent import Recent
from .codegen.specialize import building
from .sched.loop.schedule import Schedule

Array = np.ndarray[Any, Any]
KEPT = 256
"""Signatures that a runner remembers, those used last; with dynamic sizes every length is one."""


class Attached:
    """The schedules that plain calls use, by operator. `changes` counts attaching and detaching:
    what was derived before the last change is derived again."""

    def __init__(self) -> None:
        self.by_op: dict[str, Schedule] = {}
        self.changes = 0

    def put(self, operator: Op, schedule: Schedule | None) -> None:
        """Attaches a schedule to an operator, or detaches what it has."""
        if schedule is None:
            self.by_op.pop(operator.fingerprint, None)
        else:
            self.by_op[operator.fingerprint] = schedule
        self.changes += 1

    def get(self, operator: Op) -> Schedule | None:
        """The schedule attached to an operator, if any."""
        return self.by_op.get(operator.fingerprint)


attached = Attached()


def threads(n: int | None = None) -> int:
    """Sets the number of threads of parallel loops, if given, and returns it.

    Default schedules are chosen for it, so plain calls choose theirs again. Raises `ValueError`
    for what is no number of at least 1.
    """
    found = pool.threads(n)
    if n is not None:
        attached.changes += 1
    return found


def op(
    definition: Any = None,
    *,
    name: str | None = None,
    returns: Any = None,
    reducers: Mapping[str, Reducer] | None = None,
) -> Any:
    """An operator from a Python function (also as a decorator) or from text.

    `returns` names the returned tensor or tensors of a text that has no header; without it, those
    that are defined and not read. A text may use `reducers` made by `dt.reducer`, by these names.
    Raises `ParseError` or `OpError`, with the place.
    """
    if definition is None:
        return lambda function: op(function, name=name, returns=returns)
    if isinstance(definition, str):
        for given, reducer in (reducers or {}).items():
            if not isinstance(reducer, Reducer):
                raise error(f"reducers= has {reducer!r} for {given}; expected dt.reducer(...)")
        folds = {name: reducer.fold.called(name) for name, reducer in (reducers or {}).items()}
        made = parse(definition, name=name, returns=returns, loc=caller(), reducers=folds)
    else:
        made = trace(definition, name=name)
    needs(made)
    return made


class Runner:
    """Calls an operator under a schedule, or under the default one: one kernel a signature.

    The signature is the shapes, strides and types of the arguments; what a schedule cannot do at
    some sizes runs by the default schedule, with one warning (an error with `strict`). Arguments
    like those of an earlier call are known by compiled code, and all else is the slow way.
    """

    def __init__(self, operator: Op, schedule: Schedule | None, strict: bool = False) -> None:
        self.op, self.schedule, self.strict = operator, schedule, strict
        self._known: Recent[Any, Compiled] = Recent(KEPT)
        self.dispatch: Dispatch[Compiled] = Dispatch()
        self.types: Types | None = None  # of the last call on a device

    def __reduce__(self) -> tuple[Any, ...]:
        return Runner, (self.op, self.schedule, self.strict)  # kernels are compiled again

    def __repr__(self) -> str:
        schedule = "the default schedule" if self.schedule is None else repr(self.schedule)
        return f"<{self.op.name} under {schedule}{', strictly' if self.strict else ''}>"

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Results as arrays (a tuple if the operator returns several); `out` takes them.

        Inputs are given in order, or by name.
        """
        if named:
            arrays = in_order(self.op, arrays, named)
        outs = outputs(out)
        found = self._enter(arrays, outs)
        if found is None:
            if build.is_traced(arrays):
                return build.call(self.op, *arrays)
            found = self._admit(arrays, tuple(arguments(self.op, arrays)), outs)
        return found if outs is None else out

    def _enter(self, arrays: Sequence[Any], outs: tuple[Any, ...] | None) -> Any:
        """Calls what was found to fit such arguments before; None if there is no such thing."""
        if outs is None:
            return self.dispatch.new(*arrays)
        return self.dispatch.into(*arrays, *outs) if len(arrays) == len(self.op.params) else None

    def _admit(
        self, given: Sequence[Any], arrays: tuple[Array, ...], outs: tuple[Any, ...] | None
    ) -> Any:
        """Finds what fits, remembers it, and calls it."""
        if any(a is not b for a, b in zip(arrays, given, strict=True)):
            found = self._enter(arrays, outs)
            if found is not None:
                return found
        # Whoever gives bfloat16 arrays, not their bits, gets such arrays.
        bfloat = next((a.dtype for a in arrays if a.dtype.name == BFLOAT), bf16.numpy)
        types = tuple(
            (from_numpy(a.dtype, p.type.dtype), a.shape)
            for p, a in zip(self.op.params, arrays, strict=True)
        )
        compiled = self._known.get((types, bfloat))
        if compiled is None:
            with building:
                compiled = self._known.get((types, bfloat)) or self._new(types, bfloat, arrays)
        try:
            entry = compiled.entry(arrays, outs)
        except ScheduleError as error:
            if self.strict or self.schedule is None:
                raise
            warnings.warn(
                f"{self.op.name}: its schedule does not fit these sizes, and the default runs "
                f"instead: {error}",
                RuntimeWarning,
                stacklevel=4,
            )
            compiled = self._known[types, bfloat] = Compiled(compiled.op, types, None, bfloat)
            entry = compiled.entry(arrays, outs)
        self.dispatch.add(entry, compiled)
        self.dispatch.used(entry)
        return entry(*arrays, *(outs or ()))

    def _new(self, types: Types, bfloat: np.dtype[Any], arrays: Sequence[Array]) -> Compiled:
        op, schedule = settled_on(self.op, arrays), self.schedule
        if schedule is None and op is not self.op:  # a schedule is made for the sizes as numbers
            schedule = attached.get(op)
        compiled = self._known[types, bfloat] = Compiled(op, types, schedule, bfloat)
        return compiled

    @property
    def last(self) -> Compiled | None:
        """What was called last, if anything was."""
        return self.dispatch.last


def call(self: Op, *arrays: Any, out: Any = None, **named: Any) -> Any:
    """`op(...)`: under the attached schedule, else the default one."""
    changes, runner = self._memo.get("runner", _NO_RUNNER)
    if changes != attached.changes:
        runner = Runner(self, attached.get(self))
        self._memo["runner"] = (attached.changes, runner)
    if out is None and not named:  # the most common call, which is worth a step less
        found = runner.dispatch.new(*arrays)
        if found is not None:
            return found
    return runner(*arrays, out=out, **named)


_NO_RUNNER = (-1, None)


def with_schedule(self: Op, schedule: Any, strict: bool = False) -> Runner:
    """The operator under a schedule or a schedule file; `strict` raises where it does not fit."""
    if isinstance(schedule, (str, Path)):
        schedule = Schedule.load(self, schedule)
    if not isinstance(schedule, Schedule):
        raise ScheduleError(
            f"{self.name}: expected a schedule, as {self.name}.schedule() makes one, or the path "
            f"of a schedule file, {_shown(schedule)} came"
        )
    if schedule.op != self:
        raise ScheduleError(
            f"this schedule was made for another operator:\n{schedule.op}\nnot for\n{self}"
        )
    return Runner(self, schedule, strict)


def runner_of(schedule: Schedule) -> Runner:
    """The runner of a schedule that is called itself."""
    runner: Runner | None = schedule._memo.get("runner")
    if runner is None:
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
