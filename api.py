"""What reaches upward: calling operators, schedules, gradients. Bound to L1's classes from here.

The lower layers know nothing of this file. `Op.__call__` and its kin are assigned at the end, so
that an operator is a plain value below and a callable thing for users.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from .algo.dtypes import DType, f32, from_numpy, promote, promote_weak
from .algo.errors import DTypeError, GradientError, GraphError, ScheduleError, ShapeError
from .algo.graph import build
from .algo.graph.graph import Graph, Value
from .algo.graph.program import Program, has_values
from .algo.graph.trace import Arguments
from .algo.graph.tree import flatten, unflatten
from .algo.location import caller
from .algo.tensor_expr.check import check
from .algo.tensor_expr.interpret import interpret as interpret_op
from .algo.tensor_expr.op import Op
from .algo.tensor_expr.parse import parse
from .algo.tensor_expr.sizes import evaluate
from .algo.tensor_expr.trace import trace
from .autodiff.graph import gradients
from .autodiff.reverse import adjoint
from .codegen.executor import Executor
from .codegen.kernels import Compiled, compile_op
from .lower.plan import Plan
from .lower.program import plan as make_plan
from .sched.graph.schedule import GraphSchedule
from .sched.loop.schedule import Schedule

Array = np.ndarray[Any, Any]
_attached: dict[str, Schedule] = {}
_changes = 0  # of _attached: a runner made before the last change is made again


def op(definition: Any = None, *, name: str | None = None, returns: Any = None) -> Any:
    """An operator from a Python function (also as a decorator) or from text.

    `returns` names the returned tensor or tensors of a text that has no header; without it, those
    that are defined and not read. Raises `ParseError` or `OpError`, with the place.
    """
    if definition is None:
        return lambda function: op(function, name=name, returns=returns)
    if isinstance(definition, str):
        made = parse(definition, name=name, returns=returns, loc=caller())
    else:
        made = trace(definition, name=name)
    check(made)
    return made


class Runner:
    """Calls an operator under a schedule, or under the default one: one kernel a signature.

    The signature is the shapes, strides and types of the arguments; what a schedule cannot do at
    some sizes runs by the default schedule, with one warning (an error with `strict`).
    """

    def __init__(self, operator: Op, schedule: Schedule | None, strict: bool = False) -> None:
        self.op, self.schedule, self.strict = operator, schedule, strict
        self._kernels: dict[Any, Compiled] = {}
        self.last: Compiled | None = None

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Results as arrays (a tuple if the operator returns several); `out` takes them."""
        try:
            key = tuple([(a.shape, a.strides, a.dtype) for a in arrays])
            kernel = self._kernels[key]
        except (KeyError, AttributeError):
            if build.is_traced(arrays):
                return build.call(self.op, *arrays)
            arrays = arguments(self.op, arrays)
            key = tuple([(a.shape, a.strides, a.dtype) for a in arrays])
            kernel = self._kernels.get(key) or self._compile(key, arrays)
        self.last = kernel
        return kernel(*arrays, out=out)

    def _compile(self, key: Any, arrays: Sequence[Array]) -> Compiled:
        types = [(from_numpy(a.dtype), a.shape) for a in arrays]
        strides = [a.strides for a in arrays]
        try:
            kernel = compile_op(self.op, types, self.schedule, strides=strides)
        except ScheduleError as error:
            if self.strict or self.schedule is None:
                raise
            warnings.warn(
                f"{self.op.name}: its schedule does not fit these sizes, and the default runs "
                f"instead: {error}",
                RuntimeWarning,
                stacklevel=4,
            )
            kernel = compile_op(self.op, types, None, strides=strides)
        self._kernels[key] = kernel
        return kernel


