"""Checking the derivatives of operators, programs and functions by numbers, as users ask for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from numbers import Integral, Real
from typing import Any

import numpy as np

from .algo.errors import GradientError
from .algo.graph.graph import Graph
from .algo.graph.interpret import interpret as interpret_graph
from .algo.graph.program import has_values
from .algo.tensor_expr.batch import batched
from .algo.tensor_expr.interpret import interpret
from .algo.tensor_expr.op import Op
from .arguments import arguments
from .autodiff.check import STEP, Check
from .autodiff.differentiable import Array, Differentiable, Run, of_function, of_operator
from .codegen.executor import Executor
from .lower.program import plan
from .program_gradients import as_program

MODES = ("reverse", "forward")
AT_ONCE = 1 << 16
"""Elements of arguments that the interpreter is given at once."""


def check_grads(
    function: Any,
    args: Sequence[Any],
    wrt: str | Sequence[str] | None = None,
    *,
    order: int = 1,
    modes: str | Sequence[str] = MODES,
    interpreted: bool = False,
    step: float = STEP,
    tolerance: float = 1e-6,
    elements: int = 64,
    seed: int = 0,
) -> None:
    """Raises `GradientError` unless the derivatives of `function` at `args` are right.

    `function` is an operator, a program or a function of arrays in dicts, lists and tuples; `wrt`
    names parameters of it (in a program also paths, "params.w1"), by default all floats. It is
    computed with every float type made f64, by compiled code or, if `interpreted`, by the
    interpreter. Reverse mode is compared with central differences of `step`: element by element
    for arguments of at most `elements` elements, else along random directions; forward mode at
    every element of the results along a random direction; and both with each other by the adjoint
    identity <J v, g> = <v, J' g>, to 1e-10. Where they do not agree, differences of `step` and of
    half of it are extrapolated, which functions with large third derivatives need. What differs by
    more than `tolerance` times the larger of 1 and the derivative, and by more than the rounding of
    the results that move explains, is an error, which says of what parameter and element, and
    shows the gradient operator. `order` 2 checks the gradient in the same way, by its cotangents
    too.

    Raises it for arguments that are not finite too. At ties and kinks differences say nothing of
    derivatives: choose other points.
    """
    wanted = [modes] if isinstance(modes, str) else list(modes)
    if not wanted or any(mode not in MODES for mode in wanted):
        raise GradientError(f"check_grads: expected modes of {', '.join(MODES)}, {modes!r} came")
    if not isinstance(order, Integral) or order < 1:
        raise GradientError(f"check_grads: expected an order of at least 1, {order!r} came")
    for name, number in (("step", step), ("tolerance", tolerance)):
        if not isinstance(number, Real) or not 0 < number < math.inf:
            raise GradientError(f"check_grads: expected a {name} greater than 0, {number!r} came")
    if not isinstance(elements, Integral) or elements < 0:
        raise GradientError(f"check_grads: expected elements of at least 0, {elements!r} came")
    if has_values(args, {}):
        raise GradientError(
            f"check_grads of {getattr(function, 'name', function)!s} in a program: it compares "
            "numbers, and values of a program have none yet; call it outside, on arrays"
        )
    names = [wrt] if isinstance(wrt, str) else wrt
    run: Run = _Interpreted() if interpreted else _Compiled()
    subject: Differentiable
    if isinstance(function, Op):
        subject = of_operator(function, arguments(function, args), names, run)
    else:
        program = as_program(function, "check_grads")
        given = program.arguments(*args)
        subject = of_function(program.name, program.function, given, names, run)
    Check(tuple(wanted), step, tolerance, elements, seed).run(subject, order)


class _Compiled:
    """Runs compiled code; a graph is planned once."""

    def __init__(self) -> None:
        self.executors: dict[Graph, Executor] = {}

    def __call__(self, what: Op | Graph, arrays: Sequence[Array]) -> Sequence[Array]:
        if isinstance(what, Op):
            return _listed(what(*arrays))
        if what not in self.executors:
            self.executors[what] = Executor(plan(what))
        return [np.array(found) for found in self.executors[what](*arrays)]

    def each(
        self, what: Op | Graph, calls: Iterable[Sequence[Array]], moved: tuple[str, ...]
    ) -> Iterator[Sequence[Array]]:
        return (self(what, arrays) for arrays in calls)


class _Interpreted:
    """Runs the interpreter, on small arguments for many calls at once: its work is then mostly
    that of going through equations."""

    def __call__(self, what: Op | Graph, arrays: Sequence[Array]) -> Sequence[Array]:
        if isinstance(what, Op):
            return _listed(interpret(what, *arrays))
        return interpret_graph(what, arrays)

    def each(
        self, what: Op | Graph, calls: Iterable[Sequence[Array]], moved: tuple[str, ...]
    ) -> Iterator[Sequence[Array]]:
        waiting = iter(calls)
        for first in waiting:
            most = AT_ONCE // max(1, sum(array.size for array in first))
            if isinstance(what, Graph) or most < 2:
                yield self(what, first)
            else:
                yield from self._together(what, [first, *islice(waiting, most - 1)], moved)

    def _together(
        self, op: Op, calls: Sequence[Sequence[Array]], moved: tuple[str, ...]
    ) -> Iterator[Sequence[Array]]:
        many, varied = batched(op, moved)
        found = self(
            many,
            [
                np.stack(arrays) if param.name in moved else arrays[0]
                for param, arrays in zip(op.params, zip(*calls, strict=True), strict=True)
            ],
        )
        for n in range(len(calls)):
            yield [a[n] if by else a for a, by in zip(found, varied, strict=True)]


def _listed(results: Any) -> Sequence[Array]:
    return results if isinstance(results, tuple) else (results,)
