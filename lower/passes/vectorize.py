"""Vector loops are cut into pieces that the target has, the last one masked.

    for j in 0 .. 21 vector: S     ==>     for j in 0 .. 16 vector(16): S
                                           for j in 16 .. 21 vector(8): S

A piece has as many lanes as a vector register holds of the widest type in the body; the last one
as many as the next power of two. Where the number of iterations varies, pieces end at it, and
those that would be empty are skipped.
"""

from __future__ import annotations

from ...algo.errors import InternalError
from ...algo.tensor_expr.affine import bounds
from ...algo.tensor_expr.build import compare, const, minimum
from ...algo.tensor_expr.expr import Index
from ...sched.loop.machine import Machine
from ..ir import For, Function, If, Stmt, block, substitute
from ..lanes import Scope, lanes, visit


def vectorize(function: Function, machine: Machine) -> Function:
    """The function with vector loops in native pieces; expects what `strip` gives."""
    return visit(function, lambda loop, scope: _cut(loop, scope, machine))


def _cut(loop: For, scope: Scope, machine: Machine) -> Stmt:
    least, most = bounds(loop.hi, scope.known)
    if most is None or bounds(loop.lo, {}) != (0, 0):
        raise InternalError(f"vector loop {loop.var} does not run from 0 to a bounded end")
    native = lanes(loop, scope.buffers, machine)
    pieces = []
    start = 0
    while start < most:
        width = min(native, 1 << (most - start - 1).bit_length())
        piece = _piece(loop, start, width)
        if least is None or least <= start:
            piece = If(compare("lt", const(start), loop.hi), piece)
        pieces.append(piece)
        start += width
    return block(*pieces)


def _piece(loop: For, start: int, width: int) -> Stmt:
    if width == 1:
        return substitute(loop.body, {Index(loop.var): const(start)})
    stop = minimum(loop.hi, const(start + width))
    return For(loop.var, const(start), stop, loop.body, "vector", 1, width)
