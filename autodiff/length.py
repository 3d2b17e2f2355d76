"""How much there is to read in an expression written as text."""

from __future__ import annotations

from ..algo.tensor_expr.attribute import attribute
from ..algo.tensor_expr.expr import Call, Expr, Range, Reduce
from ..algo.tensor_expr.operations import OPERATIONS

Length = tuple[int, int, int]
BARE = 1 + max(operation.precedence for operation in OPERATIONS.values())
"""The precedence of what never stands in parentheses."""


@attribute
def nodes(expr: Expr, parts: tuple[int, ...]) -> int:
    """How many nodes there are to read; a range is what it is called and how far it runs."""
    return 2 if isinstance(expr, Range) else 1 + sum(parts)


@attribute
def brackets(expr: Expr, parts: tuple[int, ...]) -> int:
    """How many pairs of parentheses there are to read around operations."""
    if not isinstance(expr, Call) or not expr.symbol:
        return sum(parts)
    mine = OPERATIONS[str(expr.op)].precedence
    theirs = (
        OPERATIONS[str(a.op)].precedence if isinstance(a, Call) and a.symbol else BARE
        for a in expr.args
    )
    return sum(parts) + sum(
        other < mine or (other == mine and place == 1) for place, other in enumerate(theirs)
    )


@attribute
def summed(expr: Expr, parts: tuple[int, ...]) -> int:
    """How many nodes stand inside of sums, where they are computed again and again."""
    return nodes(expr.body) if isinstance(expr, Reduce) else sum(parts)


def length(expr: Expr, more: int = 0) -> Length:
    """How much there is to read: nodes, and `more` elsewhere; of as many, those inside of sums;
    then parentheses."""
    return nodes(expr) + more, summed(expr), brackets(expr)
