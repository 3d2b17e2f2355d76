"""Parallel loops: the body becomes a function of its own, which the thread pool runs in pieces.

The body's function is `void body(closure, begin, end, slot)`: iterations begin to end - 1 counted
from 0, on thread `slot` of the region, which has its own part of the workspace. A null pool, or
one that is busy, means that the calling thread does all of it.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from ..algo.dtypes import i64
from ..lower.ir import For, Stmt
from .closure import Closure
from .emit_stream import fence
from .frame import Frame
from .spans import of_loop
from .target import PTR
from .values import I1, I8, I64, VOID, Span, Value

BODY = ir.FunctionType(VOID, [PTR, I64, I64, I64])
RUN = ir.FunctionType(VOID, [PTR, PTR, PTR, I64, I1])  # pool, body, closure, iterations, dynamic


def parallel(
    f: Frame,
    loop: For,
    lo: Value,
    hi: Value,
    statement: Callable[[Frame, Stmt], None],
) -> None:
    """Emits a parallel loop that is not inside another one."""
    f.unit.parallel = True
    ib = f.ib
    closed = Closure(f, loop.body)
    slots = ib.gep(f.heap, [I64(f.unit.workspace.kernel)], source_etype=I8)
    first, last = f.scalar(lo), f.scalar(hi)
    captured = [*closed.passed, first, f.status, slots]

    name = f.unit.module.get_unique_name(f"{f.fn.name}.{loop.var}")
    body = ir.Function(f.unit.module, BODY, name)
    body.linkage = "internal"
    body.attributes.add("noinline")  # called from two places; twice the code gains nothing
    closure_type = ir.LiteralStructType([c.type for c in captured])
    closure = f.stack(closure_type, f"{loop.var}.closure")
    for i, item in enumerate(captured):
        ib.store(item, _field(ib, closure, closure_type, i))

    fence(f)
    size = ib.sub(last, first)
    count = size if loop.step == 1 else ib.sdiv(ib.add(size, I64(loop.step - 1)), I64(loop.step))
    _launch(f, body, closure, count, loop.kind == "dynamic")

    g = Frame(f.unit, body)
    loaded = iter(
        [
            g.ib.load(_field(g.ib, body.args[0], closure_type, i), typ=c.type)
            for i, c in enumerate(captured)
        ]
    )
    closed.enter(g, loaded, shared=True)
    start, shared, threads = loaded
    g.status = g.stack(I64, "status")  # which LLVM may keep in a register, and check but once
    g.ib.store(I64(0), g.status)
    _, begin, end, slot = body.args
    mine = g.ib.mul(slot, I64(f.unit.workspace.thread))
    g.heap = g.ib.gep(threads, [mine], source_etype=I8)
    _iterate(g, loop, (start, begin, end), of_loop(lo.bounds, hi.bounds), statement)
    failed = g.ib.load(g.status, typ=I64)
    g.if_else(
        g.ib.icmp_unsigned("!=", failed, I64(0)),
        lambda: g.ib.atomic_rmw("umax", shared, failed, "monotonic"),
    )
    fence(g)
    g.ib.ret_void()
    g.close()


def _iterate(
    g: Frame,
    loop: For,
    numbers: tuple[ir.Value, ir.Value, ir.Value],
    span: Span,
    statement: Callable[[Frame, Stmt], None],
) -> None:
    """for n in begin .. end-1: var = start + n*step; body, where `numbers` are start, begin and
    end. The pool gives no empty range."""
    ib = g.ib
    start, begin, end = numbers
    before, again, after = ib.block, g.block(loop.var), g.block(f"{loop.var}.end")
    ib.branch(again)
    ib.position_at_end(again)
    n = ib.phi(I64)
    n.add_incoming(begin, before)
    var = ib.add(start, n if loop.step == 1 else ib.mul(n, I64(loop.step)))
    with g.bound(loop.var, Value(i64, var, span=span)):
        statement(g, loop.body)
    following = ib.add(n, I64(1), flags=("nsw",))
    n.add_incoming(following, ib.block)
    ib.cbranch(ib.icmp_signed("<", following, end), again, after)
    ib.position_at_end(after)


def _launch(f: Frame, body: ir.Function, closure: ir.Value, count: ir.Value, dynamic: bool) -> None:
    ib = f.ib

    def with_pool() -> None:
        run = ib.load(f.pool, typ=RUN.as_pointer())
        ib.call(run, [f.pool, body, closure, count, I1(dynamic)])

    def alone() -> None:
        ib.call(body, [closure, I64(0), count, I64(0)])

    def some() -> None:
        f.if_else(ib.icmp_unsigned("!=", f.pool, PTR(None)), with_pool, alone)

    f.if_else(ib.icmp_signed(">", count, I64(0)), some)


def _field(ib: ir.IRBuilder, pointer: ir.Value, struct: ir.Type, i: int) -> ir.Value:
    at = [ir.IntType(32)(0), ir.IntType(32)(i)]
    return ib.gep(pointer, at, inbounds=True, source_etype=struct)
