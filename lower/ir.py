"""Loop IR: what code generation sees. Eight statements over the shared scalar expressions.

Here `Index` is a loop variable or a `Let`, of type i64; a `Const` without a dtype is an i64 too;
`Access` reads a buffer, by one index an axis; every other expression is typed, with explicit
casts. Variables and buffers have names unique in their function. Sizes are constants: `Size` does
not occur. Nodes are interned.
"""

from __future__ import annotations

from ..algo.dtypes import DType
from ..algo.node import node
from ..algo.tensor_expr.expr import Expr


class Stmt:
    """The base of loop IR statements."""

    __slots__ = ()


@node
class Buffer:
    """`scope` is param, heap, stack, register, shared or local; strides count elements.

    A register buffer is one that passes have promised to index by constants only. `align` is the
    alignment in bytes that the address of element 0 has for certain.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    scope: str
    align: int = 1


@node
class Block(Stmt):
    """Statements one after the other."""

    stmts: tuple[Stmt, ...]


@node
class For(Stmt):
    """for var in lo .. hi-1 by step: body.

    `kind`: serial; parallel (iterations in any order, on any thread); unroll (a pass removes it);
    vector (iterations lo .. hi-1 at once in `lanes` lanes, a power of two that the target has;
    lanes from hi on are masked off); or a GPU axis, block.x to thread.z.
    """

    var: str
    lo: Expr
    hi: Expr
    body: Stmt
    kind: str = "serial"
    step: int = 1
    lanes: int = 1


@node
class If(Stmt):
    """if cond: then, else orelse."""

    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@node
class Let(Stmt):
    """A name for a value within `body`."""

    var: str
    value: Expr
    body: Stmt


@node
class Alloc(Stmt):
    """A buffer, uninitialised, that lives within `body`."""

    buffer: Buffer
    body: Stmt


@node
class Store(Stmt):
    """buffer[index] = value."""

    buffer: str
    index: tuple[Expr, ...]
    value: Expr


@node
class Update(Stmt):
    """buffer[index] = combine(buffer[index], value), `reducer` giving combine.

    Under a vector loop whose lanes share the cell, all lanes' values are combined into it.
    """

    buffer: str
    index: tuple[Expr, ...]
    reducer: str
    value: Expr


@node
class Barrier(Stmt):
    """All threads of a GPU block meet."""


@node
class Function:
    """A kernel. `params` are its buffers in calling order: inputs read, then outputs."""

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
