"""Element types where an operator leaves them open."""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.dtypes import DType, f32, i64
from ...algo.tensor_expr.expr import Access, accesses, walk
from ...algo.tensor_expr.op import Op


def complete(op: Op, dtypes: Mapping[str, DType] | None) -> dict[str, DType]:
    """A type for every input: the given one, the annotated one, else f32 (i64 if it is an index).

    Legality does not depend on them; what is printed and allocated does.
    """
    given = dict(dtypes or {})
    used = _as_indices(op)
    return {
        p.name: given.get(p.name) or p.type.dtype or (i64 if p.name in used else f32)
        for p in op.params
    }


def _as_indices(op: Op) -> set[str]:
    found: set[str] = set()
    for equation in op.equations:
        positions = list(equation.lhs)
        for item in walk(equation.rhs):
            if isinstance(item, Access):
                positions.extend(item.indices)
        found |= {read.tensor for position in positions for read in accesses(position)}
    return found
