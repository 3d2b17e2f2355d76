"""Which threads touch which cells: the question behind barriers and private buffers, put to isl.

An access in the program of one thread becomes a relation from threads to cells; loops other than
those over threads and blocks are projected out. Two accesses conflict when two different threads
meet on a cell. What is not affine (an index read from memory, a data-dependent condition) may be
anything, so the relation is never too small and the absence of a conflict is always a proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..algo import isl
from ..algo.tensor_expr.affine import is_affine, to_isl
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Expr,
    Index,
    accesses,
    children,
    indices_of,
    substitute,
)
from .ir import Alloc, Block, For, If, Let, Stmt, Store, Update


@dataclass(frozen=True, slots=True)
class Touch:
    """A read or write of a cell, the loops around it (outermost first) and what holds there."""

    buffer: str
    cell: tuple[Expr, ...]
    write: bool
    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]


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
        around = For(loop.var, lo, hi, Block(()), loop.kind, loop.step, loop.lanes)
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
                yield Touch(buffer, cell, False, at.loops, at.conditions)
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

    `axes` are the loop variables that tell one thread from another; `fixed` are variables with
    one value for all of them, such as the block's when threads of one block are asked about.
    """

    def __init__(self, axes: Sequence[str], fixed: Sequence[str] = ()) -> None:
        self.axes, self.fixed = tuple(axes), tuple(fixed)
        self._relations: dict[Touch, isl.raw.Map] = {}
        self._answers: dict[tuple[Touch, Touch], bool] = {}
        self._different = _different(len(self.axes), self.fixed)

    def conflict(self, a: Touch, b: Touch) -> bool:
        """May two different threads touch one cell by `a` and `b`, one of them writing?"""
        if a.buffer != b.buffer or not (a.write or b.write) or not self.axes:
            return False
        key = (a, b)
        if key not in self._answers:
            first, second = self._relation(a), self._relation(b)
            answer = isl.ask(
                lambda: first.apply_range(second.reverse()).intersect(self._different).is_empty()
            )
            self._answers[key] = answer is not isl.Answer.YES
        return self._answers[key]

    def _relation(self, touch: Touch) -> isl.raw.Map:
        if touch not in self._relations:
            self._relations[touch] = relation(touch, self.axes, self.fixed)
        return self._relations[touch]


def _different(axes: int, fixed: Sequence[str]) -> isl.raw.Map:
    """Every thread to every other one."""
    a, b = ([f"{letter}{n}" for n in range(axes)] for letter in "ab")
    apart = " or ".join(f"{x} != {y}" for x, y in zip(a, b, strict=True)) or "0 = 1"
    return isl.parse_map(f"{_params(fixed)}{{ [{', '.join(a)}] -> [{', '.join(b)}] : {apart} }}")


def _params(fixed: Sequence[str]) -> str:
    return f"[{', '.join(map(isl.ident, fixed))}] -> " if fixed else ""


def relation(touch: Touch, axes: Sequence[str], fixed: Sequence[str]) -> isl.raw.Map:
    """`[fixed] -> { [axes] -> [cell] }`: the cells that each thread touches."""
    loops = [part for loop in touch.loops for part in (Index(loop.var), loop.lo, loop.hi)]
    names = dict.fromkeys(
        n for e in (*loops, *touch.cell, *touch.conditions) for n in indices_of(e)
    )
    free = [isl.ident(name) for name in names if name not in (*axes, *fixed)]
    conditions = [to_isl(test) for test in touch.conditions if is_affine(test)]
    for loop in touch.loops:
        name = isl.ident(loop.var)
        conditions += [f"{to_isl(loop.lo)} <= {name}"] if is_affine(loop.lo) else []
        conditions += [f"{name} < {to_isl(loop.hi)}"] if is_affine(loop.hi) else []
        if loop.step != 1 and is_affine(loop.lo):
            conditions.append(f"({name} - {to_isl(loop.lo)}) mod {loop.step} = 0")
    cells = [f"c{n}__" for n in range(len(touch.cell))]
    for name, part in zip(cells, touch.cell, strict=True):
        conditions += [f"{name} = {to_isl(part)}"] if is_affine(part) else []
    body = " and ".join(f"({c})" for c in conditions) or "0 = 0"
    body = f"exists {', '.join(free)}: {body}" if free else body
    threads = ", ".join(map(isl.ident, axes))
    return isl.parse_map(f"{_params(fixed)}{{ [{threads}] -> [{', '.join(cells)}] : {body} }}")
