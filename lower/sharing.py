"""Which threads touch which cells: the question behind barriers and private buffers, put to isl.

Two accesses in the program of one thread conflict when two different threads meet on a cell. What
is not affine (an index read from memory, a data-dependent condition) may be anything, so the
absence of a conflict is always a proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from ..algo import isl
from ..algo.tensor_expr.affine import is_affine, to_isl
from ..algo.tensor_expr.build import conjuncts
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    accesses,
    children,
    indices_of,
    substitute,
)
from .ir import Alloc, Block, For, If, Let, Stmt, Store, Update, with_
from .ranges import parts_of


@dataclass(frozen=True, slots=True)
class Touch:
    """A read or write of a cell, the loops around it (outermost first) and what holds there.

    `atomic` ones are the updates of one reducer that may meet each other.
    """

    buffer: str
    cell: tuple[Expr, ...]
    write: bool
    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]
    atomic: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a statement stands: the loops around it, what holds there, and the named values.

    Names of values that read memory are not among `lets`, so nothing is known of them.
    """

    loops: tuple[For, ...] = ()
    conditions: tuple[Expr, ...] = ()
    lets: Mapping[Expr, Expr] = field(default_factory=dict)

    def value(self, expr: Expr) -> Expr:
        """The expression with named values put in."""
        return substitute(expr, self.lets)

    def under(self, loop: For) -> Place:
        """Within the body of a loop that stands here."""
        lo, hi = self.value(loop.lo), self.value(loop.hi)
        around = with_(loop, lo=lo, hi=hi, body=Block(()))
        return Place((*self.loops, around), self.conditions, self.lets)

    def where(self, cond: Expr, holds: bool = True) -> Place:
        """Within a branch that is taken where `cond` holds, or does not."""
        test = self.value(cond)
        test = test if holds else Call("not", (test,))
        return Place(self.loops, (*self.conditions, test), self.lets)

    def let(self, var: str, value: Expr) -> Place:
        """Within the scope of a named value."""
        if accesses(value):
            return self
        return Place(self.loops, self.conditions, {**self.lets, Index(var): self.value(value)})


def touches(stmt: Stmt, at: Place) -> Iterator[Touch]:
    """Every access of a statement that stands at a place."""

    def reads(*exprs: Expr) -> Iterator[Touch]:
        for expr in exprs:
            yield from _reads(at.value(expr), at.loops, at.conditions)

    match stmt:
        case Block(stmts):
            for inner in stmts:
                yield from touches(inner, at)
        case For(_, lo, hi, body, _, _, _):
            yield from reads(lo, hi)
            yield from touches(body, at.under(stmt))
        case If(cond, then, orelse):
            yield from reads(cond)
            yield from touches(then, at.where(cond))
            if orelse is not None:
                yield from touches(orelse, at.where(cond, False))
        case Let(var, value, body):
            yield from reads(value)
            yield from touches(body, at.let(var, value))
        case Alloc(_, body):
            yield from touches(body, at)
        case Store(buffer, index, value) | Update(buffer, index, _, value):
            yield from reads(*index, value)
            cell = tuple(at.value(part) for part in index)
            if isinstance(stmt, Update):
                atomic = stmt.reducer if stmt.atomic else None
                yield Touch(buffer, cell, False, at.loops, at.conditions, atomic)
                yield Touch(buffer, cell, True, at.loops, at.conditions, atomic)
            else:
                yield Touch(buffer, cell, True, at.loops, at.conditions)


def _reads(expr: Expr, loops: tuple[For, ...], conditions: tuple[Expr, ...]) -> Iterator[Touch]:
    """The reads of an expression; a branch of `where` is read only where it is selected."""
    stack = [(expr, conditions)]
    seen: set[tuple[Expr, tuple[Expr, ...]]] = set()
    while stack:
        item, known = stack.pop()
        if (item, known) in seen:
            continue
        seen.add((item, known))
        if isinstance(item, Access):
            yield Touch(item.tensor, item.indices, False, loops, known)
        if isinstance(item, Call) and item.op == "where":
            cond, then, orelse = item.args
            stack += [(cond, known), (then, (*known, cond))]
            stack.append((orelse, (*known, Call("not", (cond,)))))
        else:
            stack.extend((child, known) for child in children(item))


class Meeting:
    """Answers whether different threads (or blocks) meet on a cell, remembering the answers.

    `axes` are the loop variables that tell one thread from another.
    """

    def __init__(self, axes: Sequence[str]) -> None:
        self.axes = tuple(axes)
        self._answers: dict[tuple[frozenset[Touch], frozenset[str]], bool] = {}

    def conflict(self, a: Touch, b: Touch, fixed: frozenset[str] = frozenset()) -> bool:
        """May two different threads touch one cell by `a` and `b`, one of them writing?

        `fixed` are variables with one value for both: the block's, when threads of one block are
        asked about, and those of the loops of whose same iteration both are part.
        """
        if a.buffer != b.buffer or not (a.write or b.write):
            return False
        key = frozenset((a, b)), fixed
        if key not in self._answers:
            self._answers[key] = any(self._meet(a, b, axis, fixed) for axis in self.axes)
        return self._answers[key]

    def _meet(self, a: Touch, b: Touch, axis: str, fixed: frozenset[str]) -> bool:
        """May threads that differ in their position on one axis touch one cell?"""
        names = {name: Index(f"{name}'") for name in _names(b) if name not in fixed}
        other: dict[Expr, Expr] = {Index(name): new for name, new in names.items()}
        conditions = [*_holds(a), *(substitute(test, other) for test in _holds(b))]
        for one, two in zip(a.cell, b.cell, strict=True):
            conditions.append(Call("eq", (one, substitute(two, other))))
        conditions.append(Call("ne", (Index(axis), Index(f"{axis}'"))))
        dims = dict.fromkeys((*_names(a), *_names(b), *(new.name for new in names.values())))
        parts = [part for test in conditions for part in _parts(test)]
        affine = [to_isl(test) for test in parts if is_affine(test)]
        points = isl.make_set(list(dims), dict.fromkeys(affine))
        return isl.is_empty(points) is not isl.Answer.YES


def _holds(touch: Touch) -> list[Expr]:
    """What is known of the variables where an access takes place."""
    conditions = list(touch.conditions)
    for loop in touch.loops:
        var = Index(loop.var)
        conditions += [Call("le", (loop.lo, var)), Call("lt", (var, loop.hi))]
        if loop.step != 1:
            offset = Call("mod", (Call("sub", (var, loop.lo)), Const(loop.step)))
            conditions.append(Call("eq", (offset, Const(0))))
    return conditions


def _names(touch: Touch) -> list[str]:
    """The variables around an access and in it."""
    exprs = (*touch.cell, *_holds(touch))
    return list(dict.fromkeys(name for expr in exprs for name in indices_of(expr)))


def _parts(test: Expr) -> list[Expr]:
    """Conditions that hold where `test` does, and together say the same.

    isl cuts a set in pieces at every minimum; `a < min(b, c)` as two conditions is cheaper by far.
    """
    found: list[Expr] = []
    for part in conjuncts(test):
        match part:
            case Call("lt" | "le" as op, (a, b)):
                pairs = product(parts_of("max", a), parts_of("min", b))
                found += [Call(op, pair) for pair in pairs]
            case _:
                found.append(part)
    return found
