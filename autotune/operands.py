"""Operators, sizes and inputs as they are named on the command line, and what `explain` says."""

from __future__ import annotations

import re
from typing import Any

from ..algo.dtypes import BY_NAME, DType, f32
from ..algo.errors import OpError, ShapeError
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.op import Op
from ..algo.tensor_expr.parse import parse
from ..algo.tensor_expr.settle import from_shapes, needs, numbered, sizes_named
from ..algo.tensor_expr.sizes import bind_sizes, evaluate
from .tasks import load, split_target


def op_types(
    op: Op, sizes: list[str], inputs: list[str]
) -> tuple[Op, dict[str, tuple[DType, tuple[int, ...]]]]:
    """Types of all parameters from `-s` and `-i` arguments and the operator's annotations.

    Sizes that have to be numbers for the operator to be checked are put into it.
    """
    given: dict[str, tuple[DType, tuple[int, ...]]] = {}
    names = [p.name for p in op.params]
    for text in inputs:
        match = re.fullmatch(r"\s*(\w+)\s*=\s*(\w+)\s*\[([\d\s,]*)\]\s*", text)
        if not match:
            raise OpError(f"-i {text!r}: expected NAME=TYPE[SIZES], such as A=f32[64,64]")
        if match[2] not in BY_NAME:
            kinds = ", ".join(BY_NAME)
            raise OpError(f"-i {text!r}: {match[2]} is no element type; expected one of {kinds}")
        if match[1] not in names:
            raise OpError(
                f"-i {text!r}: {op.name} has no input {match[1]}, only {', '.join(names)}"
            )
        shape = tuple(int(n) for n in match[3].split(",") if n.strip())
        given[match[1]] = (BY_NAME[match[2]], shape)
    values: dict[str, int] = {}
    known = sizes_named(op)
    for text in sizes:
        match = re.fullmatch(r"\s*(\w+)\s*=\s*(\d+)\s*", text)
        if not match:
            raise OpError(f"-s {text!r}: expected NAME=NUMBER, such as M=1024")
        if match[1] not in known:
            raise OpError(f"-s {text!r}: {op.name} has no size {match[1]}, only {', '.join(known)}")
        values[match[1]] = int(match[2])
    if (error := needs(op)) is not None:
        shapes = {name: shape for name, (_, shape) in given.items()}
        op, values = numbered(op, {**from_shapes(error, shapes), **values})
        values = {name: n for name, n in values.items() if name in check(op).sizes}
    checked = check(op)
    for rule in checked.rules:
        # Sizes that a given input binds need not be said again.
        if rule.param in given and rule.dim < len(given[rule.param][1]):
            for size in checked.sizes:
                if repr(rule.extent) == f"Size({size!r})":
                    values.setdefault(size, given[rule.param][1][rule.dim])
    missing = [s for s in checked.sizes if s not in values]
    if missing:
        raise ShapeError(f"{op.name}: give sizes, for example -s {missing[0]}=64")
    types: dict[str, tuple[DType, tuple[int, ...]]] = {}
    for param in op.params:
        shape = tuple(evaluate(e, values) for e in checked.shapes[param.name])
        types[param.name] = given.get(param.name, (param.type.dtype or f32, shape))
    return op, types


def explained(target: str, sizes: list[str], inputs: list[str], threads: int | None) -> str:
    """The default schedule of an operator on this machine, with the figures it was chosen by."""
    from ..codegen import pool
    from ..codegen.host import machine
    from ..codegen.peaks import peaks
    from ..sched.loop.explain import explain

    what = named(target)
    if not isinstance(what, Op):
        raise OpError(f"{target} is a {type(what).__name__}, not an operator")
    op, types = op_types(what, sizes, inputs)
    pool.threads(threads)
    dtypes = {name: dtype for name, (dtype, _) in types.items()}
    bound = bind_sizes(check(op), {name: shape for name, (_, shape) in types.items()})
    return explain(op, dtypes, bound, machine(), peaks())


def named(target: str) -> Any:
    """What `file.py:name` or an operator's text names."""
    file, name = split_target(target)
    return load(file, name) if name or file.endswith(".py") else parse(target)
