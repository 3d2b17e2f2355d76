"""The state of a loop schedule: statements, a tree of named loops over them, and buffers.

Every statement has its own instance coordinates (`dims`): the indices of its stage and, before
them, one dimension for each outer loop by which it is repeated (a copy staged at loop `jo`, a
stage recomputed in every tile). Every loop says, for each statement under it, the loop's value as
a quasi-affine expression of that statement's dims. So `split` only replaces `i` by `i//8` and
`i%8`, a skew by `t+x`, and the tree plants directly as an isl schedule tree.

Accesses stay in the coordinates of the tensor that a buffer represents; where a buffer holds only
a window, lowering subtracts the window's origin and then applies the layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...algo.dtypes import DType
from ...algo.location import Loc
from ...algo.tensor_expr.expr import Expr
from ...algo.tensor_expr.op import Kernel


@dataclass(frozen=True, slots=True)
class Stmt:
    """for all dims with `domain`: buffer[lhs] = value (or combine(buffer[lhs], value)).

    `domain` is a tuple of affine conditions (compare expressions) over dims and sizes. `value`
    reads buffers by name. `instance` is the stage and its indices over dims (many to one where
    the stage is recomputed), or for a copy the tensor and the coordinates that are copied.
    `atomic` updates of one buffer may run at once.
    """

    name: str
    dims: tuple[str, ...]
    domain: tuple[Expr, ...]
    buffer: str
    lhs: tuple[Expr, ...]
    value: Expr
    reducer: str | None
    instance: tuple[str, tuple[Expr, ...]]
    loc: Loc | None = None
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage of a tensor, or of the window of it that is needed under the loop `at`.

    `at` None means one for the whole kernel. `scope` is param, heap, stack, register, shared or
    local. `layout` gives the storage axes as expressions over the coordinates d0, d1, ...
    relative to the window's origin (None: the coordinates themselves); d1//8 and d1%8 pack panels.
    `pinned`: a primitive chose `at`, and value flow is checked; else `at` follows the accesses.
    `fold` keeps coordinates that are equal modulo n in one place: (dimension, n), ...
    A register or local buffer is private to a GPU thread: its window fixes the thread loops too.
    `pad` gives for each dimension a number of which the extent stored is a multiple, `align` the
    least alignment in bytes; stores to a `stream` buffer go past the caches. A buffer with a
    `border` also holds what is read beyond the tensor's ends.
    """

    name: str
    tensor: str
    dtype: DType
    rank: int
    scope: str
    at: str | None = None
    layout: tuple[Expr, ...] | None = None
    pinned: bool = False
    pad: tuple[int, ...] = ()
    align: int = 1
    stream: bool = False
    fold: tuple[tuple[int, int], ...] = ()
    border: bool = False


@dataclass(frozen=True, slots=True)
class Leaf:
    """One statement."""

    stmt: str


Places = Mapping[str, tuple[int, ...]]
"""By name the parts of a sequence that hold what has it."""

Index = tuple[Places, Places, Places]
"""Where statements, loops and copies of loops stand (`index.py`)."""


@dataclass(frozen=True, slots=True)
class Seq:
    """Parts run one after the other; `index` is what is remembered of where they hold what."""

    parts: tuple[Tree, ...]
    index: Index | None = field(default=None, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Loop:
    """A named loop: `values` maps each statement under it to the loop's value over its dims.

    `name` is unique in the tree ("C.io"; a copy that distribution made is "C.init.io"). `kind` is
    serial, parallel, dynamic (parallel too), unroll, vector, dot or matrix (`tensorize`), or a GPU
    axis such as "block.x" or "thread.y". `extent` is the constant number of iterations where the
    loop was made by a factor (ii of a split by 8).
    `tail` of such a loop: "guard" (a bound or mask in the last block) or "separate" (full blocks
    and the last one are loops of their own, so that full blocks are free of conditions).
    `ahead` lists buffers of which an iteration prefetches what one so many later will read.
    """

    name: str
    values: Mapping[str, Expr]
    body: Tree
    kind: str = "serial"
    extent: int | None = None
    tail: str = "guard"
    ahead: tuple[tuple[str, int], ...] = ()


Tree = Leaf | Seq | Loop

PARALLEL = ("parallel", "dynamic")
"""Loops for threads: a share of the iterations for each, or the next ones to whoever is free."""

IN_ORDER = ("serial", "unroll", "dot", "matrix")
"""Loops whose iterations do not run at once. Those of `tensorize` hold one sum alone, which an
instruction adds up in another order, but for one thread."""


@dataclass(frozen=True, slots=True)
class Nest:
    """What the primitives map to each other. `tree` covers every statement exactly once.

    `versions` are conditions on sizes: code is generated for each where no earlier one holds, and
    once more for all other sizes.
    """

    kernel: Kernel
    stmts: Mapping[str, Stmt]
    tree: Tree
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    versions: tuple[Expr, ...] = ()


def leaves(tree: Tree) -> Iterator[str]:
    """The statements of a subtree, in order."""
    stack: list[Tree] = [tree]
    while stack:
        match stack.pop():
            case Leaf(stmt):
                yield stmt
            case Seq(parts):
                stack.extend(reversed(parts))
            case Loop() as loop:
                stack.append(loop.body)


def loops(tree: Tree) -> Iterator[Loop]:
    """Every loop of a subtree, outer before inner."""
    stack: list[Tree] = [tree]
    while stack:
        match stack.pop():
            case Loop() as loop:
                yield loop
                stack.append(loop.body)
            case Seq(parts):
                stack.extend(reversed(parts))
            case Leaf():
                pass