def arguments(operator: Op, arrays: Sequence[Any]) -> list[Array]:
    """The arguments as arrays of types that fit, or an error that says which does not.

    A Python scalar takes its parameter's annotated type, else that of the arrays it meets.
    """
    if len(arrays) != len(operator.params):
        names = ", ".join(p.name for p in operator.params)
        raise ShapeError(
            f"{operator.name} takes {len(operator.params)} arrays ({names}), {len(arrays)} given"
        )
    given = [from_numpy(a.dtype) for a in arrays if isinstance(a, (np.ndarray, np.generic))]
    out: list[Array] = []
    for param, array in zip(operator.params, arrays, strict=True):
        wanted = param.type.dtype
        if not isinstance(array, np.ndarray):
            if isinstance(array, (bool, int, float)) and not isinstance(array, np.generic):
                out.append(np.asarray(array, (wanted or _weak(array, given)).numpy))
                continue
            array = np.asarray(array)
        found = from_numpy(array.dtype)
        if wanted is not None and found is not wanted:
            raise DTypeError(
                f"{operator.name}: {param.name} is declared {wanted}, an array of {found} came; "
                f"convert it with .astype({wanted.numpy.name!r})"
            )
        out.append(array)
    return out


def _weak(value: bool | int | float, given: Sequence[DType]) -> DType:
    """The type of a Python scalar among arrays: theirs, as far as it can hold it (NEP 50)."""
    if not given or isinstance(value, bool):
        return from_numpy(np.asarray(value).dtype)
    return promote_weak(reduce(promote, given), value)


def _call(self: Op, *arrays: Any, out: Any = None) -> Any:
    changes, runner = self._memo.get("runner", (-1, None))
    if changes != _changes:
        runner = Runner(self, _attached.get(self.fingerprint))
        self._memo["runner"] = (_changes, runner)
    return runner(*arrays, out=out)


def _schedule(self: Op) -> Schedule:
    return Schedule(self)


def _with_schedule(self: Op, schedule: Any, strict: bool = False) -> Runner:
    if isinstance(schedule, (str, Path)):
        schedule = Schedule.load(self, schedule)
    if schedule.op != self:
        raise ScheduleError(
            f"this schedule was made for another operator:\n{schedule.op}\nnot for\n{self}"
        )
    return Runner(self, schedule, strict)


def _gradient(self: Op, wrt: str) -> Op:
    """The gradient operator by one parameter: its inputs, then one cotangent a result."""
    return adjoint(self, wrt)


def _attach(self: Schedule) -> Schedule:
    """Plain calls of the operator, and programs that call it, use this schedule from now on."""
    global _changes
    _attached[self.op.fingerprint] = self
    _changes += 1
    return self


def _detach(self: Schedule) -> None:
    """Undoes `attach`."""
    global _changes
    _attached.pop(self.op.fingerprint, None)
    _changes += 1


def attached(operator: Op) -> Schedule | None:
    """The schedule that is attached to an operator, if any."""
    return _attached.get(operator.fingerprint)


@contextlib.contextmanager
def schedules(*given: Schedule) -> Iterator[None]:
    """Attaches schedules within a `with` block."""
    before = [(s, attached(s.op)) for s in given]
    for s in given:
        _attach(s)
    try:
        yield
    finally:
        for s, old in before:
            _attach(old) if old is not None else _detach(s)


