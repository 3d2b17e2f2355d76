"""Element types of the tensors of an operator; the rules themselves are in `elaborate.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..dtypes import DType, bool_, f32, i64
from ..errors import DTypeError
from .binding import map_reductions
from .components import tensor_cycles, units
from .elaborate import (
    NATIVE,
    Env,
    Kind,
    cast,
    dtype_of,
    elaborate,
    elaborate_condition,
    elaborate_index,
    joined,
    typed_value,
    widened,
)
from .expr import Access, Call, Const, Expr, Reduce, accesses, walk
from .fold_types import result_types, typed_part
from .folds import groups, is_joint, part_of
from .located import located
from .op import Checked, Equation
from .reducers import EXTREMES, REDUCERS

__all__ = [
    "Env",
    "cast",
    "dtype_of",
    "elaborate",
    "elaborate_condition",
    "elaborate_index",
    "infer",
    "typed_rhs",
]


def infer(checked: Checked, dtypes: Env) -> dict[str, DType]:
    """The element type of every tensor. Inputs without a type are f32, i64 if they index,
    bool if they stand beside `&`, `|` or under `~`.

    Raises `DTypeError` naming the input, or the equation and the types that do not go together.
    """
    env = _inputs(checked, dtypes)
    by_tensor: dict[str, list[int]] = {}
    for n, eq in enumerate(checked.equations):
        by_tensor.setdefault(eq.tensor, []).append(n)
    joint = {n: group for group in groups(checked.equations) for n in group}
    left = {name: len(numbers) for name, numbers in by_tensor.items()}
    for unit in units(checked.op, tensor_cycles(checked.op)):
        for n in unit:
            left[checked.equations[n].tensor] -= 1
        names = dict.fromkeys(checked.equations[n].tensor for n in unit)
        whole = {name: by_tensor[name] for name in names if not left[name]}
        env |= _defined(checked, whole, joint, env)
    return env


def typed_rhs(eq: Equation, env: Env) -> Expr:
    """The typed form of a right side; `env` has the types of all tensors. What is accumulated has
    the accumulator's type, as in a reduction."""
    if isinstance(eq.rhs, Reduce) and is_joint(eq.rhs):
        return typed_part(eq.rhs, env[eq.tensor], env)
    if eq.reducer is not None:
        return widened(typed_value(eq.rhs, env), REDUCERS[eq.reducer].accumulator(env[eq.tensor]))
    return elaborate(eq.rhs, env)


def _conditions(checked: Checked) -> set[str]:
    """The tensors whose elements are joined as conditions, and those that they are copies of."""
    joined_parts = [
        part
        for eq in checked.equations
        for item in walk(eq.rhs)
        if isinstance(item, Call) and item.op in ("and", "or", "not")
        for part in item.args
    ]
    found: set[str] = set()
    while joined_parts:
        part = joined_parts.pop()
        if isinstance(part, Call) and part.op == "where":
            joined_parts += part.args[1:]
        elif isinstance(part, Reduce):
            joined_parts.append(part.body)
        elif isinstance(part, Access) and part.tensor not in found:
            found.add(part.tensor)
            joined_parts += [eq.rhs for eq in checked.equations if eq.tensor == part.tensor]
    return found


def _inputs(checked: Checked, dtypes: Env) -> dict[str, DType]:
    indexing = {
        inner.tensor
        for eq in checked.equations
        for expr in (*eq.lhs, eq.rhs)
        for outer in walk(expr)
        for index in (outer.indices if isinstance(outer, Access) else ())
        for inner in accesses(map_reductions(index, _place))
    }
    indexing |= {a.tensor for eq in checked.equations for e in eq.lhs for a in accesses(e)}
    env: dict[str, DType] = {}
    conditions = _conditions(checked)
    for param in checked.op.params:
        said, came = param.type.dtype, dtypes.get(param.name)
        if said is not None and came is not None and said is not came:
            raise DTypeError(
                f"{param.name} is declared {said}, but an array of {came} came; "
                f"convert it, or declare {param.name} without a type"
            )
        unsaid = i64 if param.name in indexing else bool_ if param.name in conditions else f32
        env[param.name] = said or came or unsaid
    unknown = [name for name in dtypes if name not in env]
    if unknown:
        raise DTypeError(
            f"{checked.op.name} has no input {unknown[0]}; its inputs are {', '.join(env)}"
        )
    return env


def _place(reduction: Reduce) -> Expr:
    """What of a reduction in an index position may be integers: of an argmax, none of its body."""
    return Const(0) if reduction.reducer in EXTREMES else reduction


def _defined(
    checked: Checked,
    numbers: Mapping[str, Sequence[int]],
    joint: Mapping[int, Sequence[int]],
    env: Env,
) -> dict[str, DType]:
    """The types of tensors that need each other, or of one, given the numbers of its equations.
    `joint` says of each with which it is computed."""
    here = dict(env)
    found: dict[str, Kind] = dict.fromkeys(numbers, type(None))
    for _ in range(8 * len(numbers)):  # types only grow, and are soon stable
        before = dict(found)
        for tensor, mine in numbers.items():
            union: Kind = type(None)
            for n in mine:
                try:
                    together = [checked.equations[m] for m in joint[n]]
                    union = joined(union, _equation_type(checked.equations[n], together, here))
                except DTypeError as err:
                    raise DTypeError(f"{err}{located(checked.op, n)}") from None
            found[tensor] = union
            if isinstance(union, DType):
                here[tensor] = union
        if found == before:
            break
    return {
        tensor: kind if isinstance(kind, DType) else NATIVE.get(kind, f32)
        for tensor, kind in found.items()
    }


def _equation_type(eq: Equation, together: Sequence[Equation], env: Env) -> Kind:
    part = part_of(eq.rhs)
    if part is not None and len(together) > 1:
        bodies = [item.rhs.body for item in together if isinstance(item.rhs, Reduce)]
        found = result_types(part.fold, bodies, env)
        return type(None) if found is None else found[part.number]
    kind = typed_value(eq.rhs, env).type
    if eq.reducer is None or kind is type(None):
        return kind
    return REDUCERS[eq.reducer].result(kind if isinstance(kind, DType) else NATIVE[kind])
