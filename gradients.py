"""Gradients as users ask for them, by JAX's conventions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .algo.dtypes import from_numpy
from .algo.errors import GradientError, GraphError
from .algo.graph.graph import Value
from .algo.graph.tree import flatten, unflatten
from .algo.tensor_expr.op import Op
from .autodiff.graph import gradients
from .autodiff.reverse import adjoint
from .calls import arguments


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