def vjp(function: Op, *arrays: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The result, and a function from its cotangents to those of the arguments, as in JAX.

    The cotangent has the result's shape (a tuple for several results). Integer arguments get None.
    """
    primals = arguments(function, arrays)
    wrt = tuple(
        p.name
        for p, a in zip(function.params, primals, strict=True)
        if from_numpy(a.dtype).is_float
    )
    if not wrt:
        raise GradientError(f"{function.name}: no argument is a float, so there is no gradient")
    back = adjoint(function, wrt)
    by_name = dict(zip((p.name for p in function.params), primals, strict=True))

    def pull(cotangent: Any) -> tuple[Any, ...]:
        seeds = cotangent if isinstance(cotangent, tuple) else (cotangent,)
        names = [f"d{name}" for name in function.returns]
        given = by_name | dict(zip(names, seeds, strict=True))
        found = back(*(given[p.name] for p in back.params))
        found = found if isinstance(found, tuple) else (found,)
        by_wrt = dict(zip(wrt, found, strict=True))
        return tuple(by_wrt.get(p.name) for p in function.params)

    return function(*primals), pull


def value_and_grad(function: Any, argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function to (value, gradient by the numbered arguments); the value must be a scalar."""
    picks = argnums if isinstance(argnums, tuple) else (argnums,)

    def call(*arrays: Any) -> Any:
        value, pull = vjp(function, *arrays)
        if isinstance(value, tuple) or value.shape != ():
            shape = "several results" if isinstance(value, tuple) else f"shape {value.shape}"
            raise GradientError(
                f"grad of {function.name}: expected a scalar result, {shape} came; use dt.vjp"
            )
        grads = pull(np.ones((), value.dtype))
        for n in picks:
            if grads[n] is None:
                raise GradientError(
                    f"grad of {function.name} by {function.params[n].name}: it is an integer"
                )
        return value, grads[picks[0]] if not isinstance(argnums, tuple) else tuple(
            grads[n] for n in picks
        )

    return call


def grad(of: Any, wrt: Any = 0) -> Any:
    """The gradient. In a program, of a scalar value by values (nested in dicts, lists, tuples):
    the gradients, nested alike. Of an operator, by argument numbers: a function to the gradient.
    """
    if isinstance(of, Value):
        leaves, structure = flatten(wrt)
        strangers = [leaf for leaf in leaves if not isinstance(leaf, Value)]
        if strangers:
            raise GraphError(
                f"grad: expected values of the program to differentiate by, got {strangers[0]!r}"
            )
        return unflatten(structure, gradients(of, leaves))
    both = value_and_grad(of, wrt)
    return lambda *arrays: both(*arrays)[1]


def program(function: Any = None, *, name: str | None = None) -> Any:
    """A program from a Python function of arrays: a graph of the operators that it calls."""
    if function is None:
        return lambda given: program(given, name=name)
    return Program(function, name)


def interpret(what: Op | Program, *args: Any, exact: bool = False) -> Any:
    """Runs an operator or a program by the NumPy interpreter, the reference for all else.

    `exact` computes floats in f64. Slow; no call ever comes here unless it is asked to.
    """
    if isinstance(what, Program):
        return what.interpret(*args)
    return interpret_op(what, *arguments(what, args), exact=exact)


class Step:
    """A program under one graph schedule, planned and compiled once a signature."""

    def __init__(self, schedule: GraphSchedule) -> None:
        self.schedule = schedule
        self._ready: dict[Any, Executor] = {}
        self.last: Executor | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self.schedule.program.arguments(*args, **kwargs)
        executor = self.executor(given)
        outputs = executor(*given.arrays)
        structure = self.schedule.program.graph_for(given).structure
        return unflatten(structure, outputs)

    def executor(self, given: Arguments) -> Executor:
        """The executor for arguments of these types."""
        key = (given.key, _changes)
        ready = self._ready.get(key)
        if ready is None:
            ready = self._ready[key] = Executor(self.plan(self.schedule.program.graph_for(given)))
        self.last = ready
        return ready

    def plan(self, graph: Graph) -> Plan:
        """The plan; kernels of one operator use the schedule that is attached to it."""
        schedule = GraphSchedule(graph, self.schedule.primitives)
        for task in schedule.tasks(graph).tasks:
            if task.op is not None and task.schedule is None and task.op.fingerprint in _attached:
                schedule = schedule.kernel(task.nodes[0], _attached[task.op.fingerprint])
        return make_plan(graph, schedule)


def _step(schedule: GraphSchedule) -> Step:
    return schedule._memo.setdefault("step", Step(schedule))  # type: ignore[no-any-return]


def _call_schedule(self: GraphSchedule, *args: Any, **kwargs: Any) -> Any:
    if has_values(args, kwargs):
        return self.program.function(*args, **kwargs)
    return _step(self)(*args, **kwargs)


def _plan_schedule(self: GraphSchedule, *args: Any, **kwargs: Any) -> Plan:
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
        found = self.__dict__["_default"] = GraphSchedule(self)
    return found  # type: ignore[no-any-return]


def _call_program(self: Program, *args: Any, **kwargs: Any) -> Any:
    if has_values(args, kwargs):
        return self.function(*args, **kwargs)
    return _step(_default(self))(*args, **kwargs)


def _plan_program(self: Program, *args: Any, **kwargs: Any) -> Plan:
    return _plan_schedule(_default(self), *args, **kwargs)


def _with_graph_schedule(self: Program, schedule: Any) -> GraphSchedule:
    if isinstance(schedule, (str, Path)):
        return GraphSchedule.load(self, schedule)
    return GraphSchedule(self, schedule.primitives)


def _call_loop_schedule(self: Schedule, *arrays: Any, out: Any = None) -> Any:
    return _runner_of(self)(*arrays, out=out)


def _on(self: Schedule, device: str) -> Callable[..., Any]:
    """The operator under this schedule on a GPU: "cuda:n", or "simt", one emulated on the host,
    which finds races. Takes and returns arrays of the host."""

    def call(*arrays: Any) -> Any:
        from .codegen.gpu import run_on

        return run_on(self.op, arguments(self.op, arrays), self, device)

    return call


def _runner_of(self: Schedule) -> Runner:
    return self.op.memo(f"runner {self.text}", lambda: Runner(self.op, self))  # type: ignore[no-any-return]


def _source(self: Any, kind: str = "llvm", **sizes: int) -> str:
    """Generated code: kind is llvm, asm, ir (loop IR) or ptx; at the last call's sizes, or at
    those given by name (types that are not annotated are taken as f32)."""
    operator, schedule = (self, attached(self)) if isinstance(self, Op) else (self.op, self)
    runner = _runner_of(schedule) if schedule is not None else Runner(operator, None)
    compiled = runner.last if not sizes else None
    if compiled is None and isinstance(self, Op) and not sizes:
        compiled = getattr(operator._memo.get("runner", (0, None))[1], "last", None)
    if compiled is None and not sizes:
        raise ShapeError(
            f"{operator.name}: call it first, or give sizes: source({kind!r}, "
            + ", ".join(f"{s}=64" for s in check(operator).sizes)
            + ")"
        )
    types = compiled.signature.types if compiled is not None else _types_at(operator, sizes)
    if kind == "ptx":
        from .codegen.gpu import ptx_of

        return ptx_of(operator, types, schedule)
    compiled = compiled or compile_op(operator, types, schedule)
    found = {"llvm": "llvm", "asm": "asm", "ir": "loop_ir"}.get(kind)
    if found is None:
        raise ScheduleError(f"source({kind!r}): expected llvm, asm, ir or ptx")
    return str(getattr(compiled, found))


def _types_at(operator: Op, sizes: dict[str, int]) -> list[tuple[DType, tuple[int, ...]]]:
    checked = check(operator)
    missing = [s for s in checked.sizes if s not in sizes]
    if missing:
        raise ShapeError(f"{operator.name}: give all sizes, {', '.join(missing)} missing")
    return [
        (p.type.dtype or f32, tuple(evaluate(e, sizes) for e in checked.shapes[p.name]))
        for p in operator.params
    ]


def bind() -> None:
    """Gives the classes of the lower layers what reaches upward."""
    bound: tuple[tuple[type, dict[str, Any]], ...] = (
        (
            Op,
            {
                "__call__": _call,
                "schedule": _schedule,
                "with_schedule": _with_schedule,
                "gradient": _gradient,
                "source": _source,
            },
        ),
        (
            Schedule,
            {
                "__call__": _call_loop_schedule,
                "attach": _attach,
                "detach": _detach,
                "on": _on,
                "source": _source,
            },
        ),
        (
            Program,
            {
                "__call__": _call_program,
                "schedule": lambda self: GraphSchedule(self),
                "with_schedule": _with_graph_schedule,
                "plan": _plan_program,
            },
        ),
        (GraphSchedule, {"__call__": _call_schedule, "plan": _plan_schedule}),
    )
    for owner, functions in bound:
        for name, function in functions.items():
            setattr(owner, name, function)


bind()
