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
from .algo.graph.build import check_own
from .algo.graph.graph import Value
from .algo.graph.program import Program, has_values
from .algo.graph.tree import flatten, unflatten
from .algo.tensor_expr.dynamic import carried
from .algo.tensor_expr.op import Op
from .algo.tensor_expr.settle import settled_on
from .arguments import arguments
from .autodiff.derivatives import EVEN, sharing
from .autodiff.forward import tangent
from .autodiff.graph import gradients
from .autodiff.keep import Keep, keeping, kept
from .autodiff.results import float_results, returning
from .autodiff.reverse import adjoint
from .kept import kept_for
from .program_gradients import (
    as_program,
    fitted,
    jvp_of_program,
    pulled_in_program,
    value_and_grad_of_program,
    vjp_of_program,
)

Array = np.ndarray[Any, Any]


def vjp(
    function: Any, *primals: Any, ties: str = EVEN, keep: Keep | None = None
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """`(results, pull)` of an operator, program or function at these arguments, as in JAX.

    `pull` maps cotangents, of the results' shapes (a tuple for several results, or nested as they
    are), to a tuple of the cotangents of the arguments, of their shapes and types. Integers get
    None, and what is given for results that are no floats is left out, so that None will do. `keep`
    names the tensors of an operator that are kept for `pull` (`Op.keeping`), which computes the
    others again; () keeps results alone, None what reductions and recurrences give,
    {"h": 16, "c": 16} every 16th step of h and c, which a recurrence carries from step to step.
    Arguments are read by `pull` as they are then, so do not change arrays in between. In a program
    it takes and gives values, and `pull` takes them of arrays too. `ties` is as in `grad`. Raises
    `GradientError` where no argument is a float, and for other names.
    """
    if not isinstance(function, Op) or has_values(primals, {}):
        if keep is not None and not isinstance(function, Op):
            raise GradientError(
                f"vjp of {_name(function)}: keep={keep!r} names tensors of an operator, and this "
                "is none; what a program keeps is a matter of its schedule, .recompute(...)"
            )
        if keep is not None:
            raise GradientError(
                f"vjp of {function.name} in a program: keep={keep!r} is for calls on arrays; what "
                "a program keeps is a matter of its schedule, .recompute(...)"
            )
        return vjp_of_program(as_program(function, "vjp"), primals, sharing(ties))
    arrays = arguments(function, primals)
    return _vjp_of_op(function, arrays, _floats(function, arrays), ties, keep)


def _vjp_of_op(
    function: Op,
    arrays: Sequence[Array],
    wrt: tuple[str, ...],
    ties: str,
    keep: Keep | None = None,
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """`vjp` by some parameters; the others get None."""
    function = settled_on(function, arrays)
    part = _returning_floats(function, _float_results(function, arrays))
    what = kept(kept_for(function, wrt) if keep is None else keep)
    larger = keeping(function, what)
    forth = function if larger is function else carried(function, larger)
    steps = tuple(pair for pair in what if pair[1] > 1)
    whole = (name for name, every in what if every == 1)
    saved = tuple(n for n in dict.fromkeys((*function.returns, *whole)) if n not in dict(steps))
    back = carried(function, adjoint(part, wrt, saved, ties, steps))
    results = forth(*arrays)
    given = dict(zip((p.name for p in function.params), arrays, strict=True))
    given |= zip(forth.returns, _listed(results), strict=True)
    if forth is not function:
        count = len(function.returns)
        results = results[:count] if count > 1 else results[0]

    def pull(cotangents: Any) -> tuple[Any, ...]:
        if has_values(cotangents, {}):
            return pulled_in_program(Program(function, function.name), arrays, cotangents, ties)
        seeds = _listed(cotangents)
        if len(seeds) != len(function.returns):
            hint = " (a list is one for each result; give an array)"
            raise GradientError(
                f"vjp of {function.name}: expected a cotangent for each of "
                f"{', '.join(function.returns)}, {len(seeds)} came"
                + hint
                * isinstance(cotangents, list)
            )
        seeds = tuple(
            fitted(f"vjp of {function.name}: the cotangent of {name}", seed, given[name])
            for name, seed in zip(function.returns, seeds, strict=True)
            if name in part.returns
        )
        names = [p.name for p in back.params[: len(back.params) - len(seeds)]]
        found = _listed(back(*(given[name] for name in names), *seeds))
        by_name = {n: _as(g, given[n]) for n, g in zip(wrt, found, strict=True)}
        return tuple(by_name.get(p.name) for p in function.params)

    return results, pull


def jvp(
    function: Any, primals: Sequence[Any], tangents: Sequence[Any], *, ties: str = EVEN
) -> tuple[Any, Any]:
    """`(results, tangents of the results)` of an operator, program or function, as in JAX.

    `tangents` has an array of the shape and type of each of `primals`, nested as they are; those of
    integers are None and anything else given for them is left out. The tangents of results are
    nested as these are, and of their types, zeros for integers and truth values. In a program, of
    values by values. `ties` is as in `grad`. Raises `GradientError` where no argument is a float,
    `ShapeError` for tangents that do not fit.
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise GradientError(
            f"jvp of {_name(function)}: expected primals and tangents as tuples, "
            f"{type(primals).__name__} and {type(tangents).__name__} came"
        )
    if not isinstance(function, Op) or has_values((primals, tangents), {}):
        return jvp_of_program(as_program(function, "jvp"), primals, tangents, sharing(ties))
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
        moves[name] = fitted(what, moves[name], given[name])
    floats = _float_results(function, arrays)
    part = _returning_floats(function, floats)
    forth = carried(function, tangent(part, wrt, ties))
    plain = [p.name for p in forth.params[: len(forth.params) - len(wrt)]]
    results = function(*arrays)
    given |= dict(zip(function.returns, _listed(results), strict=True))
    found = _listed(forth(*(given[name] for name in plain), *(moves[name] for name in wrt)))
    moved = dict(zip(part.returns, found, strict=True))
    pushed = tuple(
        _as(moved[n], given[n]) if n in floats else np.zeros_like(given[n])
        for n in function.returns
    )
    return results, pushed if len(pushed) > 1 else pushed[0]


def value_and_grad(
    function: Any, argnums: int | Sequence[int] = 0, *, ties: str = EVEN
) -> Callable[..., Any]:
    """A function to `(value, gradient)`, the value of `function` being a scalar.

    `argnums` numbers the arguments to differentiate by, from the end if negative: for one number
    the gradient is that of the argument, nested as it is, for several a tuple of them. Raises
    `GradientError` where the result is no scalar or the argument is no float.
    """
    picks = _picks(function, argnums)
    sharing(ties)
    single = not isinstance(argnums, (tuple, list))
    if not isinstance(function, Op):
        return value_and_grad_of_program(as_program(function, "grad"), picks, single, ties)

    def call(*arrays: Any) -> Any:
        if has_values(arrays, {}):
            program = as_program(function, "grad")
            return value_and_grad_of_program(program, picks, single, ties)(*arrays)
        given = arguments(function, arrays)
        floats = _floats(function, given)
        wrt = tuple(dict.fromkeys(function.params[n].name for n in picks))
        for name in wrt:
            if name not in floats:
                raise GradientError(f"grad of {function.name} by {name}: it is an integer")
        value, pull = _vjp_of_op(function, given, wrt, ties)
        if isinstance(value, tuple) or value.shape != ():
            shape = "several results" if isinstance(value, tuple) else f"shape {value.shape}"
            raise GradientError(
                f"grad of {function.name}: expected a scalar result, {shape} came; use dt.vjp"
            )
        if not from_numpy(value.dtype).is_float:
            raise GradientError(
                f"grad of {function.name}: expected a float result, one of type "
                f"{from_numpy(value.dtype)} came"
            )
        found = pull(np.ones((), value.dtype))
        return value, found[picks[0]] if single else tuple(found[n] for n in picks)

    return call


def grad(of: Any, argnums: Any = 0, *, ties: str = EVEN) -> Any:
    """The gradient of a scalar.

    Of an operator, a program or a function, by the arguments numbered `argnums`: a function to
    the gradient, as `value_and_grad`. In a program, of a value by values (nested in dicts, lists,
    tuples), which stand in their place: the gradients, nested alike.

    What a tie of max or min gets is shared evenly; with `ties` "first" it goes to the first
    instance, in the order of an operator's loops as they are written, or the first argument. Of
    `max(a, b, c)` these are ties of two, of c with the greater of a and b. No schedule changes
    that.
    """
    if isinstance(of, Value):
        leaves, structure = flatten(argnums)
        strangers = [leaf for leaf in leaves if not isinstance(leaf, Value)]
        if strangers:
            raise GraphError(
                f"grad: expected values of the program to differentiate by, got {strangers[0]!r}"
            )
        check_own((of, *leaves))
        return unflatten(structure, gradients(of, leaves, ties=ties))
    if has_values(argnums, {}):
        raise GraphError(
            f"grad: expected a value of the program to differentiate, got {of!r}; compute it of "
            "what it is differentiated by"
        )
    both = value_and_grad(of, argnums, ties=ties)
    return lambda *arrays: both(*arrays)[1]


def _picks(function: Any, argnums: Any) -> tuple[int, ...]:
    try:
        numbers = argnums if isinstance(argnums, (tuple, list)) else [argnums]
        picks = tuple(map(operator.index, numbers))
    except TypeError:
        picks = ()
    count = len(function.params) if isinstance(function, Op) else None
    if not picks or (count is not None and not all(-count <= n < count for n in picks)):
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


def _float_results(function: Op, arrays: Sequence[Array]) -> tuple[str, ...]:
    types = {
        p.name: from_numpy(a.dtype, p.type.dtype)
        for p, a in zip(function.params, arrays, strict=True)
    }
    return float_results(function, types)


def _returning_floats(function: Op, floats: tuple[str, ...]) -> Op:
    """The operator with the results alone that have cotangents; all where none is a float."""
    return returning(function, floats or function.returns)


def _listed(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _as(found: Array, like: Array) -> Array:
    """A cotangent or tangent in the type of what has it: what stands beside may be wider."""
    return found.astype(like.dtype, copy=False) if from_numpy(like.dtype).is_float else found
