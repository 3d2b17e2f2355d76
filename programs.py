"""What users do with programs. Planning and running (`steps.py`) is imported when it is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .algo.errors import GraphError
from .algo.graph.program import Program, has_values
from .algo.graph.tree import flatten, unflatten
from .algo.tensor_expr.functions import stop_gradient as stopped
from .algo.tensor_expr.interpret import interpret as interpret_op
from .algo.tensor_expr.op import Op
from .arguments import arguments

if TYPE_CHECKING:
    from .lower.plan import Plan
    from .sched.graph.schedule import GraphSchedule
    from .steps import Step


def program(function: Any = None, *, name: str | None = None) -> Any:
    """A program from a Python function of arrays: a graph of the operators that it calls."""
    if function is None:
        return lambda given: program(given, name=name)
    if not callable(function):
        raise GraphError(f"program: expected a Python function of arrays, {function!r} came")
    return Program(function, name)


def stop_gradient(x: Any) -> Any:
    """x itself, whose derivatives of any order are zero: of an expression in a traced operator, of
    a value of a program, or of values nested in dicts, lists and tuples. It costs nothing."""
    leaves, structure = flatten(x)
    return unflatten(structure, list(map(stopped, leaves)))


def interpret(what: Op | Program, *args: Any, exact: bool = False) -> Any:
    """Runs an operator or a program by the NumPy interpreter, the reference for all else.

    `exact` computes floats in f64. Slow; no call ever comes here unless it is asked to.
    """
    if isinstance(what, Program):
        return what.interpret(*args)
    if not isinstance(what, Op):
        raise GraphError(f"interpret: expected an operator or a program, {what!r} came")
    return interpret_op(what, *arguments(what, args), exact=exact)


def _step(schedule: GraphSchedule) -> Step:
    found: Step | None = schedule._memo.get("step")
    if found is None:
        from .steps import Step

        found = schedule._memo.setdefault("step", Step(schedule))
    return found


def call_schedule(self: GraphSchedule, *args: Any, **kwargs: Any) -> Any:
    """The program under this schedule."""
    if has_values(args, kwargs):
        return self.program.function(*args, **kwargs)
    return _step(self)(*args, **kwargs)


def plan_schedule(self: GraphSchedule, *args: Any, **kwargs: Any) -> Plan:
    """The plan for these arguments, or for the types that were traced last."""
    if args or kwargs:
        return _step(self).plan(self.program.graph(*args, **kwargs))
    if not self.program.traced:
        raise GraphError(
            f"{self.program.name}: the plan depends on the types of the arguments; call the "
            "program first, or give them: plan(*arguments)"
        )
    return _step(self).plan(self.program.traced[-1])


def _default(self: Program) -> GraphSchedule:
    found = self.__dict__.get("_default")
    if found is None:
        from .sched.graph.schedule import GraphSchedule

        found = self.__dict__["_default"] = GraphSchedule(self)
    return found


def call_program(self: Program, *args: Any, **kwargs: Any) -> Any:
    """The program under the default schedule; on traced values, the plain function."""
    if has_values(args, kwargs):
        return self.function(*args, **kwargs)
    return _step(_default(self))(*args, **kwargs)


def plan_program(self: Program, *args: Any, **kwargs: Any) -> Plan:
    """The plan under the default schedule."""
    return plan_schedule(_default(self), *args, **kwargs)


def with_graph_schedule(self: Program, schedule: Any) -> GraphSchedule:
    """The program under the primitives of another schedule, or of a schedule file."""
    from .sched.graph.schedule import GraphSchedule

    if isinstance(schedule, (str, Path)):
        return GraphSchedule.load(self, schedule)
    return GraphSchedule(self, schedule.primitives)
