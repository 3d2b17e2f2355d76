"""What is tuned: an operator at sizes and types, or a program at example inputs.

A task is pickled into the measuring server, which prepares it once (inputs, reference result) and
then forks a child for each trial. A candidate is text: schedules as users write them.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from ..algo.dtypes import DType, bf16, in_float64
from ..algo.errors import OpError
from ..algo.tensor_expr.annotation import annotated
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.expr import Reduce, walk
from ..algo.tensor_expr.interpret import interpret
from ..algo.tensor_expr.op import Op
from ..algo.tensor_expr.sizes import bind_sizes, evaluate
from ..algo.tensor_expr.types import infer
from ..codegen.kernels import compile_op
from ..codegen.pool import threads
from ..sched.loop.schedule import Schedule

Run = Callable[[], Any]


class Task(Protocol):
    """What the measuring server needs of a task."""

    def prepare(self) -> None:
        """Makes inputs and the reference result; runs once, in the server."""

    def build(self, candidate: str) -> Run:
        """Compiles a candidate on private, poisoned buffers; runs in the trial's child."""

    def wrong(self, result: Any) -> str | None:
        """What is wrong with a result, or None."""


@dataclass
class OpTask:
    """An operator at input types: parameter name -> (dtype, shape)."""

    op: Op
    types: Mapping[str, tuple[DType, tuple[int, ...]]]
    threads: int
    inputs: list[np.ndarray[Any, Any]] = field(default_factory=list)
    reference: list[np.ndarray[Any, Any]] = field(default_factory=list)
    kinds: list[DType] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)

    @property
    def sizes(self) -> dict[str, int]:
        """The size symbols' values."""
        return bind_sizes(check(self.op), {name: shape for name, (_, shape) in self.types.items()})

    @property
    def _signature(self) -> list[tuple[DType, tuple[int, ...]]]:
        return [self.types[p.name] for p in self.op.params]

    @property
    def work(self) -> int:
        """Instances of the largest equation: what the interpreter would have to evaluate."""
        checked, most = check(self.op), 0
        sizes = self.sizes
        for equation in checked.equations:
            count = 1
            ranges = list(equation.ranges)
            for item in walk(equation.rhs):
                ranges += item.ranges if isinstance(item, Reduce) else ()
            for r in ranges:
                count *= max(0, evaluate(r.hi, sizes) - evaluate(r.lo, sizes))
            most = max(most, count)
        return most

    def __post_init__(self) -> None:
        """An array of bf16 is known by what its parameter declares."""
        declared = [bf16 if self.types[p.name][0] is bf16 else p.type.dtype for p in self.op.params]
        self.op = annotated(self.op, declared)

    def prepare(self) -> None:
        threads(self.threads)
        rng = np.random.default_rng(0)
        self.inputs = [_random(rng, *self.types[p.name]) for p in self.op.params]
        if self.work <= 1 << 28:
            result = interpret(self.op, *self.inputs)
        else:
            # Too large for the interpreter: the unscheduled program order, one statement after
            # the other, is the reference.
            result = compile_op(
                self.op, [self.types[p.name] for p in self.op.params], Schedule(self.op)
            )(*self.inputs)
        self.reference = list(result) if isinstance(result, tuple) else [result]
        types = infer(check(self.op), {name: kind for name, (kind, _) in self.types.items()})
        self.kinds = [types[name] for name in self.op.returns]
        length = max(1, self.work // max(1, max((r.size for r in self.reference), default=1)))
        for want, kind in zip(self.reference, self.kinds, strict=True):
            # The bound of a sum of `length` terms, in any order: length * eps * sum |terms|, where
            # the mean size of the terms is taken for random signs. A narrow type is rounded to
            # from a wider one: once, or a few times where temporaries have it too.
            acc = kind.accumulator if kind.is_float else kind
            eps = acc.eps * (8 + 2 * length) + (8 * kind.eps if acc is not kind else 0.0)
            self.bounds.append(eps * _scale(in_float64(want, kind)) if kind.is_float else 0.0)

    def build(self, candidate: str) -> Run:
        schedule = Schedule.parse(self.op, candidate) if candidate else None
        compiled = compile_op(self.op, self._signature, schedule)
        inputs = [a.copy() for a in self.inputs]
        outs = [np.empty_like(r) for r in self.reference]
        for out in outs:
            out.view(np.uint8).fill(0xAB)
        given = outs[0] if len(outs) == 1 else tuple(outs)

        def run() -> Any:
            compiled(*inputs, out=given)
            return outs

        return run

    def wrong(self, result: Any) -> str | None:
        for name, found, reference, kind, bound in zip(
            self.op.returns, result, self.reference, self.kinds, self.bounds, strict=True
        ):
            if found.shape != reference.shape:
                return f"{name} has shape {found.shape}, expected {reference.shape}"
            got, want = in_float64(found, kind), in_float64(reference, kind)
            with np.errstate(all="ignore"):
                same = (got == want) | (np.isnan(got) & np.isnan(want)) if bound else got == want
                far = ~same & ~(np.abs(got - want) <= bound) if bound else ~same
            if np.any(far):
                at = tuple(int(n) for n in np.argwhere(far)[0])
                return f"{name}{list(at)} is {got[at]}, expected {want[at]}"
        return None


@dataclass
class ProgramTask:
    """A program of a file at the inputs that a function of a file returns.

    A candidate is the text of a whole schedule file: graph primitives and kernels' schedules.
    """

    file: str
    name: str
    inputs_file: str
    inputs_name: str
    threads: int
    program: Any = None
    inputs: tuple[Any, ...] = ()
    reference: list[np.ndarray[Any, Any]] = field(default_factory=list)
    kinds: list[DType] = field(default_factory=list)

    def load(self) -> None:
        """Imports the program and makes its inputs."""
        self.program = load(self.file, self.name)
        made = load(self.inputs_file, self.inputs_name)
        if callable(made):
            made = _users(self.inputs_file, f"{self.inputs_name}() raised", made)
        self.inputs = made if isinstance(made, tuple) else (made,)

    def prepare(self) -> None:
        threads(self.threads)
        self.load()
        self.reference = leaves(self.program.interpret(*self.inputs))
        self.kinds = [value.type.dtype for value in self.program.graph(*self.inputs).outputs]

    def build(self, candidate: str) -> Run:
        scheduled = self.program.schedule().replay(candidate) if candidate else self.program
        return lambda: leaves(scheduled(*self.inputs))

    def wrong(self, result: Any) -> str | None:
        pairs = zip(result, self.reference, self.kinds, strict=True)
        for n, (found, reference, kind) in enumerate(pairs):
            got, want = in_float64(found, kind), in_float64(reference, kind)
            scale = max(_scale(want), 1e-6)
            if not np.allclose(got, want, rtol=0, atol=kind.eps**0.5 * scale):
                worst = float(np.max(np.abs(np.asarray(got, np.float64) - want)))
                return f"output {n} differs by {worst:.3g} where values reach {scale:.3g}"
        return None


def _scale(values: np.ndarray[Any, Any]) -> float:
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))


