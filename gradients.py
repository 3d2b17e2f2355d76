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
from .algo.graph.build import literal
from .algo.graph.graph import Value
from .algo.graph.program import Program, has_values
from .algo.graph.tree import LEAF, NONE, Structure, flatten, paths, unflatten
from .algo.tensor_expr.dynamic import carried
from .algo.tensor_expr.op import Op
from .algo.tensor_expr.settle import settled_on
from .arguments import arguments
from .autodiff.derivatives import EVEN, sharing
from .autodiff.forward import tangent
from .autodiff.graph import cast, gradients, pulled
from .autodiff.graph import tangents as push
from .autodiff.keep import Keep, keeping, kept
from .autodiff.results import float_results, returning
from .autodiff.reverse import adjoint
from .kept import kept_for

Array = np.ndarray[Any, Any]


def vjp(
    function: Any, *primals: Any, ties: str = EVEN, keep: Keep | None = None
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """`(results, pull)` of an operator, program or function at these arguments, as in JAX.

    `pull` maps cotangents, of the results' shapes (a tuple for several results, or nested as they
    are), to a tuple of the cotangents of the arguments, of their shapes and types. Integers get
    None, and what is given for results that are no floats is left out, so that None will do. `keep`
    names the tensors of an operator that are kept for `pull` (`Op.keeping`), which computes the
    others again; () keeps results alone, None what reductions and recurrences give, {"h": 16} every
    16th step of the recurrence h. In a program it takes and gives values, and `pull` takes them of
    arrays too. `ties` is as in
    `grad`. Raises `GradientError` where no argument is a float, and for other names.
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
        return _vjp_of_program(as_program(function, "vjp"), primals, sharing(ties))
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
            return _pulled_in_program(Program(function, function.name), arrays, cotangents, ties)
        seeds = _listed(cotangents)
        if len(seeds) != len(function.returns):
            raise GradientError(
                f"vjp of {function.name}: expected a cotangent for each of "
                f"{', '.join(function.returns)}, {len(seeds)} came"
            )
        seeds = tuple(
            _fitted(f"vjp of {function.name}: the cotangent of {name}", seed, given[name])
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
        return _jvp_of_program(as_program(function, "jvp"), primals, tangents, sharing(ties))
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
        return _value_and_grad_of_program(as_program(function, "grad"), picks, single, ties)

    def call(*arrays: Any) -> Any:
        if has_values(arrays, {}):
            program = as_program(function, "grad")
            return _value_and_grad_of_program(program, picks, single, ties)(*arrays)
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
        if value.dtype.kind != "f":
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
    instance, in the order of an operator's loops as they are written, or the first argument. No
    schedule changes that.
    """
    if isinstance(of, Value):
        leaves, structure = flatten(argnums)
        strangers = [leaf for leaf in leaves if not isinstance(leaf, Value)]
        if strangers:
            raise GraphError(
                f"grad: expected values of the program to differentiate by, got {strangers[0]!r}"
            )
        return unflatten(structure, gradients(of, leaves, ties=ties))
    both = value_and_grad(of, argnums, ties=ties)
    return lambda *arrays: both(*arrays)[1]


# Programs


def as_program(function: Any, what: str) -> Program:
    """The program that a function is; `what` is done with it, an error says."""
    if isinstance(function, Program):
        return function
    if isinstance(function, Op):
        return Program(lambda *arrays: function(*arrays), function.name)
    if not callable(function):
        raise GradientError(
            f"{what} of {function!r}: expected an operator, a program or a function"
        )
    return Program(function)


def _value_and_grad_of_program(
    program: Program, picks: tuple[int, ...], single: bool, ties: str
) -> Callable[..., Any]:
    def both(*args: Any) -> Any:
        count = len(args)
        beyond = [n for n in picks if not -count <= n < count]
        if beyond:
            raise GradientError(
                f"grad of {program.name}: argument {beyond[0]} was asked for, {count} came"
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
            found.append(unflatten(structure, gradients(value, leaves, ties=ties)))
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
    program: Program, primals: tuple[Any, ...], ties: str
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    if has_values(primals, {}):
        primals = _in_program(primals)
    leaves, structure = flatten(primals)
    floats = [_is_float(leaf) for leaf in leaves]
    if not any(floats):
        raise GradientError(
            f"vjp of {program.name}: no argument is an array of floats, so there is no gradient"
        )
    results = program(*primals)
    outputs, shape = flatten(results)
    typed = outputs if has_values(primals, {}) else program.graph(*primals).outputs
    have = [_is_float(value) for value in typed]  # which results have cotangents

    def back(args: Any, seeds: Any) -> Any:
        values = [leaf for leaf in flatten(args)[0] if isinstance(leaf, Value)]
        wrt = [v for v in values if v.type.dtype.is_float]
        results = flatten(program.function(*args))[0]
        pairs = [
            (result, seed if isinstance(seed, Value) else literal(seed))
            for result, seed in zip(results, seeds, strict=True)
            if isinstance(result, Value) and result.type.dtype.is_float
        ]
        return pulled(pairs, wrt, ties)

    backward = Program(back, f"{program.name}_vjp")

    def pull(cotangents: Any) -> tuple[Any, ...]:
        if has_values(cotangents, {}) and not has_values(primals, {}):
            return _pulled_in_program(program, primals, cotangents, ties)
        seeds, fits = _aligned(shape, cotangents)
        if not fits:
            raise GradientError(
                f"vjp of {program.name}: expected cotangents nested as the results are, {shape!r}, "
                f"came {flatten(cotangents)[1]!r}"
            )
        seeds = [
            _moved(f"vjp of {program.name}: the cotangent of {name}", seed, output)
            if is_float
            else None
            for name, seed, output, is_float in zip(
                paths(shape, "result"), seeds, outputs, have, strict=True
            )
        ]
        given = iter(backward(primals, seeds))
        filled = [next(given) if is_float else None for is_float in floats]
        return tuple(unflatten(structure, filled))

    return results, pull


def _pulled_in_program(
    program: Program, primals: Sequence[Any], cotangents: Any, ties: str
) -> tuple[Any, ...]:
    """What cotangents that are values of a program give the arguments, which are arrays."""
    _, pull = _vjp_of_program(program, _in_program(tuple(primals)), ties)
    return pull(cotangents)


def _jvp_of_program(
    program: Program, primals: Sequence[Any], tangents: Sequence[Any], ties: str
) -> tuple[Any, Any]:
    given = tuple(primals)
    traced = has_values((given, tuple(tangents)), {})
    leaves, structure = flatten(_in_program(given) if traced else given)
    moves, found = _aligned(structure, tuple(tangents))
    if not found:
        raise GradientError(
            f"jvp of {program.name}: expected tangents nested as the primals are, {structure!r}, "
            f"came {flatten(tuple(tangents))[1]!r}"
        )
    floats = [_is_float(leaf) for leaf in leaves]
    if not any(floats):
        raise GradientError(
            f"jvp of {program.name}: no argument is an array of floats, so there is no tangent"
        )
    moves = [
        _moved(f"jvp of {program.name}: the tangent of {name}", move, leaf)
        for name, move, leaf, is_float in zip(
            paths(structure, "primals"), moves, leaves, floats, strict=True
        )
        if is_float
    ]

    def forth(args: Any, moves: Any) -> Any:
        results = program.function(*args)
        outputs, shape = flatten(results)
        wrt = [leaf for leaf in flatten(args)[0] if _is_float(leaf)]
        values = [leaf if isinstance(leaf, Value) else literal(leaf) for leaf in outputs]
        given = [move if isinstance(move, Value) else literal(move) for move in moves]
        return results, unflatten(shape, push(values, wrt, given, ties))

    results, moved = Program(forth, f"{program.name}_jvp")(unflatten(structure, leaves), moves)
    return results, moved


def _aligned(structure: Structure, tree: Any) -> tuple[list[Any], bool]:
    """What `tree` has at each leaf of the structure, None and trees too; False if they differ."""
    own = flatten(tree)[1]
    if structure is LEAF:
        return [tree], own is LEAF or own is NONE
    if (own.kind, own.keys, own.cls, len(own.parts)) != (
        structure.kind, structure.keys, structure.cls, len(structure.parts)
    ):  # fmt: skip
        return [], False
    inside = tree.values() if structure.kind == "dict" else tree or ()
    pairs = [_aligned(part, item) for part, item in zip(structure.parts, inside, strict=True)]
    return [leaf for leaves, _ in pairs for leaf in leaves], all(same for _, same in pairs)


def _in_program(primals: tuple[Any, ...]) -> Any:
    """The arguments in a program: all arrays of floats as values."""
    leaves, structure = flatten(primals)
    values = [v if isinstance(v, Value) or not _is_float(v) else literal(v) for v in leaves]
    return unflatten(structure, values)


def _is_float(leaf: Any) -> bool:
    if isinstance(leaf, Value):
        return leaf.type.dtype.is_float
    return isinstance(leaf, (np.ndarray, np.generic)) and from_numpy(leaf.dtype).is_float


def _moved(what: str, move: Any, like: Any) -> Any:
    """A tangent or cotangent of the right shape and type; values of a program have types."""
    if isinstance(move, Value):
        if move.type.shape != like.shape:
            raise ShapeError(f"{what} has shape {move.type.shape}, expected {like.shape}")
        return cast(move, like.type.dtype if isinstance(like, Value) else from_numpy(like.dtype))
    if isinstance(like, Value):
        return _fitted(what, move, np.broadcast_to(like.type.dtype.numpy.type(0), like.shape))
    return _fitted(what, move, like)


# Arguments


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


def _fitted(what: str, given: Any, like: Array) -> Array:
    """A cotangent or tangent of the shape of `like`, and of its type where both are floats."""
    if given is None:
        raise ShapeError(f"{what} is None, expected an array of shape {like.shape}")
    array = np.asarray(given)
    if array.shape != like.shape:
        raise ShapeError(f"{what} has shape {array.shape}, expected {like.shape}")
    both = array.dtype.kind in "iuf" and like.dtype.kind == "f"
    return array.astype(like.dtype, copy=False) if both else array


def _as(found: Array, like: Array) -> Array:
    """A cotangent or tangent in the type of what has it: what stands beside may be wider."""
    return found.astype(like.dtype, copy=False) if like.dtype.kind == "f" else found
