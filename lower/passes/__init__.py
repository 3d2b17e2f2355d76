"""The passes of loop IR, in the order of one literal list, and the driver that runs them.

A pass is a pure function from function to function, alone in its file. `DIPTYCH_DEBUG=3` prints
the time of each and verifies after each, 4 also prints the function after each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ...algo import debug
from ...sched.loop.machine import Machine
from ..ir import Function
from ..ir_print import print_function
from ..verify import verify
from .accumulate import accumulate
from .anchor import anchor
from .axes import axes
from .barriers import barriers
from .behind import behind
from .dots import dots
from .first import first
from .flatten import flatten
from .guards import guards
from .hoist import hoist
from .matrices import matrices
from .registers import registers
from .separate import separate
from .shorten import shorten
from .simplify import simplify
from .strip import strip
from .unroll import unroll
from .unswitch import unswitch
from .vectorize import vectorize


@dataclass(frozen=True, slots=True)
class Pass:
    """A named step; `apply` may ask what the machine is like."""

    name: str
    apply: Callable[[Function, Machine], Function]


def _plain(apply: Callable[[Function], Function]) -> Pass:
    return Pass(apply.__name__, lambda function, machine: apply(function))


PASSES: tuple[Pass, ...] = (
    _plain(simplify),
    _plain(flatten),
    Pass("axes", lambda function, machine: axes(function, machine.grid)),
    _plain(simplify),
    _plain(barriers),
    _plain(hoist),
    _plain(anchor),
    _plain(shorten),
    Pass("matrices", matrices),
    _plain(separate),
    Pass("strip", strip),
    Pass("unroll", unroll),
    Pass("first", first),
    Pass("accumulate", accumulate),
    Pass("dots", dots),
    _plain(unswitch),
    Pass("vectorize", vectorize),
    _plain(simplify),
    _plain(guards),
    Pass("registers", registers),
    Pass("behind", behind),
)


def run(
    function: Function,
    machine: Machine,
    *,
    stop_after: int | None = None,
    check: bool = False,
    observe: Callable[[str, Function], None] | None = None,
) -> Function:
    """The function after all passes, or after the first `stop_after`.

    `check` verifies after each pass (always so at DIPTYCH_DEBUG=3); `observe` sees each result.
    """
    check = check or debug.level() >= 3
    for number, step in enumerate(PASSES[:stop_after], 1):
        start = time.perf_counter()
        function = step.apply(function, machine)
        took = 1e3 * (time.perf_counter() - start)
        debug.say(3, f"{function.name}: pass {number} {step.name} took {took:.1f} ms")
        if debug.level() >= 4:
            debug.say(4, f"after {step.name}:\n{print_function(function)}")
        if check:
            verify(function, final=number == len(PASSES))
        if observe is not None:
            observe(step.name, function)
    return function
