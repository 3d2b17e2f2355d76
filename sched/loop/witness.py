"""Two instances that show why a schedule is refused, and how messages name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...algo import isl
from ...algo.errors import ScheduleError
from ...algo.tensor_expr.affine import normalize
from ...algo.tensor_expr.expr import Const, Expr, Index, Size, substitute
from .nest import Stmt
from .relations import from_data, pairs, symbols

Point = Mapping[str, int]


@dataclass(frozen=True)
class Pair:
    """Values of the dims of two statements, and of the sizes."""

    first: Point
    second: Point
    sizes: Point


def first_pair(a: Stmt, b: Stmt, conditions: Sequence[Expr], who: str) -> Pair | None:
    """The lexicographically first pair with the conditions (dims of `b` primed), or None.

    Raises where isl cannot say, naming the primitive `who`.
    """
    sizes = symbols(a, b)
    try:
        found = isl.first_point(pairs(a, b, conditions, sizes))
    except isl.Exhausted:
        raise ScheduleError(unproved(who, a, b)) from None
    if found is None:
        return None
    return Pair(
        {dim: found[dim] for dim in a.dims},
        {dim: found[dim + "'"] for dim in b.dims},
        {size: found[size] for size in sizes},
    )


def unproved(who: str, a: Stmt, b: Stmt) -> str:
    """The refusal where isl ran out of operations."""
    both = a.name if a.name == b.name else f"{a.name} and {b.name}"
    return (
        f"{who}: could not prove that {both} keep their order{at(a)}; "
        "a simpler order of primitives, or sizes that are given, may help"
    )


def value(expr: Expr, point: Point, sizes: Point) -> str:
    """An index expression at one instance, as a number; `?` where it depends on data."""
    if from_data(expr):
        return "?"
    known: dict[Expr, Expr] = {Index(dim): Const(n) for dim, n in point.items()}
    known |= {Size(name): Const(n) for name, n in sizes.items()}
    folded = normalize(substitute(expr, known))
    return str(folded.value) if isinstance(folded, Const) else "?"


def element(tensor: str, cell: Sequence[Expr], point: Point, sizes: Point) -> str:
    """`C[0,1]`: the element that an access touches at one instance."""
    return f"{tensor}[{','.join(value(e, point, sizes) for e in cell)}]"


def instance(stmt: Stmt, point: Point, sizes: Point) -> str:
    """`C.update[0,0,1]`: the original instance that a statement runs."""
    stage, indices = stmt.instance
    return element(stage, indices, point, sizes)


def at(stmt: Stmt) -> str:
    """` (mm.py:9)`, where the statement was written, if that is known."""
    return f" ({stmt.loc})" if stmt.loc else ""
