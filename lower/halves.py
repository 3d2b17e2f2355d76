"""Values combined by halves: (x0 + x2) + (x1 + x3). So lanes of one vector are combined.

The cells of a row of registers combined so, in each lane those of another row, are a tree of whole
vectors (`codegen/emit_tree.py`). This is how lowering writes that, and code generation finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..algo.tensor_expr.expr import Access, Call, Const, Expr
from ..algo.tensor_expr.operations import OPERATIONS

LONGEST = 64
"""Cells of a row, at most: more lanes than any vector has."""


@dataclass(frozen=True, slots=True)
class Row:
    """The first `width` cells, a power of two, of a row of a buffer, combined by `op`."""

    buffer: str
    index: Expr
    width: int
    op: str

    @property
    def combined(self) -> Expr:
        """The cells combined by halves."""
        cells = [Access(self.buffer, (self.index, Const(n))) for n in range(self.width)]
        return by_halves(self.op, cells)


def by_halves(op: str, values: Sequence[Expr]) -> Expr:
    """Values, as many as a power of two, combined by an operation: the lower half of them each with
    one of the upper, and so on."""
    while len(values) > 1:
        half = len(values) // 2
        values = [Call(op, pair) for pair in zip(values[:half], values[half:], strict=True)]
    return values[0]


def row_of(expr: Expr) -> Row | None:
    """The row whose cells an expression combines by halves, if it does just that, and by what gives
    the cells' own type again."""
    first, width = expr, 1
    while isinstance(first, Call) and len(first.args) == 2 and width < LONGEST:
        first, width = first.args[0], 2 * width
    match expr, first:
        case Call(str(op)), Access(buffer, (index, _)) if OPERATIONS[op].result == "same":
            row = Row(buffer, index, width, op)
            return row if row.combined is expr else None
    return None