def leaves(tree: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays of nested tuples, lists and dicts, in order."""
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    if isinstance(tree, (list, tuple)):
        return [leaf for value in tree for leaf in leaves(value)]
    return [np.asarray(tree)]


def load(file: str, name: str) -> Any:
    """`name` of the Python file, imported under a name of its own."""
    path = Path(file)
    if not path.is_file():
        raise OpError(f"{file}: no such file (expected file.py:name, or operator text)")
    spec = importlib.util.spec_from_file_location(f"_tuned_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise OpError(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    _users(file, "importing it raised", partial(spec.loader.exec_module, module))
    if not name or not hasattr(module, name):
        known = sorted(
            n for n, v in vars(module).items() if n[0] != "_" and not isinstance(v, ModuleType)
        )
        given = f"it has no {name}" if name else "the name is missing"
        raise OpError(f"{file}: {given}; expected {file}:NAME, it defines {', '.join(known)}")
    return getattr(module, name)


def split_target(target: str) -> tuple[str, str]:
    """File and name of `file.py:name`; the name is empty where there is none."""
    match = re.fullmatch(r"(.+\.py):(\w+)", target)
    return (match[1], match[2]) if match else (target, "")


def _users(file: str, what: str, act: Callable[[], Any]) -> Any:
    """What the user's code in `file` gives; what it raises as an `OpError` with the line."""
    try:
        return act()
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno and _is(error.filename, file) else ""
        raise OpError(f"{file}{line}: {what} SyntaxError: {error.msg}") from error
    except (Exception, SystemExit) as error:
        steps = traceback.extract_tb(error.__traceback__)
        lines = [step.lineno for step in steps if _is(step.filename, file)]
        line = f":{lines[-1]}" if lines else ""
        raise OpError(f"{file}{line}: {what} {type(error).__name__}: {error}") from error


def _is(name: str | None, file: str) -> bool:
    return name is not None and Path(name).resolve() == Path(file).resolve()


def _random(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Inputs that no schedule can treat specially: floats around 0, small non-negative integers.

    Small because integer inputs are often indices into other inputs; where an extent is even
    smaller the run-time check of the operator says so.
    """
    if dtype is bf16:  # the upper half of an f32
        return (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype("u2")
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(0, 2, shape).astype(dtype.numpy)
