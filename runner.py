"""Calling an operator on arrays: signatures, and a kernel for each. Imported at the first call."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .algo.dtypes import bf16_form, from_numpy
from .algo.errors import ScheduleError
from .algo.graph import build
from .algo.tensor_expr.op import Op
from .algo.tensor_expr.settle import settled_on
from .arguments import arguments, in_order
from .attached import State, attached
from .codegen.dispatch import Dispatch
from .codegen.kernels import Compiled, Types, outputs
from .codegen.recent import Recent
from .codegen.specialize import building

if TYPE_CHECKING:
    from .sched.loop.schedule import Schedule

Array = np.ndarray[Any, Any]
KEPT = 256
"""Signatures that a runner remembers, those used last; with dynamic sizes every length is one."""


def plain_runner(operator: Op, state: State) -> Runner:
    """What runs plain calls of an operator in this state: the one that did at as many threads, if
    no schedule was attached or detached since."""
    changes, threads = state
    before, runners = operator._memo.get("runners", (None, {}))
    if before != changes:
        runners = {}
        operator._memo["runners"] = (changes, runners)
    found: Runner | None = runners.get(threads)
    if found is None:
        found = runners[threads] = Runner(operator, attached.get(operator))
    return found


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
        found = self.dispatch.call(arrays, outs, len(self.op.params))
        if found is None:
            if build.is_traced(arrays):
                return build.call(self.op, *arrays)
            found = self._admit(arrays, tuple(arguments(self.op, arrays)), outs)
        return found if outs is None else out

    def _admit(
        self, given: Sequence[Any], arrays: tuple[Array, ...], outs: tuple[Any, ...] | None
    ) -> Any:
        """Finds what fits, remembers it, and calls it."""
        if any(a is not b for a, b in zip(arrays, given, strict=True)):
            found = self.dispatch.call(arrays, outs, len(self.op.params))
            if found is not None:
                return found
        bfloat = bf16_form(arrays)
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
        return self.dispatch.admit(entry, compiled, arrays, outs)

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
