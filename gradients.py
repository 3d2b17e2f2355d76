"""Gradients as users ask for them, by JAX's conventions.

Of an operator they are operators: its adjoint, its tangent. Of a program, or a plain function of
arrays in dicts, lists and tuples, they are a program that goes on where the function ends.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .algo.dtypes import from_numpy
from .algo.errors import GradientError, GraphError, ShapeError
from .algo.graph.elementwise import elementwise
from .algo.graph.graph import Value
from .algo.graph.program import Program
from .algo.graph.tree import flatten, paths, unflatten
from .algo.tensor_expr.dynamic import carried
from .algo.tensor_expr.op import Op
from .algo.tensor_expr.settle import settled_on
from .arguments import arguments
from .autodiff.forward import tangent
from .autodiff.graph import gradients, zeros
from .autodiff.reverse import adjoint

Array = np.ndarray[Any, Any]


def vjp(function: Any, *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """`(results, pull)` of an operator, program or function at these arguments, as in JAX.

    `pull` maps cotangents, of the results' shapes (a tuple for several results, or nested as they
    are), to a tuple of the cotangents of the arguments, of their shapes and types. Integers get
    None. Raises `GradientError` where no argument is a float.
    """
    if not isinstance(function, Op):
        return _vjp_of_program(_program(function, "vjp"), primals)
    arrays = arguments(function, primals)
    function = settled_on(function, arrays)
    wrt = _floats(function, arrays)
    back = carried(function, adjoint(function, wrt, saved=function.returns))
    results = function(*arrays)
    given = dict(zip((p.name for p in function.params), arrays, strict=True))
    given |= zip(function.returns, _listed(results), strict=True)

    def pull(cotangents: Any) -> tuple[Any, ...]:
        seeds = _listed(cotangents)
        if len(seeds) != len(function.returns):
            raise GradientError(
                f"vjp of {function.name}: expected a cotangent for each of "
                f"{', '.join(function.returns)}, {len(seeds)} came"
            )
        seeds = tuple(
            _fitted(f"vjp of {function.name}: the cotangent of {name}", seed, given[name])
            for name, seed in zip(function.returns, seeds, strict=True)
        )
        names = [p.name for p in back.params[: len(back.params) - len(seeds)]]
        found = _listed(back(*(given[name] for name in names), *seeds))
        by_name = dict(zip(wrt, found, strict=True))
        return tuple(by_name.get(p.name) for p in function.params)

    return results, pull


def jvp(function: Op, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """`(results, tangents of the results)` of an operator, as in JAX.

    `tangents` has an array of the shape and type of each of `primals`; those of integers are None
    and anything else given for them is left out. Raises `GradientError` where no argument is a
    float, `ShapeError` for tangents that do not fit.
    """
    if not isinstance(function, Op):
        raise GradientError(
            f"jvp of {_name(function)}: expected an operator; programs have gradients in reverse "
            "mode only, by dt.vjp"
        )
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise GradientError(
            f"jvp of {function.name}: expected primals and tangents as tuples, "
            f"{type(primals).__name__} and {type(tangents).__name__} came"
        )
    arrays = arguments(function, primals)
    function = settled_on(function, arrays)
    if len(tangents) != len(arrays):
        raise ShapeError(
            f"jvp of {function.name}: {len(arrays)} primals and {len(tangents)} tangents came"
        )
    wrt = _floats(function, arrays)
    names = [p.name for p in function.params]
    moves = dict(zip(names, tangents, strict=True))
    given = dict(zip(names, arrays, strict=True))
    for name in wrt:
        what = f"jvp of {function.name}: the tangent of {name}"
        moves[name] = _fitted(what, moves[name], given[name])
    forth = carried(function, tangent(function, wrt))
    plain = [p.name for p in forth.params[: len(forth.params) - len(wrt)]]
    results = function(*arrays)
    given |= dict(zip(function.returns, _listed(results), strict=True))
    return results, forth(*(given[name] for name in plain), *(moves[name] for name in wrt))


def value_and_grad(function: Any, argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """A function to `(value, gradient)`, the value of `function` being a scalar.

    `argnums` numbers the arguments to differentiate by: for one number the gradient is that of
    the argument, nested as it is, for several a tuple of them. Raises `GradientError` where the
    result is no scalar or the argument is no float.
    """
    picks = _picks(function, argnums)
    single = not isinstance(argnums, (tuple, list))
    if not isinstance(function, Op):
        return _value_and_grad_of_program(_program(function, "grad"), picks, single)

    def call(*arrays: Any) -> Any:
        value, pull = vjp(function, *arrays)
        if isinstance(value, tuple) or value.shape != ():
            shape = "several results" if isinstance(value, tuple) else f"shape {value.shape}"
            raise GradientError(
                f"grad of {function.name}: expected a scalar result, {shape} came; use dt.vjp"
            )
        if value.dtype.kind != "f":
            raise GradientError(
                f"grad of {function.name}: expected a float result, one of type "
                f"{from_numpy(value.dtype)} came"
            )
        found = pull(np.ones((), value.dtype))
        for n in picks:
            if found[n] is None:
                raise GradientError(
                    f"grad of {function.name} by {function.params[n].name}: it is an integer"
                )
        return value, found[picks[0]] if single else tuple(found[n] for n in picks)

    return call


def grad(of: Any, argnums: Any = 0) -> Any:
    """The gradient of a scalar.

    Of an operator, a program or a function, by the arguments numbered `argnums`: a function to
    the gradient, as `value_and_grad`. In a program, of a value by values (nested in dicts, lists,
    tuples), which stand in their place: the gradients, nested alike.
    """
    if isinstance(of, Value):
        leaves, structure = flatten(argnums)
        strangers = [leaf for leaf in leaves if not isinstance(leaf, Value)]
        if strangers:
            raise GraphError(
                f"grad: expected values of the program to differentiate by, got {strangers[0]!r}"
            )
        return unflatten(structure, gradients(of, leaves))
    both = value_and_grad(of, argnums)
    return lambda *arrays: both(*arrays)[1]


# Programs


def _program(function: Any, what: str) -> Program:
    if isinstance(function, Program):
        return function
    if not callable(function):
        raise GradientError(
            f"{what} of {function!r}: expected an operator, a program or a function"
        )
    return Program(function)


def _value_and_grad_of_program(
    program: Program, picks: tuple[int, ...], single: bool
) -> Callable[..., Any]:
    def both(*args: Any) -> Any:
        if max(picks) >= len(args):
            raise GradientError(
                f"grad of {program.name}: argument {max(picks)} was asked for, {len(args)} came"
            )
        value = program.function(*args)
        if not isinstance(value, Value):
            raise GradientError(
                f"grad of {program.name}: expected one scalar result, {type(value).__name__} came"
            )
        found = []
        for n in picks:
            leaves, structure = flatten(args[n])
            _check_leaves(program, n, leaves)
            found.append(unflatten(structure, gradients(value, leaves)))
        return value, found[0] if single else tuple(found)

    return Program(both, f"{program.name}_grad")


def _check_leaves(program: Program, number: int, leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, Value) or not leaf.type.dtype.is_float:
            came = f"of type {leaf.type}" if isinstance(leaf, Value) else repr(leaf)
            raise GradientError(
                f"grad of {program.name} by argument {number}: expected arrays of floats, a leaf "
                f"of it is {came}"
            )


def _vjp_of_program(
    program: Program, primals: tuple[Any, ...]
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    leaves, structure = flatten(primals)
    arrays = [isinstance(leaf, (np.ndarray, np.generic)) for leaf in leaves]
    floats = [a and from_numpy(leaf.dtype).is_float for a, leaf in zip(arrays, leaves, strict=True)]
    if not any(floats):
        raise GradientError(
            f"vjp of {program.name}: no argument is an array of floats, so there is no gradient"
        )
    results = program(*primals)
    outputs, shape = flatten(results)

    def back(args: Any, seeds: Any) -> Any:
        values = [leaf for leaf in flatten(args)[0] if isinstance(leaf, Value)]
        wrt = [v for v in values if v.type.dtype.is_float]
        total: list[Value] | None = None
        for result, seed in zip(flatten(program.function(*args))[0], seeds, strict=True):
            if isinstance(result, Value) and result.type.dtype.is_float:
                found = gradients(result, wrt, seed)
                total = found if total is None else [
                    elementwise("add", a, b) for a, b in zip(total, found, strict=True)
                ]  # fmt: skip
        return total if total is not None else [zeros(v.type) for v in wrt]

    backward = Program(back, f"{program.name}_vjp")

    def pull(cotangents: Any) -> tuple[Any, ...]:
        seeds, found = flatten(cotangents)
        if found is not shape:
            raise GradientError(
                f"vjp of {program.name}: expected cotangents nested as the results are, {shape!r}, "
                f"came {found!r}"
            )
        seeds = [
            _fitted(f"vjp of {program.name}: the cotangent of {name}", seed, output)
            for name, seed, output in zip(paths(shape, "result"), seeds, outputs, strict=True)
        ]
        given = iter(backward(primals, seeds))
        filled = [next(given) if is_float else None for is_float in floats]
        return tuple(unflatten(structure, filled))

    return results, pull


# Arguments


def _picks(function: Any, argnums: Any) -> tuple[int, ...]:
    try:
        numbers = argnums if isinstance(argnums, (tuple, list)) else [argnums]
        picks = tuple(map(operator.index, numbers))
    except TypeError:
        picks = ()
    count = len(function.params) if isinstance(function, Op) else None
    if picks and count is not None:
        picks = tuple(n + count if n < 0 else n for n in picks)
    if not picks or min(picks) < 0 or (count is not None and max(picks) >= count):
        of = f" below {count}" if count is not None else ""
        raise GradientError(
            f"grad of {_name(function)}: expected the numbers of arguments{of} to differentiate "
            f"by, {argnums!r} came"
        )
    return picks


def _name(function: Any) -> str:
    return str(getattr(function, "name", None) or getattr(function, "__name__", repr(function)))


def _floats(function: Op, arrays: Sequence[Array]) -> tuple[str, ...]:
    found = tuple(
        p.name for p, a in zip(function.params, arrays, strict=True) if from_numpy(a.dtype).is_float
    )
    if not found:
        raise GradientError(
            f"gradient of {function.name}: no argument is a float, so there is no gradient"
        )
    return found


def _listed(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _fitted(what: str, given: Any, like: Array) -> Array:
    """A cotangent or tangent of the shape of `like`, and of its type where both are floats."""
    array = np.asarray(given)
    if array.shape != like.shape:
        raise ShapeError(f"{what} has shape {array.shape}, expected {like.shape}")
    both = array.dtype.kind in "iuf" and like.dtype.kind == "f"
    return array.astype(like.dtype, copy=False) if both else array
