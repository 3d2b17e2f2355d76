"""Gradients of programs, and of plain functions of arrays in dicts, lists and tuples: programs that
go on where the function ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .algo.dtypes import from_numpy
from .algo.errors import GradientError, ShapeError
from .algo.graph.build import literal
from .algo.graph.graph import Value
from .algo.graph.program import Program, has_values
from .algo.graph.tree import LEAF, NONE, Structure, flatten, paths, unflatten
from .algo.tensor_expr.op import Op
from .autodiff.graph import cast, gradients, pulled
from .autodiff.graph import tangents as push

Array = np.ndarray[Any, Any]


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


def value_and_grad_of_program(
    program: Program, picks: tuple[int, ...], single: bool, ties: str
) -> Callable[..., Any]:
    """`value_and_grad` of a program, by the arguments numbered `picks`."""

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


def vjp_of_program(
    program: Program, primals: tuple[Any, ...], ties: str
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """`vjp` of a program."""
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
            return pulled_in_program(program, primals, cotangents, ties)
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


def pulled_in_program(
    program: Program, primals: Sequence[Any], cotangents: Any, ties: str
) -> tuple[Any, ...]:
    """What cotangents that are values of a program give the arguments, which are arrays."""
    _, pull = vjp_of_program(program, _in_program(tuple(primals)), ties)
    return pull(cotangents)


def jvp_of_program(
    program: Program, primals: Sequence[Any], tangents: Sequence[Any], ties: str
) -> tuple[Any, Any]:
    """`jvp` of a program."""
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
        return fitted(what, move, np.broadcast_to(like.type.dtype.numpy.type(0), like.shape))
    return fitted(what, move, like)


def fitted(what: str, given: Any, like: Array) -> Array:
    """A cotangent or tangent of the shape of `like`, and of its type where both are floats."""
    if given is None:
        raise ShapeError(f"{what} is None, expected an array of shape {like.shape}")
    array = np.asarray(given)
    if array.shape != like.shape:
        raise ShapeError(f"{what} has shape {array.shape}, expected {like.shape}")
    both = array.dtype.kind in "iuf" and like.dtype.kind == "f"
    return array.astype(like.dtype, copy=False) if both else array
