"""The verifier of loop IR, run between passes in tests and at DIPTYCH_DEBUG=3.

A violation is a bug of a pass, so it is an `InternalError`; its message holds the statement.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..algo.dtypes import DType, bool_, i64
from ..algo.errors import InternalError
from ..algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, Index, walk
from ..algo.tensor_expr.operations import OPERATIONS
from ..algo.tensor_expr.reducers import REDUCERS
from ..algo.tensor_expr.types import dtype_of
from .ir import (
    AXES,
    KINDS,
    Alloc,
    Barrier,
    Block,
    Buffer,
    For,
    Function,
    If,
    Let,
    Prefetch,
    Stmt,
    Store,
    Update,
    expressions,
)
from .ir_print import print_expr, print_stmt

INNER = ("serial", "unroll", "dot")
SCOPES = ("heap", "stack", "register", "shared", "local", "tile")


def verify(function: Function, final: bool = False) -> None:
    """Raises `InternalError` unless `function` is well formed.

    `final` asks for what code generation is promised: no unroll loops, vector loops in lanes that
    are a power of two, register buffers indexed by constants.
    """
    buffers: dict[str, Buffer] = {}
    for param in function.params:
        _buffer(param, ("param",), buffers, function.body)
        buffers[param.name] = param
    _Checker(final).check(function.body, frozenset(), buffers, ())


def _fail(stmt: Stmt, what: str) -> InternalError:
    return InternalError(f"loop IR: {what}, in\n{print_stmt(stmt, 1)}")


def _buffer(
    buffer: Buffer, scopes: tuple[str, ...], known: Mapping[str, Buffer], stmt: Stmt
) -> None:
    if buffer.name in known:
        raise _fail(stmt, f"buffer {buffer.name} is bound within its own scope")
    if buffer.scope not in scopes:
        raise _fail(stmt, f"buffer {buffer.name} has scope {buffer.scope}, not {'/'.join(scopes)}")
    if len(buffer.shape) != len(buffer.strides):
        raise _fail(stmt, f"buffer {buffer.name} has {len(buffer.strides)} strides")
    if any(extent < 0 for extent in buffer.shape):
        raise _fail(stmt, f"buffer {buffer.name} has a negative extent")
    if len(buffer.extents) not in (0, len(buffer.shape)):
        raise _fail(stmt, f"buffer {buffer.name} has {len(buffer.extents)} extents")
    varies = buffer.extents or any(isinstance(stride, str) for stride in buffer.strides)
    if varies and buffer.scope != "param":
        raise _fail(stmt, f"buffer {buffer.name} is no parameter and has extents that vary")


class _Checker:
    def __init__(self, final: bool) -> None:
        self.final = final

    def check(
        self,
        stmt: Stmt,
        names: frozenset[str],
        buffers: Mapping[str, Buffer],
        loops: tuple[For, ...],
    ) -> None:
        for expr in expressions(stmt):
            self.check_expr(expr, names, buffers, loops, stmt)
        _check_types(stmt, {name: buffer.dtype for name, buffer in buffers.items()})
        match stmt:
            case Block(stmts):
                if len(stmts) == 1 or any(isinstance(s, Block) for s in stmts):
                    raise _fail(stmt, "a block is not flat")
                for inner in stmts:
                    self.check(inner, names, buffers, loops)
            case For(var, _, _, body, _, _, _):
                self.check_for(stmt, names, loops)
                self.check(body, names | {var}, buffers, (*loops, stmt))
            case If(_, then, orelse):
                self.check(then, names, buffers, loops)
                if orelse is not None:
                    self.check(orelse, names, buffers, loops)
            case Let(var, _, body):
                if var in names:
                    raise _fail(stmt, f"{var} is bound within its own scope")
                self.check(body, names | {var}, buffers, loops)
            case Alloc(own, body):
                for buffer in own:
                    if buffer.scope != stmt.scope:
                        raise _fail(stmt, f"one allocation is {stmt.scope} and {buffer.scope}")
                    _buffer(buffer, SCOPES, buffers, stmt)
                self.check(body, names, {**buffers, **{b.name: b for b in own}}, loops)
            case Store(name, index, _) | Update(name, index, _, _):
                if isinstance(stmt, Update) and stmt.reducer not in REDUCERS:
                    raise _fail(stmt, f"{stmt.reducer} is no reducer")
                self.check_cell(name, index, names, buffers, loops, stmt)
            case Prefetch(cell):
                if not isinstance(cell, Access):
                    raise _fail(stmt, "what is prefetched is no cell of a buffer")
            case Barrier():
                if not any(loop.kind.startswith("thread.") for loop in loops):
                    raise _fail(stmt, "a barrier is outside the loops over threads")
            case _:
                raise InternalError(f"no loop IR statement: {stmt!r}")

    def check_for(self, loop: For, names: frozenset[str], loops: tuple[For, ...]) -> None:
        if loop.var in names:
            raise _fail(loop, f"{loop.var} is bound within its own scope")
        if loop.kind not in KINDS + AXES:
            raise _fail(loop, f"{loop.kind} is no kind of loop")
        if loop.step < 1 or (loop.step != 1 and loop.kind == "vector"):
            raise _fail(loop, f"a {loop.kind} loop has step {loop.step}")
        if any(outer.kind == "vector" for outer in loops) and loop.kind not in INNER:
            raise _fail(loop, f"a {loop.kind} loop is inside a vector loop")
        if loop.kind != "vector" and loop.lanes != 1:
            raise _fail(loop, f"a {loop.kind} loop has lanes")
        if loop.lanes < 1 or loop.lanes & (loop.lanes - 1):
            raise _fail(loop, f"{loop.lanes} lanes are not a power of two")
        if loop.until is not None and loop.kind != "serial":
            raise _fail(loop, f"a {loop.kind} loop ends before its end")
        if loop.kind in AXES and any(outer.kind == loop.kind for outer in loops):
            raise _fail(loop, f"{loop.kind} is bound twice")
        if self.final and (loop.kind == "unroll" or (loop.kind == "vector" and loop.lanes == 1)):
            raise _fail(loop, f"an {loop.kind} loop is left")

    def check_expr(
        self,
        expr: Expr,
        names: frozenset[str],
        buffers: Mapping[str, Buffer],
        loops: tuple[For, ...],
        stmt: Stmt,
    ) -> None:
        for item in walk(expr):
            match item:
                case Index(name):
                    if name not in names:
                        raise _fail(stmt, f"{name} is not bound")
                case Access(name, index):
                    self.check_cell(name, index, names, buffers, loops, stmt, read=True)
                case Call(op, args):
                    if op not in OPERATIONS or len(args) != OPERATIONS[op].arity:
                        raise _fail(stmt, f"{op} is no operation of {len(args)} arguments")
                case Const() | Cast():
                    pass
                case _:
                    raise _fail(stmt, f"{type(item).__name__} does not occur in loop IR")

    def check_cell(
        self,
        name: str,
        index: tuple[Expr, ...],
        names: frozenset[str],
        buffers: Mapping[str, Buffer],
        loops: tuple[For, ...],
        stmt: Stmt,
        read: bool = False,
    ) -> None:
        buffer = buffers.get(name)
        if buffer is None:
            raise _fail(stmt, f"buffer {name} is not bound")
        if len(index) != len(buffer.shape):
            raise _fail(stmt, f"buffer {name} has rank {len(buffer.shape)}, not {len(index)}")
        for length in (*buffer.strides, *buffer.extents):
            if isinstance(length, str) and length not in names:
                raise _fail(stmt, f"buffer {name} needs {length}, which is not bound")
        if self.final and buffer.scope == "register":
            vectors = {loop.var for loop in loops if loop.kind == "vector"}
            for n, part in enumerate(index):
                used = {item.name for item in walk(part) if isinstance(item, Index)}
                turned = read and used & vectors and buffer.strides[n] == 1
                if (used - vectors and not turned) or (
                    used and buffer.strides[n] != 1 and not read
                ):
                    text = print_expr(Access(name, index))
                    raise _fail(stmt, f"register buffer access {text} is not constant")


def _check_types(stmt: Stmt, env: Mapping[str, DType]) -> None:
    """Every operation has operands of one type, and every value the type of its place."""
    for expr in expressions(stmt):
        for item in walk(expr):
            if isinstance(item, Call):
                _check_operands(item, env, stmt)
            elif isinstance(item, Access) and any(
                dtype_of(e, env) is not i64 for e in item.indices
            ):
                raise _fail(stmt, f"an index of {print_expr(item)} is no i64")
    wanted: list[tuple[Expr, DType]] = []
    match stmt:
        case For(_, lo, hi, until=until):
            wanted = [(lo, i64), (hi, i64)]
            wanted += [(until, bool_)] if until is not None else []
        case If(cond, _, _):
            wanted = [(cond, bool_)]
        case Let(_, value, _):
            wanted = [(value, i64)]
        case Store(buffer, index, value) | Update(buffer, index, _, value):
            wanted = [(value, env[buffer])] if buffer in env else []
            wanted += [(part, i64) for part in index]
    for expr, dtype in wanted:
        came = dtype_of(expr, env)
        if came is not dtype:
            raise _fail(stmt, f"{print_expr(expr)} is {came}, not {dtype}")


def _check_operands(call: Call, env: Mapping[str, DType], stmt: Stmt) -> None:
    types = [dtype_of(arg, env) for arg in call.args]
    if call.op == "where":
        fine = types[0] is bool_ and types[1] is types[2]
    elif call.op in ("and", "or", "not"):
        fine = all(dtype is bool_ for dtype in types)
    else:
        fine = all(dtype is types[0] for dtype in types)
    if not fine:
        listed = ", ".join(map(str, types))
        raise _fail(stmt, f"operands of {call.op} in {print_expr(call)} are {listed}")
