"""Loops bound to GPU axes become one program that every thread of every block runs.

    for io in 0 .. 7 block.x:                       for io in 0 .. 7 block.x:
        for a in 0 .. 8 thread.x: A                     for ii in 0 .. 16 thread.x:
        for ii in 0 .. min(16, 100 - io*16)   ==>           if ii < 8: A[a = ii]
                    thread.x: B                             if ii < min(16, 100 - io*16): B

Afterwards the axes are the outermost loops, once each, named after the longest loop bound to them,
with constant extents; shared buffers live as long as the block; and what is inside is what one
thread does: there a barrier has its meaning. Guards go as far inward as they can, so that barriers
can stand between them. A nest under no loop over some axis is dealt out to that axis' threads
where its iterations are independent (`deal`), and else runs where the axis is 0. Buffers of scope
register and local that were allocated around thread loops become each thread's own (`private`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.affine import Interval, bounds
from ...algo.tensor_expr.build import add, both, compare, conjuncts, const, mul
from ...algo.tensor_expr.expr import Expr, Index, accesses
from ..ir import (
    AXES,
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    If,
    Let,
    Stmt,
    allocate,
    block,
    contiguous,
    rebuild,
    substitute,
    walk,
    with_,
)
from ..ranges import most_iterations, span, values_of
from .deal import deal
from .private import check_blocks, private

ORDER = ("block.z", "block.y", "block.x", "thread.z", "thread.y", "thread.x")


def axes(function: Function, grid: bool = False) -> Function:
    """The function with each of its nests as the program of one thread of a grid.

    A function without loops over GPU axes stays as it is, unless it is for a `grid`: at some sizes
    all such loops are empty and gone.
    """
    if not (grid or _bound(function.body)):
        return function
    return Function(function.name, function.params, _top(function.body, ()))


def extents(nest: Stmt, known: Mapping[str, Interval] | None = None) -> dict[str, list[Bound]]:
    """The loops bound to each axis in a nest, with the most iterations that each can have.

    `known` are bounds of names that are bound around it.
    Raises `ScheduleError` for a bound loop whose number of iterations has no constant bound.
    """
    found: dict[str, list[Bound]] = {}
    _collect(nest, known or {}, found)
    return found


@dataclass(frozen=True, slots=True)
class Bound:
    """A loop that is bound to an axis, and its largest number of iterations."""

    loop: str
    extent: int


def _bound(stmt: Stmt) -> bool:
    return any(isinstance(item, For) and item.kind in AXES for item in walk(stmt))


def _shares(stmt: Stmt) -> bool:
    return any(isinstance(item, Alloc) and item.scope == "shared" for item in walk(stmt))


def _collect(stmt: Stmt, known: Mapping[str, Interval], found: dict[str, list[Bound]]) -> None:
    match stmt:
        case For(var, _, _, body, kind):
            values = values_of(stmt, known)
            if kind in AXES:
                most = most_iterations(stmt, known)
                if most is None:
                    raise ScheduleError(
                        f"{kind}: loop {var} has no constant bound on its iterations; "
                        f"split it and bind the inner loop"
                    )
                found.setdefault(kind, []).append(Bound(var, most))
            _collect(body, {**known, var: values}, found)
        case Block(stmts):
            for inner in stmts:
                _collect(inner, known, found)
        case If(_, then, orelse):
            _collect(then, known, found)
            if orelse is not None:
                _collect(orelse, known, found)
        case Let(var, value, body):
            _collect(body, {**known, var: bounds(value, known)}, found)
        case Alloc(_, body):
            _collect(body, known, found)


def _top(stmt: Stmt, lets: tuple[Let, ...]) -> Stmt:
    """Each statement at the top is a kernel launch of its own; buffers between them are global.

    What names (`lets`) say around all of it every thread says for itself.
    """
    match stmt:
        case Block(stmts):
            return block(*(_top(inner, lets) for inner in stmts))
        case Alloc(buffers, body) if stmt.scope in ("heap", "stack"):
            return allocate((with_(buffer, scope="heap") for buffer in buffers), _top(body, lets))
        case Let(_, _, body):
            return _top(body, (*lets, stmt))
    known: dict[str, Interval] = {}
    for let in lets:
        known[let.var] = bounds(let.value, known)
    found = extents(stmt, known)
    sizes = {axis: max(b.extent for b in found[axis]) for axis in ORDER if axis in found}
    names = {a: max(found[a], key=lambda b: (b.extent, -len(b.loop))).loop for a in sizes}
    if not any(axis.startswith("thread") for axis in sizes):
        sizes["thread.x"], names["thread.x"] = 1, _fresh(stmt)
    thread = _Thread(sizes, names)
    body = thread.convert(stmt, frozenset(), None, ())
    for let in reversed(lets):
        body = Let(let.var, let.value, body)
    body = allocate(thread.shared, body)
    for axis in reversed(sizes):
        body = For(names[axis], const(0), const(sizes[axis]), body, axis)
    return body


def _fresh(stmt: Stmt) -> str:
    """A name for the one thread of a nest that binds no thread axis."""
    used = {item.var for item in walk(stmt) if isinstance(item, (For, Let))}
    name = "thread"
    while name in used:
        name += "_"
    return name


class _Thread:
    """Conversion of one nest. `sizes` are the axes' extents, `names` their variables."""

    def __init__(self, sizes: Mapping[str, int], names: Mapping[str, str]) -> None:
        self.sizes, self.names = sizes, names
        self.shared: list[Buffer] = []

    def convert(
        self, stmt: Stmt, have: frozenset[str], guard: Expr | None, loops: tuple[For, ...]
    ) -> Stmt:
        """What a thread does of `stmt`, which stands under loops over the axes `have`.

        `guard` must hold where it is executed; it is put around the innermost statements.
        `loops` are those around, for what is known of their variables.
        """
        if not (_bound(stmt) or _shares(stmt)):
            return self.leaf(stmt, have, guard, loops)
        if any(accesses(expr) for expr in _control(stmt)):
            inner = self.convert_inside(stmt, have, None, loops)
            return inner if guard is None else If(guard, inner)
        return self.convert_inside(stmt, have, guard, loops)

    def convert_inside(
        self, stmt: Stmt, have: frozenset[str], guard: Expr | None, loops: tuple[For, ...]
    ) -> Stmt:
        match stmt:
            case For(var, lo, _, body, kind, step, _) if kind in AXES:
                offset, length = mul(Index(self.names[kind]), const(step)), span(stmt)
                full = bounds(length, {}) == (self.sizes[kind] * step,) * 2
                inner = substitute(body, {Index(var): add(lo, offset)})
                test = None if full else compare("lt", offset, length)
                return self.convert(inner, have | {kind}, both(guard, test), loops)
            case For():
                return rebuild(stmt, lambda s: self.convert(s, have, guard, (*loops, stmt)))
            case Alloc(buffers, body):
                return self.buffers(buffers, body, have, guard, loops)
        return rebuild(stmt, lambda s: self.convert(s, have, guard, loops))

    def buffers(
        self,
        buffers: tuple[Buffer, ...],
        body: Stmt,
        have: frozenset[str],
        guard: Expr | None,
        loops: tuple[For, ...],
    ) -> Stmt:
        """What a thread does of `body` with buffers of one scope that live there."""
        missing = [a for a in self.sizes if a.startswith("thread") and a not in have]
        first, scope = buffers[0].name, buffers[0].scope
        if scope == "shared":
            if any(a.startswith("thread") for a in have):
                raise ScheduleError(
                    f"shared buffer {first} is allocated inside a loop bound to a thread axis, "
                    f"so no other thread sees it; stage it at a loop outside of those"
                )
            for buffer in buffers:
                self.share(buffer)
        if scope in ("heap", "stack") and missing:
            raise ScheduleError(
                f"{first} is on the {scope}, outside of the loops bound to "
                f"thread axes ({', '.join(self.names[a] for a in missing)}), and GPUs have "
                f"none there; name its scope, as stage({first.partition('.')[0]!r}, "
                f"at={(loops[-1].var if loops else '...')!r}, scope='shared')"
            )
        inner = self.convert(body, have, guard, loops)
        own = list(buffers)
        for n, buffer in enumerate(buffers):
            self.check_blocks(buffer, inner, have, loops)
            if scope in ("register", "local") and missing:
                around = (*self.axis_loops(), *loops)
                own[n], inner = private(buffer, inner, [self.names[a] for a in missing], around)
        return inner if scope == "shared" else allocate(own, inner)

    def share(self, buffer: Buffer) -> None:
        """A shared buffer of the block; versions for some sizes have it in common."""
        for n, other in enumerate(self.shared):
            if other.name == buffer.name:
                shape = tuple(map(max, other.shape, buffer.shape))
                self.shared[n] = with_(buffer, shape=shape, strides=contiguous(shape))
                return
        self.shared.append(buffer)

    def check_blocks(
        self, buffer: Buffer, inner: Stmt, have: frozenset[str], loops: tuple[For, ...]
    ) -> None:
        """Each block has a buffer that is not global for itself: none may need another's."""
        blocks = [self.names[a] for a in self.sizes if a.startswith("block") and a not in have]
        check_blocks(buffer, inner, blocks, (*self.axis_loops(), *loops))

    def leaf(
        self, stmt: Stmt, have: frozenset[str], guard: Expr | None, loops: tuple[For, ...]
    ) -> Stmt:
        """A statement with no bound loop inside: the axes it lacks get work or do nothing."""
        lacking = [a for a in self.sizes if a not in have and self.sizes[a] > 1]
        threads = [a for a in reversed(lacking) if a.startswith("thread")]
        around = (*self.axis_loops(), *loops)
        dealt = deal(stmt, [(self.names[a], self.sizes[a]) for a in threads], around)
        if dealt is not None:
            stmt = dealt
            lacking = [a for a in lacking if a not in threads]
        for axis in lacking:
            guard = both(guard, compare("eq", Index(self.names[axis]), const(0)))
        return stmt if guard is None else If(_joined(guard), stmt)

    def axis_loops(self) -> tuple[For, ...]:
        """The loops over the axes, as those that will stand around the whole."""
        return tuple(
            For(self.names[axis], const(0), const(size), Block(()), axis)
            for axis, size in self.sizes.items()
        )


def _control(stmt: Stmt) -> tuple[Expr, ...]:
    match stmt:
        case For(_, lo, hi, _, _, _, _):
            return lo, hi
        case If(cond, _, _):
            return (cond,)
        case Let(_, value, _):
            return (value,)
    return ()


def _joined(guard: Expr) -> Expr:
    """The conjunction with each condition once."""
    result: Expr | None = None
    for cond in dict.fromkeys(conjuncts(guard)):
        result = both(result, cond)
    assert result is not None
    return result
