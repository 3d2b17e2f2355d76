"""Sizes that have to be numbers, because some use of them is affine only then.

`x[r*W + c]` is affine in r and c where W is a number, and `x.wrap[i-1]` is a remainder by an
extent. Such an operator is checked when the size is known: at a call, or by `op.at(W=64)`, which
is the operator with the number put in.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..dtypes import TensorType
from ..errors import NeedsSizes, OpError, ShapeError
from .affine import is_affine, normalize
from .build import const
from .expr import Call, Const, Expr, Size, accesses, indices_of, sizes_of, substitute, walk
from .op import Equation, Op, Param
from .uses import map_exprs

Extents = Mapping[tuple[str, int], Expr]
"""The extent of every dimension of every input, as far as it is known."""


def forced(expr: Expr) -> tuple[str, ...]:
    """The sizes that have to be numbers for an expression to be affine; none if that is no help."""
    found: dict[str, None] = {}
    for item in walk(expr):
        match item:
            case Call("mul", (a, b)) if not is_affine(item):
                factor = b if _of_sizes(b) else a
                found.update(dict.fromkeys(sizes_of([factor])))
            case Call("floordiv" | "mod", (_, b)) if not is_affine(item):
                found.update(dict.fromkeys(sizes_of([b])))
    numbers: dict[Expr, Expr] = {Size(name): const(3) for name in found}
    return tuple(found) if is_affine(normalize(substitute(expr, numbers))) else ()


def _of_sizes(expr: Expr) -> bool:
    return bool(sizes_of([expr])) and not indices_of(expr) and not accesses(expr)


def needs(op: Op) -> NeedsSizes | None:
    """What the operator needs to be checked; None where it is. Raises what `check` raises else."""

    def find() -> NeedsSizes | None:
        from .check import check

        try:
            check(op)
        except NeedsSizes as error:
            return error
        return None

    found: NeedsSizes | None = op.memo("needs", find)
    return found


def settled(op: Op, shapes: Mapping[str, Sequence[int]]) -> Op:
    """The operator, with those sizes as numbers that have to be, from the inputs' shapes."""
    while (error := needs(op)) is not None:
        op, _ = numbered(op, from_shapes(error, shapes))
    return op


def settled_on(op: Op, arrays: Sequence[Any]) -> Op:
    """The operator as it is for a call on arrays, one a parameter."""
    pairs = zip(op.params, arrays, strict=False)
    return settled(op, {param.name: np.shape(array) for param, array in pairs})


def from_shapes(error: NeedsSizes, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The sizes of an operator that is not checked yet, from shapes of its inputs."""
    values: dict[str, int] = {}
    for (param, dim), extent in error.extents.items():
        shape = shapes.get(param, ())
        if isinstance(extent, Size) and dim < len(shape):
            values.setdefault(extent.name, int(shape[dim]))
    return values


def numbered(op: Op, sizes: Mapping[str, int]) -> tuple[Op, dict[str, int]]:
    """The operator, with those sizes as numbers that have to be, and the others of `sizes`."""
    rest = dict(sizes)
    while (error := needs(op)) is not None:
        missing = [name for name in error.sizes if name not in rest]
        if missing:
            raise ShapeError(f"{op.name}: give size {missing[0]}; {error}")
        op = op.at(**{name: rest.pop(name) for name in error.sizes})
    return op, rest


def sizes_named(op: Op) -> list[str]:
    """The names of the operator's sizes."""
    return _extents(op)[1]


def at(op: Op, sizes: Mapping[str, Any]) -> Op:
    """The operator with numbers put in for sizes. Raises `OpError` for what is no size of it."""
    extents, known = _extents(op)
    for name, value in sizes.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}? Its" if near else "its"
            listed = f"{hint} sizes are {', '.join(known)}" if known else "it has no sizes"
            raise OpError(f"at({name}={value!r}): {op.name} has no size {name}; {listed}")
        if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 0:
            raise OpError(f"at({name}={value!r}): expected a whole number")
    values = {name: int(value) for name, value in sizes.items()}
    key = f"at {sorted(values.items())}"
    made: Op = op.memo(key, lambda: _at(op, values, extents, op.equations))
    if needs(op) is None and not _is_sound(made):
        from .check import check

        # Of extents like T and T + 1 an index runs over the less; two numbers may be a mistake.
        ranged: Op = op.memo(f"{key} ranged", lambda: _at(op, values, extents, check(op).equations))
        made = ranged if _is_sound(ranged) else made
    needs(made)
    return made


def _is_sound(op: Op) -> bool:
    try:
        needs(op)
    except OpError:
        return False
    return True


def _at(op: Op, values: Mapping[str, int], extents: Extents, equations: Sequence[Equation]) -> Op:
    from .check import check

    numbers: dict[Expr, Expr] = {Size(name): const(value) for name, value in values.items()}

    def put(expr: Expr) -> Expr:
        return substitute(expr, numbers)

    said = dict(op.shapes)
    if 0 in values.values() and needs(op) is None:  # nothing may be left that says an extent
        gone = {name for name, value in values.items() if value == 0}
        known = check(op).shapes
        said |= {eq.tensor: known[eq.tensor] for eq in op.equations
                 if gone.intersection(sizes_of(known[eq.tensor]))}  # fmt: skip
    shapes = {tensor: tuple(normalize(put(e)) for e in dims) for tensor, dims in said.items()}
    params: list[Param] = []
    for param in op.params:
        dims = param.type.dims
        if dims is not None:
            named = tuple(values.get(d, d) if isinstance(d, str) else d for d in dims)
            params.append(_annotated(param, named))
            continue
        rank = sum(name == param.name for name, _ in extents)
        mine = [extents[param.name, d] for d in range(rank)]
        if not set(values) & set(sizes_of(mine)) or param.name in shapes:
            params.append(param)
            continue
        mine = [normalize(put(extent)) for extent in mine]
        if all(isinstance(extent, (Const, Size)) for extent in mine):
            params.append(_annotated(param, tuple(map(_dim, mine))))
        else:
            params.append(param)
            shapes[param.name] = tuple(mine)
    return replace(
        op,
        params=tuple(params),
        equations=tuple(map_exprs(eq, put) for eq in equations),
        shapes=shapes,
        maxima={name: most for name, most in op.maxima.items() if name not in values},
        _memo={},
    )


def _annotated(param: Param, dims: tuple[str | int, ...]) -> Param:
    return Param(param.name, TensorType(param.type.dtype, dims))


def _dim(extent: Expr) -> str | int:
    return extent.name if isinstance(extent, Size) else int(getattr(extent, "value", 0))


def _extents(op: Op) -> tuple[Extents, list[str]]:
    """The extents of inputs, and the names of all sizes."""
    from .check import check

    error = needs(op)
    if error is not None:
        return error.extents, sizes_of(list(error.extents.values()))
    checked = check(op)
    extents = {
        (p.name, d): extent
        for p in op.params
        for d, extent in enumerate(checked.shapes.get(p.name, ()))
    }
    return extents, list(checked.sizes)


def says(op: Op, message: str, sizes: Iterable[str]) -> str:
    """The message for a use that is affine only where `sizes` are numbers."""
    listed = list(sizes)
    dynamic = [name for name in listed if name in op.maxima]
    if dynamic:
        return f"{message}; {dynamic[0]} has to be a number, but it is declared dynamic"
    keywords = ", ".join(f"{name}=..." for name in listed)
    return f"{message}; use {op.name}.at({keywords}), the operator with a number there"
