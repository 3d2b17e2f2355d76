"""Sums of products of bytes of one sign become sums of unsigned by signed ones, as machines do.

    for k in 0 .. n:                        ==>  for k in 0 .. n:
        for j in 0 .. 16 vector:                     for j in 0 .. 16 vector:
            for q in 0 .. 4 dot:                         for q in 0 .. 4 dot:
                s[j] sum= i32(a[k, q]) *                     s[j] sum= i32(u8(a[k, q]) + 128) * ...
                          i32(b[k, j, q])                for q in 0 .. 4 dot:
                                                             s.extra[j] sum= 128 * i32(b[k, j, q])
                                                 for j in 0 .. 16 vector: s[j] sum= -s.extra[j]

One factor, `a` (that which is the same in all lanes), has its highest bit flipped, so that it is
greater by 128, or less where it was unsigned; what that adds is summed apart. Cells that meet the
same `b` share the sum. A buffer of which all reads are flipped is stored flipped: so packing does
it. Only register buffers within loops are treated so; elsewhere it would not pay.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from ...algo.dtypes import DType, i8, i32, u8
from ...algo.tensor_expr.affine import Interval, bounds
from ...algo.tensor_expr.expr import (
    Access,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    accesses,
    indices_of,
)
from ...algo.tensor_expr.types import dtype_of
from ...sched.loop.dot import factors
from ...sched.loop.machine import Machine
from ...sched.loop.nest import PARALLEL
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
    Store,
    Update,
    allocate,
    block,
    contiguous,
    expressions,
    rebuild,
    walk,
)
from ..ir import children as inner_statements
from ..ranges import inside
from .flipped import flip, store_flipped

Known = Mapping[str, Interval]
Buffers = Mapping[str, Buffer]


def dots(function: Function, machine: Machine) -> Function:
    """The function with such sums rewritten for such a machine; expects unrolled loops."""
    if 4 not in machine.dots or not any(
        isinstance(item, For) and item.kind == "dot" for item in walk(function.body)
    ):
        return function
    params = {param.name: param for param in function.params}
    body = _Dots().body(function.body, params, {})
    return store_flipped(Function(function.name, function.params, body))


class _Dots:
    def __init__(self) -> None:
        self.count = 0

    def body(self, stmt: Stmt, buffers: Buffers, known: Known) -> Stmt:
        """A body, in which runs of statements that only add to a buffer are rewritten."""
        parts = list(stmt.stmts) if isinstance(stmt, Block) else [stmt]
        for name, buffer in buffers.items():
            if buffer.scope != "register" or buffer.dtype is not i32:
                continue
            for start, stop in _runs(parts, name):
                sums = _Sums(name, buffers)
                sums.collect(block(*parts[start:stop]), _Place(known))
                if any(site.looped for site in sums.sites.values()):
                    done = self.rewrite(parts[start:stop], sums)
                    return self.body(block(*parts[:start], done, *parts[stop:]), buffers, known)
        return block(*(self.inner(part, buffers, known) for part in parts))

    def inner(self, stmt: Stmt, buffers: Buffers, known: Known) -> Stmt:
        if isinstance(stmt, Alloc):
            buffers = {**buffers, **{buffer.name: buffer for buffer in stmt.buffers}}
        within = inside(stmt, known)
        return rebuild(stmt, lambda item: self.body(item, buffers, within))

    def rewrite(self, parts: list[Stmt], sums: _Sums) -> Stmt:
        """The statements with factors flipped, and the extra sums around them."""
        cells: dict[_Cell, list[int]] = {}
        for number, site in sums.sites.items():
            cells.setdefault(site.cell, []).append(number)
        groups: dict[tuple[Hashable, ...], list[_Cell]] = {}
        for cell, numbers in cells.items():
            key = tuple(sums.sites[number].key for number in numbers)
            groups.setdefault(key, []).append(cell)
        extras: list[Buffer] = []
        where: dict[int, Buffer] = {}
        before: list[Stmt] = []
        after: list[Stmt] = []
        for first, *others in groups.values():
            shape = (max(cell.lanes for cell in (first, *others)),)
            name = f"{sums.name}.extra" + (str(self.count) if self.count else "")
            self.count += 1
            extra = Buffer(name, i32, shape, contiguous(shape), "register", 64)
            extras.append(extra)
            where |= dict.fromkeys(cells[first], extra)
            lane = Index(first.var)
            zero = Store(name, (lane,), Const(0, i32))
            before.append(For(first.var, Const(0), Const(shape[0]), zero, "vector"))
            less = Call("neg", (Access(name, (lane,)),))
            after += [
                For(cell.var, Const(0), cell.hi, Update(sums.name, cell.index, "sum", less),
                    "vector")
                for cell in (first, *others)
                if cell.var == first.var
            ]  # fmt: skip
        middle = _Rewriting(sums, where).stmt(block(*parts))
        return allocate(extras, block(*before, middle, *after))


def _runs(parts: list[Stmt], name: str) -> list[tuple[int, int]]:
    """The longest ranges of statements that do nothing but add to a buffer, or leave it alone."""
    runs, start = [], 0
    for stop in range(len(parts) + 1):
        if stop == len(parts) or not _only_adds(parts[stop], name):
            if stop > start:
                runs.append((start, stop))
            start = stop + 1
    return runs


def _only_adds(stmt: Stmt, name: str) -> bool:
    concurrent = False
    for item in walk(stmt):
        if any(cell.tensor == name for expr in expressions(item) for cell in accesses(expr)):
            return False
        match item:
            case Store(buffer) if buffer == name:
                return False
            case Update(buffer, _, reducer, _, atomic) if buffer == name:
                if reducer != "sum" or atomic or concurrent:
                    return False
            case Alloc(buffers) if any(own.name == name for own in buffers):
                return False
            case For(kind=kind) if kind in PARALLEL or kind in AXES:
                concurrent = True
    return True


@dataclass(frozen=True, slots=True)
class _Cell:
    """A run of cells: an index in which the variable of a vector loop from 0 to `hi` occurs."""

    index: tuple[Expr, ...]
    var: str
    hi: Expr
    lanes: int


@dataclass(frozen=True, slots=True)
class _Site:
    """A dot loop whose factors have one sign. Sites of equal keys add up the same `kept`."""

    cell: _Cell
    flipped: Expr
    kept: Expr
    dtype: DType
    key: Hashable
    looped: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands within a run."""

    known: Known
    path: tuple[Hashable, ...] = ()
    bound: frozenset[str] = frozenset()
    vector: For | None = None
    looped: bool = False
    written: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Sums:
    """The dot loops of a run that add to a buffer, by their number in the order of a walk."""

    name: str
    buffers: Buffers
    sites: dict[int, _Site] = field(default_factory=dict)
    visited: int = 0

    def collect(self, stmt: Stmt, place: _Place) -> None:
        self.visited += 1
        number, known = self.visited, inside(stmt, place.known)
        match stmt:
            case For(kind="dot"):
                site = self.site(stmt, place, number)
                if site is not None:
                    self.sites[number] = site
                return
            case For(var=var, lo=lo, hi=hi, kind="vector"):
                path = (*place.path, var, lo, hi)
                place = _with(place, known, path, place.bound | {var}, vector=stmt)
            case For(var=var):
                written = frozenset(
                    item.buffer for item in walk(stmt.body) if isinstance(item, (Store, Update))
                )
                place = _Place(
                    known, (*place.path, number), place.bound | {var}, place.vector, True, written
                )
            case If(cond, then, orelse):
                self.collect(then, _with(place, known, (*place.path, cond), place.bound))
                if orelse is not None:
                    path = (*place.path, "not", cond)
                    self.collect(orelse, _with(place, known, path, place.bound))
                return
            case Let(var):
                place = _with(place, known, (*place.path, number), place.bound | {var})
            case Alloc(own):
                self.buffers = {**self.buffers, **{buffer.name: buffer for buffer in own}}
                place = _with(place, known, (*place.path, number), place.bound)
        for inner in inner_statements(stmt):
            self.collect(inner, place)

    def site(self, loop: For, place: _Place, number: int) -> _Site | None:
        update, vector = loop.body, place.vector
        if not isinstance(update, Update) or update.buffer != self.name or vector is None:
            return None
        types = {name: buffer.dtype for name, buffer in self.buffers.items()}
        found = factors(update.value, types)
        if found is None or len({dtype_of(factor, types) for factor in found}) != 1:
            return None
        most = bounds(vector.hi, place.known)[1]
        names = {name for part in (*update.index, vector.hi) for name in indices_of(part)}
        outside = not names - {vector.var} & {*place.bound, loop.var}
        if most is None or not outside or vector.lo is not Const(0):
            return None
        same = [vector.var not in indices_of(factor) for factor in found]
        flipped, kept = found if same[0] or not same[1] else found[::-1]
        rewritten = any(cell.tensor in place.written for cell in accesses(kept))
        key = (place.path, loop.var, loop.lo, loop.hi, kept, number if rewritten else 0)
        cell = _Cell(update.index, vector.var, vector.hi, most)
        return _Site(cell, flipped, kept, dtype_of(flipped, types), key, place.looped)


