"""Vector loops start at 0, and long ones become a serial loop over strips.

    for j in lo .. hi vector:  S(j)     ==>     for j.strip in 0 .. n // 64:
                                                    for j in 0 .. 64 vector:  S(lo + j.strip*64 + j)
                                                for j in 0 .. n % 64 vector:  S(lo + n//64*64 + j)

where n is hi - lo. A strip is four vectors long: enough independent work for the latency of a
fused multiply-add, in a body that is still short.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.tensor_expr.affine import Interval, bounds, normalize
from ...algo.tensor_expr.build import add, const, floordiv, maximum, mul, sub
from ...algo.tensor_expr.expr import Expr, Index
from ...sched.loop.machine import Machine
from ..ir import Buffer, For, Function, Stmt, block, substitute, with_
from ..lanes import Scope, lanes, visit
from ..ranges import span
from .lines import lines, stored_plainly

STRIP = 4
LONGEST = 8
"""Vectors in a strip, and in a loop that is cut into pieces as it is."""


def strip(function: Function, machine: Machine) -> Function:
    """The function with all vector loops from 0 to at most `LONGEST` vectors."""
    plain: set[str | None] = set()

    def look(loop: For, scope: Scope) -> Stmt:
        plain.add(stored_plainly(loop, scope))
        return loop

    visit(function, look)
    params = tuple(with_(p, stream=p.stream and p.name not in plain) for p in function.params)

    def vector(loop: For, scope: Scope) -> Stmt:
        return lines(loop, scope) or _vector(loop, scope.buffers, scope.known, machine)

    return visit(Function(function.name, params, function.body), vector)


def _vector(
    loop: For, buffers: Mapping[str, Buffer], known: Mapping[str, Interval], machine: Machine
) -> Stmt:
    count = normalize(span(loop), known)
    most = bounds(count, known)[1]
    width = lanes(loop, buffers, machine)
    if most is not None and most <= LONGEST * width:
        return _from(loop, loop.lo, count)
    if (least := bounds(count, known)[0]) is None or least < 0:
        count = maximum(count, const(0))  # what is left of an empty loop would be almost a strip
    chunk = STRIP * width
    var = f"{loop.var}.strip"
    full = floordiv(count, const(chunk))
    whole = _from(loop, add(loop.lo, mul(Index(var), const(chunk))), const(chunk))
    done = mul(full, const(chunk))
    return block(
        For(var, const(0), full, whole),
        _from(loop, add(loop.lo, done), sub(count, done)),
    )


def _from(loop: For, start: Expr, count: Expr) -> For:
    """The loop's iterations from `start` on, counted from 0."""
    var = Index(loop.var)
    return For(loop.var, const(0), count, substitute(loop.body, {var: add(start, var)}), "vector")
