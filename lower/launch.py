"""A kernel launch: the form that the pass `axes` gives to each nest over GPU axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ..algo.errors import InternalError
from ..algo.tensor_expr.build import add, const, mul
from ..algo.tensor_expr.expr import Const, Expr, Index
from .ir import AXES, Alloc, Block, Buffer, For, Stmt


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a launch: its kind (such as "block.x"), its variable and its extent."""

    kind: str
    var: str
    extent: int


@dataclass(frozen=True, slots=True)
class Launch:
    """The axes, slowest first, the shared buffers of a block, and the program of a thread."""

    blocks: tuple[Axis, ...]
    threads: tuple[Axis, ...]
    shared: tuple[Buffer, ...]
    body: Stmt

    @property
    def block_size(self) -> int:
        """The number of threads of a block."""
        return prod(axis.extent for axis in self.threads)


def launch_of(nest: Stmt) -> Launch:
    """The launch that a nest is; `InternalError` where it has not the form."""
    axes: list[Axis] = []
    while isinstance(nest, For) and nest.kind in AXES:
        if nest.lo is not const(0) or not isinstance(nest.hi, Const):
            raise InternalError(f"the loop over {nest.kind} has no constant extent")
        axes.append(Axis(nest.kind, nest.var, int(nest.hi.value)))
        nest = nest.body
    shared: list[Buffer] = []
    while isinstance(nest, Alloc) and nest.scope == "shared":
        shared += nest.buffers
        nest = nest.body
    blocks, threads = (
        tuple(axis for axis in axes if axis.kind.startswith(level)) for level in ("block", "thread")
    )
    if not threads:
        raise InternalError("a kernel has no loop over threads; was the pass `axes` run?")
    return Launch(blocks, threads, tuple(shared), nest)


def launches(body: Stmt) -> Iterator[Stmt]:
    """The nests of a function's body that are launched one after the other."""
    match body:
        case Block(stmts):
            for stmt in stmts:
                yield from launches(stmt)
        case Alloc(_, inner):
            yield from launches(inner)
        case _:
            yield body


def number_of(axes: tuple[Axis, ...]) -> Expr:
    """The number of a position among all of some axes, slowest first."""
    number: Expr = const(0)
    for axis in axes:
        number = add(mul(number, const(axis.extent)), Index(axis.var))
    return number
