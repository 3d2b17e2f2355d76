"""Dimensions of a buffer that loops run over as one.

    for p in 0 .. 48: t[(48*q + p) // 56, (48*q + p) % 56]      is best stored by      56*d0 + d1

where h and w were made one loop, whose blocks are no boxes of h and w: the box around one takes
all of w, and most of it would be empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..algo.tensor_expr.affine import linear
from ..algo.tensor_expr.expr import Access, Call, Const, Expr, Index, walk
from ..sched.loop.nest import Buffer, Nest, Stmt
from ..sched.loop.storage import cells, in_coordinates
from ..sched.loop.tree import around_stmt


def merged(
    nest: Nest, stmts: Sequence[Stmt], buffer: Buffer, extents: Sequence[Expr]
) -> list[tuple[Expr, ...]]:
    """Ways to store a buffer with several dimensions made one, over d0, d1, ...: different
    elements have different places. `stmts` use it; `extents` are those of the tensor."""
    found: dict[tuple[Expr, ...], None] = {}
    for form in _forms(nest, stmts, buffer):
        dims = _digits(form, extents)
        if dims is not None:
            last = max(dims)
            kept = (n for n in range(buffer.rank) if n not in dims or n == last)
            found[tuple(form if n == last else Index(f"d{n}") for n in kept)] = None
    return list(found)


def _forms(nest: Nest, stmts: Sequence[Stmt], buffer: Buffer) -> Iterator[Expr]:
    """What loops count, over the coordinates of the elements touched, where it is a sum."""
    for stmt in stmts:
        for cell in dict.fromkeys(cells(stmt, buffer.name)):
            if any(isinstance(item, Access) for part in cell for item in walk(part)):
                continue
            for loop in around_stmt(nest.tree, stmt.name):
                value = loop.values[stmt.name]
                while isinstance(value, Call) and value.op in ("floordiv", "mod"):
                    value = value.args[0]
                form = linear(value)
                if form is None or len(form.terms) < 2:
                    continue
                over = in_coordinates(value, cell, stmt)
                if over is not None:
                    yield over


def _digits(form: Expr, extents: Sequence[Expr]) -> set[int] | None:
    """The dimensions of a sum that counts them like digits, the last one by steps of 1."""
    known = linear(form)
    assert known is not None
    steps: dict[int, int] = {}
    for atom, step in known.terms.items():
        if not isinstance(atom, Index) or atom.name not in (f"d{n}" for n in range(len(extents))):
            return None
        steps[int(atom.name[1:])] = step
    size = 1
    for dim, step in sorted(steps.items(), key=lambda item: item[1]):
        extent = extents[dim]
        if step != size or not isinstance(extent, Const):
            return None
        size = step * int(extent.value)
    return set(steps)
