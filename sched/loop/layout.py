"""Layouts of copies: how users write them, and what they mean for storage and for loops."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...algo import isl
from ...algo.errors import ScheduleError
from ...algo.tensor_expr.affine import is_affine
from ...algo.tensor_expr.build import add, compare, const, floordiv, mod, mul, sub
from ...algo.tensor_expr.expr import Call, Expr, Index, substitute
from ...algo.tensor_expr.points import points
from .relations import agree, differ, primed

_OPERATORS = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}


def parse_layout(axes: Sequence[str], names: Sequence[str], who: str) -> tuple[Expr, ...]:
    """Storage axes, outermost first, over d0, d1, ... from text such as `("j//32", "k", "j%32")`.

    `names` are what the tensor's dimensions are called; d0, d1, ... serve as well. Raises unless
    different elements get different places.
    """
    known: dict[str, Expr] = {name: Index(f"d{n}") for n, name in enumerate(names)}
    known |= {f"d{n}": Index(f"d{n}") for n in range(len(names))}
    layout = tuple(_axis(axis, known, who) for axis in axes)
    _check_injective(layout, axes, names, who)
    return layout


def _axis(axis: str, known: dict[str, Expr], who: str) -> Expr:
    def build(node: ast.expr) -> Expr:
        if isinstance(node, ast.Name) and node.id in known:
            return known[node.id]
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return const(node.value)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](build(node.left), build(node.right))
        raise ScheduleError(
            f"{who}: layout axis {axis!r} is not made of {', '.join(known)}, integers and "
            "+ - * // %"
        )

    try:
        parsed = ast.parse(axis, mode="eval").body
    except (SyntaxError, ValueError, TypeError):
        raise ScheduleError(f"{who}: layout axis {axis!r} is not an expression") from None
    built = build(parsed)
    if not is_affine(built):
        raise ScheduleError(
            f"{who}: layout axis {axis!r} is not affine; multiply and divide by integers only"
        )
    return built


def _check_injective(
    layout: tuple[Expr, ...], axes: Sequence[str], names: Sequence[str], who: str
) -> None:
    dims = tuple(f"d{n}" for n in range(len(names)))
    both = [*dims, *primed(dims)]
    positive = [compare("ge", Index(dim), const(0)) for dim in both]
    for axis, said in zip(layout, axes, strict=True):
        below = compare("lt", axis, const(0))
        found = isl.first_point(points(dims, [*positive[: len(dims)], below]))
        if found is not None:
            one = ",".join(str(found[dim]) for dim in dims)
            raise ScheduleError(f"{who}: layout axis {said!r} is negative at the element [{one}]")
    apart = differ([Index(dim) for dim in dims], dims)
    found = isl.first_point(points(both, [*agree(layout, dims), *positive, apart]))
    if found is not None:
        one, two = (",".join(str(found[d + mark]) for d in dims) for mark in ("", "'"))
        raise ScheduleError(
            f"{who}: in layout ({', '.join(axes)}) the elements [{one}] and [{two}] of a block "
            "share one place"
        )


def dimension_names(cell: tuple[Expr, ...]) -> tuple[str, ...]:
    """What a tensor's dimensions are called: by the indices of an access, or d0, d1, ..."""
    bare = tuple(part.name if isinstance(part, Index) else f"d{n}" for n, part in enumerate(cell))
    return bare if len(set(bare)) == len(bare) else tuple(f"d{n}" for n in range(len(bare)))


def loop_names(layout: tuple[Expr, ...], names: Sequence[str]) -> list[str]:
    """Names for loops over the storage axes: `j//32` is jo, `j%32` is ji, `k` is k."""
    found: list[str] = []
    plain = {Index(f"d{n}"): name for n, name in enumerate(names)}
    for n, axis in enumerate(layout):
        match axis:
            case Index():
                name = plain[axis]
            case Call("floordiv", (Index() as dim, _)):
                name = plain[dim] + "o"
            case Call("mod", (Index() as dim, _)):
                name = plain[dim] + "i"
            case _:
                name = f"a{n}"
        found.append(name if name not in found else f"{name}{n}")
    return found


def loop_values(layout: tuple[Expr, ...], names: Sequence[str]) -> list[Expr]:
    """The same axes over the dims of the copy."""
    dims: dict[Expr, Expr] = {Index(f"d{n}"): Index(name) for n, name in enumerate(names)}
    return [substitute(axis, dims) for axis in layout]
