"""What a call says of an index, read from an array, that is out of range.

Compiled code reports only which tensor and dimension it was. The rest is found when it has
happened: the accesses that can be meant, and, where that is quick, the index, its value and the
instance, by the interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..algo.errors import Error, ShapeError
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.expr import Access, accesses, walk
from ..algo.tensor_expr.interpret import interpret
from ..algo.tensor_expr.located import located
from ..algo.tensor_expr.op import Equation, Op
from ..algo.tensor_expr.printer import print_expr
from ..algo.tensor_expr.sizes import bind_sizes, shape_of

LIMIT = 1 << 24
"""Instances up to which the interpreter looks for the index: about a second."""


class OutsideError(ShapeError):
    """A kernel met an index out of range for `site`, as "W axis 0 of size 10"."""

    def __init__(self, kernel: str, site: str) -> None:
        super().__init__(kernel, site)  # both, so that it can be pickled
        self.kernel, self.site = kernel, site

    def __str__(self) -> str:
        return f"{self.kernel}: an index read from an array is out of range for {self.site}"


def outside(op: Op, site: str, arrays: Sequence[Any]) -> ShapeError:
    """The error for a call of `op` on `arrays`, one a parameter, that failed at `site`."""
    checked = check(op)
    shapes = {p.name: np.shape(a) for p, a in zip(op.params, arrays, strict=True)}
    sizes = bind_sizes(checked, shapes)
    if math.prod(sizes.values()) <= LIMIT:
        try:
            interpret(op, *arrays)
        except ShapeError as error:
            return error
        except Error:  # the call has written over its input
            pass
    name, _, rest = site.partition(" axis ")
    dim, _, extent = rest.partition(" of size ")
    tensor = name.partition(".")[0]
    if not extent.isdecimal():  # the name of a length that depends on dynamic sizes
        extent = str(shape_of(checked, tensor, sizes)[int(dim)])
        site = f"{name} axis {dim} of size {extent}"
    found = [
        f"{print_expr(access)} is outside {tensor}: dim {dim} has extent {extent}, but an index "
        f"read from an array is not in it{located(op, n)}"
        for n, eq in enumerate(op.equations)
        for access in _accesses(eq)
        if access.tensor == tensor and accesses(access.indices[int(dim)])
    ]
    return ShapeError(f"{op.name}: {found[0]}") if len(found) == 1 else OutsideError(op.name, site)


def _accesses(eq: Equation) -> list[Access]:
    read = (item for item in walk(eq.rhs) if isinstance(item, Access))
    return list(dict.fromkeys([Access(eq.tensor, eq.lhs), *read]))