def _with(
    place: _Place,
    known: Known,
    path: tuple[Hashable, ...],
    bound: frozenset[str],
    vector: For | None = None,
) -> _Place:
    return _Place(known, path, bound, vector or place.vector, place.looped, place.written)


@dataclass(slots=True)
class _Rewriting:
    """The same walk as that of `_Sums`, which rewrites the sites."""

    sums: _Sums
    extras: Mapping[int, Buffer]
    visited: int = 0

    def stmt(self, stmt: Stmt) -> Stmt:
        self.visited += 1
        number = self.visited
        if not (isinstance(stmt, For) and stmt.kind == "dot"):
            return rebuild(stmt, self.stmt)
        site = self.sums.sites.get(number)
        if site is None:
            return stmt
        product = _product(flip(site.flipped, site.dtype), site.kept)
        adding = Update(self.sums.name, site.cell.index, "sum", product)
        loops = [_loop(stmt, adding)]
        if number in self.extras:
            other = u8 if site.dtype is i8 else i8
            product = _product(Const(128 if other is u8 else -128, other), site.kept)
            lane = Index(site.cell.var)
            loops.append(_loop(stmt, Update(self.extras[number].name, (lane,), "sum", product)))
        return block(*loops)


def _product(a: Expr, b: Expr) -> Expr:
    return Call("mul", (Cast(i32, a), Cast(i32, b)))


def _loop(like: For, body: Stmt) -> Stmt:
    return For(like.var, like.lo, like.hi, body, "dot")
