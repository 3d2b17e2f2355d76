"""What reaches upward: calling operators, schedules, gradients. Bound to L1's classes from here.

The lower layers know nothing of this file. `Op.__call__` and its kin are assigned at the end, so
that an operator is a plain value below and a callable thing for users.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .algo.dtypes import DType, f32, f64, from_numpy
from .algo.errors import DTypeError, GradientError, ScheduleError, ShapeError
from .algo.graph import build
from .algo.graph.graph import Value
from .algo.location import caller
from .algo.tensor_expr.check import check
from .algo.tensor_expr.op import Op
from .algo.tensor_expr.parse import parse
from .algo.tensor_expr.trace import trace
from .autodiff.reverse import adjoint
from .codegen.kernels import Compiled, compile_op
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
            if any(isinstance(a, Value) for a in arrays):
                return build.apply(self.op, arrays)
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
                f"{self.op.name}: its schedule does not fit these sizes, so the default runs: {error}",
                RuntimeWarning,
                stacklevel=4,
            )
            kernel = compile_op(self.op, types, None, strides=strides)
        self._kernels[key] = kernel
        return kernel


def arguments(operator: Op, arrays: Sequence[Any]) -> list[Array]:
    """The arguments as arrays of types that fit, or an error that says which does not.

    A Python scalar takes its parameter's annotated type, else the widest float of the arrays.
    """
    if len(arrays) != len(operator.params):
        names = ", ".join(p.name for p in operator.params)
        raise ShapeError(
            f"{operator.name} takes {len(operator.params)} arrays ({names}), {len(arrays)} given"
        )
    given = [from_numpy(a.dtype) for a in arrays if isinstance(a, (np.ndarray, np.generic))]
    scalar = f64 if f64 in given or not any(t.is_float for t in given) else f32
    out: list[Array] = []
    for param, array in zip(operator.params, arrays, strict=True):
        wanted = param.type.dtype
        if not isinstance(array, np.ndarray):
            if isinstance(array, (bool, int, float)) and not isinstance(array, np.generic):
                out.append(np.asarray(array, _scalar_type(wanted, scalar, array).numpy))
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


def _scalar_type(wanted: DType | None, scalar: DType, value: bool | int | float) -> DType:
    if wanted is not None:
        return wanted
    return from_numpy(np.asarray(value).dtype) if isinstance(value, (bool, int)) else scalar


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


def bind() -> None:
    """Gives L1's and L3's classes what reaches upward."""
    for name, function in (
        ("__call__", _call),
        ("schedule", _schedule),
        ("with_schedule", _with_schedule),
        ("gradient", _gradient),
    ):
        setattr(Op, name, function)
    for name, function in (("attach", _attach), ("detach", _detach)):
        setattr(Schedule, name, function)
