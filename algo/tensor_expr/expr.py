"""The scalar expression language, the one thing that all IRs share.

Seven kinds of node, interned (equality is `is`). Everything scalar that a backend can compute is
a `Call` of an operation in `operations.py`, which alone knows arity, types, printing and meaning.
Nodes carry no location and no type: `types.py` types them, and `Op` keeps the locations.

In an operator, `Index` is an iteration index, in loop IR a loop variable; `Access` reads a tensor
there and a buffer here.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from ..dtypes import DType
from ..node import node
from .operations import OPERATIONS

if TYPE_CHECKING:
    from .folds import Part
    from .scalar import Scalar


class Expr:
    """The base of scalar expressions. Values, never compared with `==`."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()


@node
class Const(Expr):
    """A literal. `dtype` None is a weak Python scalar, which takes the type of its partner."""

    value: bool | int | float
    dtype: DType | None = None


@node
class Index(Expr):
    """An iteration index (in loop IR: a loop variable), an integer."""

    name: str


@node
class Size(Expr):
    """A size symbol, an integer of at least 1 in formulas (0 is handled by clamping)."""

    name: str


@node
class Boundary:
    """What an access beyond the ends of a tensor gives; `value` is that of `fill` alone.

    `boundary.py` says what each kind means.
    """

    kind: str
    value: Const | None = None


@node
class Access(Expr):
    """`tensor[indices]`, one expression a dimension; with a boundary `tensor.edge[indices]`.

    Only equations as written have boundaries: `check` replaces them.
    """

    tensor: str
    indices: tuple[Expr, ...]
    boundary: Boundary | None = None


@node
class Call(Expr):
    """An operation of `operations.py`, or a function of the user's own, applied to arguments."""

    op: str | Scalar
    args: tuple[Expr, ...]

    @property
    def symbol(self) -> str | None:
        """The infix or prefix operator that it is written with, if it is."""
        return OPERATIONS[self.op].symbol if isinstance(self.op, str) else None


@node
class Cast(Expr):
    """`arg` converted to `dtype`."""

    dtype: DType
    arg: Expr


@node
class Range(Expr):
    """`index in lo:hi` (hi exclusive). Occurs only in the `ranges` of a reduction or equation."""

    index: str
    lo: Expr
    hi: Expr


