"""A plain executor of loop IR, for tests and debugging only: no call ever uses it.

The function becomes Python source over NumPy scalars, one statement a line. Memory starts
poisoned, every access is checked against its buffer, and iterations of a parallel loop run last
first, so that a pass that breaks any of this is caught rather than lucky.
"""

from __future__ import annotations

from operator import le
from typing import Any

import numpy as np

from ..algo.dtypes import integers
from ..algo.errors import InternalError, UnsupportedError
from ..algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, Index, children, walk
from ..algo.tensor_expr.operations import OPERATIONS
from ..algo.tensor_expr.reducers import REDUCERS
from ..sched.loop.nest import PARALLEL
from .ir import (
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
)
from .ir_print import print_expr

_INFIX = {"and": "and", "or": "or"} | {
    name: OPERATIONS[name].symbol
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "add", "sub", "mul")
}


def run(function: Function, *arrays: np.ndarray[Any, Any]) -> None:
    """Runs `function` on arrays of its parameters' shapes, in their order, written in place.

    Where a pass has merged axes, dense arrays of the shape before that do too. Raises
    `InternalError` for an access outside a buffer, `UnsupportedError` for barriers.
    """
    if len(arrays) != len(function.params):
        raise InternalError(f"{function.name} takes {len(function.params)} arrays")
    given = []
    for param, array in zip(function.params, arrays, strict=True):
        if array.flags.c_contiguous and array.size == np.prod(param.shape, dtype=np.int64):
            array = array.reshape(param.shape)
        given.append(array)
        if not _fits(array.shape, param) or array.dtype != param.dtype.numpy:
            raise InternalError(
                f"{function.name}: {param.name} is {param.dtype}{list(param.shape)}, "
                f"got {array.dtype}{list(array.shape)}"
            )
    source = _Source(function)
    scope = dict(source.scope)
    exec(compile(source.text, f"<loop IR {function.name}>", "exec"), scope)
    with np.errstate(all="ignore"):
        scope["kernel"](*given)


def _fits(shape: tuple[int, ...], param: Buffer) -> bool:
    if not param.extents:
        return shape == param.shape
    return len(shape) == len(param.shape) and all(map(le, shape, param.shape))


def source(function: Function) -> str:
    """The Python source that `run` executes."""
    return _Source(function).text


