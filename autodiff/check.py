"""Checking gradient operators by numbers: central differences, and the adjoint identity.

Everything runs in float64 through the interpreter. An error says which parameter is wrong and by
how much. Central differences of step h err by about h**2 + 1e-16/h, so they show 6 or more digits;
the identity <J v, g> = <v, J' g> holds to rounding, but J comes from the same rules as J'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..algo.dtypes import TensorType, from_numpy
from ..algo.errors import GradientError
from ..algo.tensor_expr.interpret import interpret
from ..algo.tensor_expr.op import Op, Param
from .reverse import adjoint

Array = np.ndarray[Any, Any]


def check_grads(
    op: Op,
    *arrays: Any,
    wrt: Sequence[str] | None = None,
    order: int = 1,
    seed: int = 0,
    step: float = 1e-6,
    tolerance: float = 1e-6,
) -> None:
    """Raises `GradientError` unless `adjoint(op, wrt)` agrees with central differences at `arrays`.

    `wrt` defaults to all float parameters. Each is moved in a random direction by `step`. With
    `order` 2 the gradient operator is checked in the same way, by its parameters and cotangents.
    """
    op, values, names = _prepared(op, arrays, wrt)
    rng = np.random.default_rng(seed)
    results = run(op, values)
    cotangents = {r: rng.standard_normal(np.shape(a)) for r, a in results.items()}
    back = adjoint(op, names)
    given = values | dict(zip(cotangent_names(op, back), cotangents.values(), strict=True))
    gradients = dict(zip(names, run(back, given).values(), strict=True))
    for name in names:
        if np.shape(gradients[name]) != np.shape(values[name]):
            raise GradientError(
                f"gradient of {op.name} by {name}: its shape is {np.shape(gradients[name])}, "
                f"that of {name} is {np.shape(values[name])}\n{back}"
            )
        direction = rng.standard_normal(np.shape(values[name]))
        up = run(op, values | {name: values[name] + step * direction})
        down = run(op, values | {name: values[name] - step * direction})
        wanted = sum(float(np.sum(cotangents[r] * (up[r] - down[r]))) for r in results) / (2 * step)
        got = float(np.sum(gradients[name] * direction))
        if not abs(got - wanted) <= tolerance * max(1.0, abs(wanted)):
            raise GradientError(
                f"gradient of {op.name} by {name}: {got!r} along a random direction, "
                f"central differences give {wanted!r}\n{back}"
            )
    if order > 1:
        inputs = [given[p.name] for p in back.params]
        check_grads(back, *inputs, order=order - 1, seed=seed + 1, step=step, tolerance=tolerance)


def check_adjoint(
    op: Op, *arrays: Any, wrt: Sequence[str] | None = None, seed: int = 0, tolerance: float = 1e-10
) -> None:
    """Raises `GradientError` unless <J v, g> = <v, J' g> for random v and g at `arrays`.

    J' is `adjoint(op, wrt)`, linear in its cotangents, and J the adjoint of that by them.
    """
    op, values, names = _prepared(op, arrays, wrt)
    rng = np.random.default_rng(seed)
    results = run(op, values)
    back = adjoint(op, names)
    seeds = cotangent_names(op, back)
    g = {s: rng.standard_normal(np.shape(a)) for s, a in zip(seeds, results.values(), strict=True)}
    v = {name: rng.standard_normal(np.shape(values[name])) for name in names}
    pulled = run(back, values | g)
    forth = adjoint(back, tuple(seeds))
    tangents = dict(zip(cotangent_names(back, forth), v.values(), strict=True))
    pushed = run(forth, values | g | tangents)
    left = sum(float(np.sum(a * b)) for a, b in zip(pushed.values(), g.values(), strict=True))
    right = sum(float(np.sum(a * b)) for a, b in zip(v.values(), pulled.values(), strict=True))
    if not abs(left - right) <= tolerance * max(1.0, abs(left)):
        raise GradientError(
            f"gradient of {op.name} by {', '.join(names)}: <J v, g> is {left!r}, <v, J' g> is "
            f"{right!r}\n{back}\n{forth}"
        )


def cotangent_names(op: Op, back: Op) -> list[str]:
    """The parameters of the gradient operator `back` of `op` that are cotangents of its results."""
    return [p.name for p in back.params[len(back.params) - len(op.returns) :]]


def run(op: Op, values: Mapping[str, Any]) -> dict[str, Array]:
    """The results of `op` in float64, by name; `values` may hold more than its parameters."""
    found = interpret(op, *(values[p.name] for p in op.params), exact=True)
    return dict(zip(op.returns, found if isinstance(found, tuple) else (found,), strict=True))


def _prepared(
    op: Op, arrays: Sequence[Any], wrt: Sequence[str] | None
) -> tuple[Op, dict[str, Array], tuple[str, ...]]:
    """The operator for float64, its arguments by name, and the parameters to differentiate by."""
    given = {p.name: np.asarray(a) for p, a in zip(op.params, arrays, strict=True)}
    floats = [name for name, a in given.items() if from_numpy(a.dtype).is_float]
    values = {n: a.astype(np.float64) if n in floats else a for n, a in given.items()}
    params = tuple(
        Param(p.name, TensorType(None, p.type.dims)) if p.name in floats else p for p in op.params
    )
    free = Op(op.name, params, op.equations, op.returns, op.shapes, op.locations)
    return free, values, tuple(floats if wrt is None else wrt)
