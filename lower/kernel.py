"""The door from loop schedules: a nest becomes a function of loop IR."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from ..algo import isl
from ..algo.errors import ScheduleError, UnsupportedError
from ..algo.isl import raw
from ..algo.tensor_expr.affine import normalize
from ..algo.tensor_expr.build import const
from ..algo.tensor_expr.expr import Call, Expr, Size, accesses, substitute
from ..sched.loop.machine import Machine
from ..sched.loop.nest import Nest
from . import ir, passes
from .context import Context, Lengths, bound, context_of, parameters
from .scan import Visit, asked, complete, determined
from .storage import Window, windows
from .torn import torn
from .tree import schedule
from .walk import NO_GUARDS, walk

QUOTA = 5_000_000
"""Operations of isl that the lowering of a nest of some statements may take: some seconds."""
SOME = 32
"""As many. isl compares statements in pairs, so that of more it may take as many more."""


def _quota(nest: Nest) -> int:
    return QUOTA * max(1, len(nest.stmts) ** 2 // SOME**2)


class Unlowered(ScheduleError, UnsupportedError):
    """A nest for which isl does not give the right loops: another schedule is needed."""


def lower(
    nest: Nest,
    name: str,
    strides: Mapping[str, tuple[int, ...]] | None = None,
    machine: Machine | None = None,
) -> ir.Function:
    """The function that runs `nest`, after all passes; its sizes are bound, or dynamic.

    Parameters are the inputs that are read, in the operator's order, then its outputs, then the
    dynamic sizes, each an array of rank 0. `strides` (in elements) is for parameters that are not
    dense; `machine` says how wide vectors are.
    Raises `Unlowered` where isl cannot cope with the nest.
    """
    return passes.run(translate(nest, name, strides), machine or Machine())


def translate(
    nest: Nest, name: str, strides: Mapping[str, tuple[int, ...]] | None = None
) -> ir.Function:
    """The function as isl's AST says it, before any pass."""
    context = context_of(nest)
    lengths = Lengths(context)
    body, stored = _versions(nest, nest.versions, name, strides, context, lengths)
    params = (*_params(nest, stored), *parameters(context))
    return ir.Function(name, params, bound(context, lengths, body))


def _versions(
    nest: Nest,
    versions: tuple[Expr, ...],
    name: str,
    strides: Mapping[str, tuple[int, ...]] | None,
    context: Context,
    lengths: Lengths,
) -> tuple[ir.Stmt, Mapping[str, Window]]:
    """The code for each of the conditions `versions`, and for no more sizes than there are."""
    for n, version in enumerate(versions):
        sizes: dict[Expr, Expr] = {Size(s): const(value) for s, value in nest.kernel.sizes.items()}
        condition = normalize(substitute(version, sizes))
        holds = context.given_too(condition)
        fails = context.given_too(Call("not", (condition,)))
        if holds.is_empty():
            continue
        if fails.is_empty():
            break
        then, stored = _code(nest, name, strides, holds, lengths)
        orelse, _ = _versions(nest, versions[n + 1 :], name, strides, fails, lengths)
        return ir.If(substitute(condition, context.values), then, orelse), stored
    return _code(nest, name, strides, context, lengths)


def _code(
    nest: Nest,
    name: str,
    strides: Mapping[str, tuple[int, ...]] | None,
    context: Context,
    lengths: Lengths,
) -> tuple[ir.Stmt, Mapping[str, Window]]:
    """What runs the nest in a context, and where its buffers lie."""
    try:
        with isl.quota(_quota(nest)):
            stored = windows(nest, context, lengths, strides)
        body = _whole(nest, name, stored, context, ())
        homes = {nest.buffers[buffer].at for buffer in torn(body)}
        if homes:
            body = _whole(nest, name, stored, context, [home for home in homes if home])
    except isl.Exhausted:
        raise Unlowered(
            f"{name}: isl finds no loops for this nest within {_quota(nest)} operations; "
            f"split or fuse fewer loops"
        ) from None
    for buffer in torn(body):
        raise Unlowered(
            f"{name}: isl generates several pieces of the loop in which {buffer} lives; "
            "keep it in a loop further out"
        )
    return body, stored


def _whole(
    nest: Nest, name: str, stored: Mapping[str, Window], context: Context, held: Collection[str]
) -> ir.Stmt:
    """The code that runs every instance of the nest, loops `held` in one piece."""
    with isl.quota(_quota(nest)):
        body, visits = _generate(nest, stored, context, held)
    if complete(nest, visits, context):
        return body
    with isl.quota(_quota(nest)):
        known = {stmt.name: determined(stmt, context) for stmt in nest.stmts.values()}
        body, visits = _generate(nest, stored, context, held, known)
    if complete(nest, visits, context):
        return body
    with isl.quota(_quota(nest)):
        guards = {stmt.name: asked(nest, stmt, context) for stmt in nest.stmts.values()}
        body, visits = _generate(nest, stored, context, held, guards=guards)
    if complete(nest, visits, context):
        return body
    raise Unlowered(
        f"{name}: isl generates loops that miss instances of this nest; "
        f"split or reorder fewer loops over indices that others determine"
    )


def _generate(
    nest: Nest,
    stored: Mapping[str, Window],
    context: Context,
    held: Collection[str],
    known: Mapping[str, Mapping[Expr, Expr]] = MappingProxyType({}),
    guards: Mapping[str, tuple[Expr, ...]] = NO_GUARDS,
) -> tuple[ir.Stmt, list[Visit]]:
    """isl's loops for the nest, without the conditions `guards` of its domains, and these."""
    wider = {
        name: replace(stmt, domain=tuple(c for c in stmt.domain if c not in guards.get(name, ())))
        for name, stmt in nest.stmts.items()
    }
    build = raw.AstBuild.from_context(context.params)
    tree = schedule(replace(nest, stmts=wider), known, context, held)
    return walk(build.node_from_schedule(tree), nest, stored, context, guards)


def _params(nest: Nest, stored: Mapping[str, Window]) -> tuple[ir.Buffer, ...]:
    tensors = nest.kernel.tensors
    read = {
        item.tensor
        for stmt in nest.stmts.values()
        for expr in (stmt.value, *stmt.lhs)
        for item in accesses(expr)
    }
    inputs = [t.name for t in tensors.values() if t.role == "input" and t.name in read]
    outputs = [name for name in nest.kernel.checked.op.returns if tensors[name].role == "output"]
    return tuple(stored[name].stored for name in (*inputs, *dict.fromkeys(outputs)))