class _Source:
    def __init__(self, function: Function) -> None:
        self.scope: dict[str, Any] = {"_load": _load, "_store": _store, "_empty": _empty}
        self.names: dict[str, str] = {}
        self.dtypes = {param.name: param.dtype for param in function.params}
        params = ", ".join(self.name("b_", param.name) for param in function.params)
        self.lines = [f"def kernel({params}):"]
        self.stmt(function.body, 1)
        self.text = "\n".join(self.lines) + "\n"

    def name(self, kind: str, text: str) -> str:
        """A Python name: the scopes of loop IR nest as Python's variables may be reused."""
        return self.names.setdefault(kind + text, f"{kind}{len(self.names)}")

    def bind(self, value: Any) -> str:
        name = f"k_{len(self.scope)}"
        self.scope[name] = value
        return name

    def stmt(self, stmt: Stmt, depth: int) -> None:
        pad = "    " * depth
        match stmt:
            case Block(stmts):
                for inner in stmts:
                    self.stmt(inner, depth)
                self.lines.append(f"{pad}pass")
            case For(var, lo, hi, body, kind, step, lanes, until=until):
                bounds = f"{self.expr(lo)}, {self.expr(hi)}"
                order = "[::-1]" if kind in PARALLEL else ""
                if lanes != 1:
                    self.lines.append(f"{pad}assert len(range({bounds})) <= {lanes}")
                self.lines.append(
                    f"{pad}for {self.name('v_', var)} in range({bounds}, {step}){order}:"
                )
                self.stmt(body, depth + 1)
                if until is not None:
                    self.lines.append(f"{pad}    if {self.expr(until)}: break")
            case If(cond, then, orelse):
                self.lines.append(f"{pad}if {self.expr(cond)}:")
                self.stmt(then, depth + 1)
                if orelse is not None:
                    self.lines.append(f"{pad}else:")
                    self.stmt(orelse, depth + 1)
            case Let(var, value, body):
                self.lines.append(f"{pad}{self.name('v_', var)} = {self.expr(value)}")
                self.stmt(body, depth)
            case Alloc(buffers, body):
                for buffer in buffers:
                    self.dtypes[buffer.name] = buffer.dtype
                    name = self.name("b_", buffer.name)
                    self.lines.append(f"{pad}{name} = _empty({self.bind(buffer)})")
                self.stmt(body, depth)
            case Store(buffer, index, value):
                self.store(pad, buffer, index, self.expr(value))
            case Update(buffer, index, reducer, value):
                combine = REDUCERS[reducer].combine
                old = self.expr(Access(buffer, index))
                new = _call(combine, [old, self.expr(value)], self)
                self.store(pad, buffer, index, new)
            case Prefetch(cell):
                self.lines += [f"{pad}{self.expr(index)}" for index in children(cell)]
            case Barrier():
                raise UnsupportedError(
                    "the loop IR executor runs one thread after the other and so cannot run a "
                    "barrier; codegen.simt emulates threads"
                )

    def store(self, pad: str, buffer: str, index: tuple[Expr, ...], value: str) -> None:
        where = ", ".join([*(self.expr(e) for e in index), ""]).strip()
        text = self.bind(print_expr(Access(buffer, index)))
        self.lines.append(f"{pad}_store({self.name('b_', buffer)}, ({where}), {value}, {text})")

    def expr(self, expr: Expr) -> str:
        done: dict[Expr, str] = {}
        for item in walk(expr):
            done[item] = self.one(item, [done[child] for child in children(item)])
        return done[expr]

    def one(self, item: Expr, args: list[str]) -> str:
        match item:
            case Const(value, None):
                return repr(value) if isinstance(value, int) else self.bind(np.float64(value))
            case Const(value, dtype) if dtype is not None:
                return self.bind(_numpy(dtype).type(value))
            case Index(name):
                return self.name("v_", name)
            case Access(buffer, _):
                text = self.bind(print_expr(item))
                where = ", ".join([*args, ""]).strip()
                return f"_load({self.name('b_', buffer)}, ({where}), {text})"
            case Cast(dtype, _):
                return f"{self.bind(_caster(dtype))}({args[0]})"
            case Call(op, _):
                return _call(str(op), args, self)
        raise InternalError(f"not an expression of loop IR: {item!r}")


def _call(op: str, args: list[str], source: _Source) -> str:
    if op == "where":  # the branch not taken is not evaluated: it may be out of bounds
        return f"({args[1]} if {args[0]} else {args[2]})"
    if op in _INFIX:
        return f"({args[0]} {_INFIX[op]} {args[1]})"
    return f"{source.bind(OPERATIONS[op].numpy)}({', '.join(args)})"


def _numpy(dtype: Any) -> Any:
    if dtype.name == "bf16":
        raise UnsupportedError("the loop IR executor has no bf16; NumPy has none either")
    return dtype.numpy


def _caster(dtype: Any) -> Any:
    target = _numpy(dtype)

    def convert(value: Any) -> Any:
        array = np.asarray(value)
        cut = array.dtype.kind == "f" and target.kind in "iu"
        return (integers(array, target) if cut else array.astype(target))[()]

    return convert


def _empty(buffer: Buffer) -> Any:
    array = np.empty(buffer.shape, _numpy(buffer.dtype))
    array.fill(np.nan if buffer.dtype.is_float else 0x55 % 2 ** (buffer.dtype.bits - 1))
    return array


def _load(array: Any, index: tuple[Any, ...], text: str) -> Any:
    _inside(array, index, text)
    return array[index]


def _store(array: Any, index: tuple[Any, ...], value: Any, text: str) -> None:
    _inside(array, index, text)
    array[index] = value


def _inside(array: Any, index: tuple[Any, ...], text: str) -> None:
    if any(not 0 <= at < extent for at, extent in zip(index, array.shape, strict=True)):
        raise InternalError(f"{text} is {[int(at) for at in index]} in {list(array.shape)}")