@node
class Reduce(Expr):
    """`reducer(body)` over `indices`, where they satisfy `where` and lie in their ranges.

    `ranges` holds only what the user (or autodiff) gave; range inference finds the others. The
    accumulator's type is `dtype`, or follows from the reducer and the body's type. `reducer` is a
    name of the language, or a component of a user's own (`folds.py`).
    """

    reducer: str | Part
    indices: tuple[str, ...]
    body: Expr
    ranges: tuple[Range, ...] = ()
    where: Expr | None = None
    dtype: DType | None = None


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions, in printing order."""
    return _CHILDREN[expr.__class__](expr)


def _of_reduce(expr: Any) -> tuple[Expr, ...]:
    where = () if expr.where is None else (expr.where,)
    return (expr.body, *expr.ranges, *where)


class _ByKind(dict[type, Callable[..., Any]]):
    """What to do with an expression of each kind."""

    def __missing__(self, kind: type) -> Any:
        raise TypeError(f"not an expression: {kind.__name__}")


_CHILDREN = _ByKind(
    {
        **dict.fromkeys((Const, Index, Size), lambda expr: ()),
        Access: attrgetter("indices"),
        Call: attrgetter("args"),
        Cast: lambda expr: (expr.arg,),
        Range: lambda expr: (expr.lo, expr.hi),
        Reduce: _of_reduce,
    }
)


def rebuild(expr: Expr, parts: tuple[Expr, ...]) -> Expr:
    """`expr` with its children replaced, the same object if they are the same."""
    if parts == children(expr):
        return expr
    made: Expr = _REBUILT[expr.__class__](expr, parts)
    return made


def _reduce_of(expr: Any, parts: tuple[Expr, ...]) -> Expr:
    n = 1 + len(expr.ranges)
    ranges: tuple[Range, ...] = parts[1:n]  # type: ignore[assignment]
    where = None if expr.where is None else parts[n]
    return Reduce(expr.reducer, expr.indices, parts[0], ranges, where, expr.dtype)


_REBUILT = _ByKind(
    {
        Access: lambda expr, parts: Access(expr.tensor, parts, expr.boundary),
        Call: lambda expr, parts: Call(expr.op, parts),
        Cast: lambda expr, parts: Cast(expr.dtype, parts[0]),
        Range: lambda expr, parts: Range(expr.index, parts[0], parts[1]),
        Reduce: _reduce_of,
    }
)


def walk(
    expr: Expr,
    known: Container[Expr] = (),
    parts: Callable[[Expr], tuple[Expr, ...]] | None = None,
) -> Iterator[Expr]:
    """Every distinct node once, children before parents; a stack, so depth does not matter.

    What is `known` is left out, with what is only in it. `parts` may choose among the children.
    """
    seen: set[Expr] = set()
    stack: list[Expr | None] = [expr]
    while stack:
        item = stack.pop()
        if item is None:  # what is below has no parts left
            yield stack.pop()  # type: ignore[misc]
        elif item not in seen and item not in known:
            seen.add(item)
            inner = parts(item) if parts else _CHILDREN[item.__class__](item)
            if not inner:
                yield item
                continue
            stack += (item, None)
            stack += reversed(inner)


def transform(expr: Expr, rule: Callable[[Expr], Expr]) -> Expr:
    """Rewrites bottom-up: `rule` sees each distinct node once, after its children."""
    done: dict[Expr, Expr] = {}
    stack = [expr]
    while stack:
        item = stack[-1]
        if item in done:
            stack.pop()
            continue
        parts = _CHILDREN[item.__class__](item)
        left = [part for part in reversed(parts) if part not in done]
        if left:
            stack += left
            continue
        stack.pop()
        new = tuple([done[part] for part in parts])
        done[item] = rule(item if new == parts else _REBUILT[item.__class__](item, new))
    return done[expr]


def substitute(expr: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """Replaces nodes (indices, sizes, accesses ...) by others, all at once.

    Bound indices are not treated specially: rename binders first where they could capture.
    """
    return transform(expr, lambda item: values.get(item, item)) if values else expr


def indices_of(expr: Expr) -> list[str]:
    """Names of the free indices, in order of first appearance."""
    global _free
    if expr not in _free:
        if len(_free) > 1 << 16:
            _free = {}  # a new one: other threads may still be using the old
        known = _free
        for item in walk(expr, known):
            names = dict.fromkeys(name for child in children(item) for name in known[child])
            if isinstance(item, Index):
                names[item.name] = None
            elif isinstance(item, Reduce):
                for name in item.indices:
                    names.pop(name, None)
            known[item] = tuple(names)
        return list(known[expr])
    return list(_free[expr])


_free: dict[Expr, tuple[str, ...]] = {}


def accesses(expr: Expr) -> list[Access]:
    """Every distinct access, those inside indices included."""
    return list(_accesses(expr))


@lru_cache(maxsize=1 << 14)
def _accesses(expr: Expr) -> tuple[Access, ...]:
    return tuple(item for item in walk(expr) if isinstance(item, Access))


def sizes_of(exprs: Iterable[Expr]) -> list[str]:
    """Names of the size symbols, in order of first appearance."""
    return list(dict.fromkeys(size.name for expr in exprs for size in sizes_in(expr)))


@lru_cache(maxsize=1 << 14)
def sizes_in(expr: Expr) -> tuple[Size, ...]:
    """The size symbols, in order of first appearance."""
    return tuple(item for item in walk(expr) if isinstance(item, Size))
