"""`stage`: a tile of a tensor in a buffer of its own, with the copies in and out that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.build import any_of
from ...algo.tensor_expr.expr import Access, Expr, transform
from .arguments import Rule
from .border import border, unguarded
from .carried import check_marks
from .copies import Copies, Copying, joins, mirrored, plain, unused
from .dependences import folding
from .double import doubled
from .flow import check_flow
from .fold import check_folds
from .layout import dimension_names, parse_layout
from .names import find_loop
from .nest import Buffer, Loop, Nest, Stmt, Tree, leaves, loops
from .order import other_iteration, relative, runs_before
from .primitive import Primitive
from .regions import Cell
from .relations import from_data, primed, same_element, second
from .storage import accumulators, cells, displaced, reads, touching
from .tree import around_stmt, edit, loops_to, seq
from .validate import check_blocks
from .witness import at, first_pair

SCOPES = ("stack", "register", "heap", "shared", "local")


@dataclass(frozen=True)
class Stage(Primitive):
    """Keeps what one iteration of loop `at` touches of a tensor in a buffer there.

        for ko: for j: for k: C[j] += A[k]*B[k,j]
            ==>   for ko: for B.pack.k: for B.pack.j: B.stack[k,j] = B[k,j]
                          for j: for k: C[j] += A[k]*B.stack[k,j]

    A tile that is read is copied in before the loop's body (`B.pack`); one that is accumulated is
    copied in where its values come from outside the iteration (`C.load`) and out where they are
    wanted later (`C.store`). Loops of an accumulator's copies mirror its own (`C.store.ii`), so
    that `vectorize("ji")` means them too; those of other copies are called by dimension or by
    layout axis (`B.pack.k`), or mirror the reader's if some run over several dimensions as one.
    An accumulator that lives there already only changes its scope. A tile that is read beyond the
    tensor's ends, and has one number there, holds that border too, so that readers need not ask.

    `scope` is stack, register, heap, shared or local. `layout` gives the axes of the storage,
    outermost first, as text over the tensor's dimensions, relative to the tile:
    ("j//32", "k", "j%32") makes panels of 32 columns. Dimensions go by the index that runs over
    them, or d0, d1, ... With `double` the copy is made one iteration ahead and two tiles
    alternate, for what is only read. Value flow is checked.
    """

    called: ClassVar[str] = "stage"
    tensor: str
    at: str
    scope: str = "stack"
    layout: tuple[Annotated[str, Rule("expression")], ...] | None = None
    double: bool = False

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        _, keywords = super().arguments()
        return (keywords.pop("tensor"),), keywords

    @property
    def who(self) -> str:
        return f"stage({self.tensor}, at={self.at})"

    def legal(self, nest: Nest) -> None:
        if self.scope not in SCOPES:
            raise ScheduleError(
                f"{self.who}: {self.scope!r} is no scope; choose one of {', '.join(SCOPES)}"
            )
        loop = find_loop(nest, self.at, self.who)
        buffer = self._buffer(nest, loop)
        for stmt in map(nest.stmts.__getitem__, leaves(loop)):
            if stmt.buffer == buffer.name and any(map(from_data, stmt.lhs)):
                raise ScheduleError(
                    f"{self.who}: elements of {buffer.tensor} are chosen by data when it is "
                    f"written{at(stmt)}; a tile of it is not known"
                )
        after = self.after(nest)
        check_flow(after, [buffer.tensor], self.who)
        check_folds(after, self.who)
        check_marks(after, self.who, displaced(nest, after))
        check_blocks(after, self.who)

    def _buffer(self, nest: Nest, loop: Loop) -> Buffer:
        """The buffer that holds the tensor under the loop: the accumulator, where there is one."""
        under, users = set(leaves(loop)), touching(nest)
        used = {name: b for name, b in nest.buffers.items() if under & set(users[name])}
        found = [buffer for buffer in used.values() if buffer.tensor == self.tensor]
        found = [used[name] for name in accumulators(nest, self.tensor) if name in used] or found
        if not found:
            known = ", ".join(sorted({buffer.tensor for buffer in used.values()}))
            raise ScheduleError(
                f"{self.who}: {self.tensor} is not touched under loop {loop.name}; "
                f"touched are {known}"
            )
        if len(found) > 1:
            listed = ", ".join(sorted(buffer.name for buffer in found))
            raise ScheduleError(
                f"{self.who}: under loop {loop.name} it is held by {listed}; stage it further in"
            )
        return found[0]

    def apply(self, nest: Nest) -> Nest:
        loop = find_loop(nest, self.at, self.who)
        old = self._buffer(nest, loop)
        around = loops_to(nest.tree, loop.name)
        inner = [nest.stmts[name] for name in leaves(loop)]
        extents = nest.kernel.tensors[old.tensor].shape
        fill = None
        if not old.border and not any(s.buffer == old.name for s in inner):
            fill = border(inner, old.name, old.dtype, extents)
        if fill is not None:
            inner = [unguarded(s, old.name, extents) for s in inner]
        touched = [(s, cell) for s in inner for cell in cells(s, old.name)]
        names = dimension_names(touched[0][1])
        layout = None if self.layout is None else parse_layout(self.layout, names, self.who)
        if self.double and any(s.buffer == old.name for s in inner):
            raise ScheduleError(
                f"{self.who}: {old.tensor} is written under loop {loop.name}; only tiles that are "
                "read can be copied an iteration ahead"
            )
        if _lives_in(old, loop):
            own = replace(old, scope=self.scope, layout=layout or old.layout)
            return replace(nest, buffers={**nest.buffers, old.name: own})

        writers = [s for s in inner if s.buffer == old.name]
        shape = plain(around, names, layout)
        beyond = old.border or fill is not None
        models = writers
        if not writers and layout is None and not beyond:
            models = [s for s, _ in touched if joins(nest, s, set(names))]
        if models:
            deepest = max(models, key=lambda s: len(around_stmt(nest.tree, s.name)))
            found = mirrored(nest, deepest, len(around), names, touched, extents)
            if found is not None:
                shape = found if writers else found.unmarked
        new = unused(f"{old.name}.{self.scope}", nest.buffers)
        stmts = dict(nest.stmts)
        stmts.update((s.name, _turned(s, old.name, new)) for s in inner)
        copies = Copies(nest, old.tensor, around, shape, names, self.who, beyond, fill)
        before: list[Copying] = []
        after: list[Copying] = []
        if _comes_in(nest, old, inner, around, self.who):
            label = f"{old.tensor}.{'load' if writers else 'pack'}"
            # What the same iteration writes once is there without a copy.
            folds = folding(nest.kernel)
            made = [(s, s.lhs) for s in writers if s.reducer is None and s.name not in folds]
            before = copies.bring(label, (new, old.name), list(_wanted(old.name, inner)), made)
        if writers and _goes_out(nest, old, inner, around, self.who):
            written = [(s, s.lhs) for s in writers]
            useful = list(_useful(nest, old, writers, around))
            after = copies.save(f"{old.tensor}.store", (old.name, new), written, useful)
        stmts.update((stmt.name, stmt) for stmt, _ in (*before, *after))
        copied = [stmt.name for stmt, _ in (*before, *after)]
        body = seq([*(tree for _, tree in before), loop.body, *(tree for _, tree in after)])

        def enter(item: Loop) -> Tree:
            values = {**item.values, **dict.fromkeys(copied, shape.values[item.name])}
            return replace(item, values=values, body=body if item.name == loop.name else item.body)

        tree = edit(nest.tree, {item.name: enter for item in around})
        tile = Buffer(
            new, old.tensor, old.dtype, old.rank, self.scope, loop.name, layout, True, border=beyond
        )
        nest = replace(nest, stmts=stmts, tree=tree, buffers={**nest.buffers, new: tile})
        return doubled(nest, loop.name, new, self.who) if self.double else nest


def _lives_in(buffer: Buffer, loop: Loop) -> bool:
    """Does every iteration of the loop have storage of its own already?"""
    return buffer.at is not None and (
        buffer.at == loop.name or any(inner.name == buffer.at for inner in loops(loop.body))
    )


def _comes_in(
    nest: Nest, old: Buffer, inner: Sequence[Stmt], around: Sequence[Loop], who: str
) -> bool:
    """Is a value wanted under the loop that does not come from the same iteration?"""
    if nest.kernel.tensors[old.tensor].role == "input":
        return True
    wanted = list(_wanted(old.name, inner))
    for b in nest.stmts.values():
        if b.buffer == old.name and b not in inner:
            for a, cell in wanted:
                if first_pair(a, b, same_element(cell, b.lhs, b.dims), who) is not None:
                    return True
    return _crosses(wanted, [s for s in inner if s.buffer == old.name], around, who)


def _wanted(buffer: str, inner: Sequence[Stmt]) -> Iterator[tuple[Stmt, Cell]]:
    """The accesses that need the value that is there: reads, and updates of it."""
    for stmt in inner:
        yield from ((stmt, read.indices) for read in reads(stmt) if read.tensor == buffer)
        if stmt.buffer == buffer and stmt.reducer is not None:
            yield stmt, stmt.lhs


def _goes_out(
    nest: Nest, old: Buffer, inner: Sequence[Stmt], around: Sequence[Loop], who: str
) -> bool:
    """Is a value written under the loop that is wanted elsewhere?"""
    if nest.kernel.tensors[old.tensor].role == "output":
        return True
    if any(name not in {s.name for s in inner} for name in touching(nest)[old.name]):
        return True
    users = [(s, cell) for s in inner for cell in cells(s, old.name)]
    return _crosses(users, [s for s in inner if s.buffer == old.name], around, who)


def _useful(
    nest: Nest, old: Buffer, writers: Sequence[Stmt], around: Sequence[Loop]
) -> Iterator[tuple[Stmt, Cell]]:
    """The writes of elements that other iterations of the loops, or other statements, use later.

    Each is a statement over pairs of instances, the second of which is the use. Nothing for an
    output, all of which the caller wants.
    """
    if nest.kernel.tensors[old.tensor].role == "output":
        return
    for user, cell in _wanted(old.name, list(nest.stmts.values())):
        for writer in writers:
            later = [runs_before(relative(nest.tree, writer.name, user.name), writer, user)]
            if all(user.name in loop.values for loop in around):
                later.append(any_of(other_iteration(loop, writer, user) for loop in around))
            same = same_element(writer.lhs, cell, user.dims)
            theirs = [second(condition, user.dims) for condition in user.domain]
            pair = replace(
                writer,
                dims=(*writer.dims, *primed(user.dims)),
                domain=(*writer.domain, *theirs, *same, *later),
            )
            yield pair, writer.lhs


def _crosses(
    users: Sequence[tuple[Stmt, Cell]],
    writers: Sequence[Stmt],
    around: Sequence[Loop],
    who: str,
) -> bool:
    """Do different iterations of the loops meet in an element that one of them writes?"""
    for a, cell in users:
        for b in writers:
            apart = any_of(other_iteration(loop, a, b) for loop in around)
            same = same_element(cell, b.lhs, b.dims)
            if first_pair(a, b, [*same, apart], who) is not None:
                return True
    return False


def _turned(stmt: Stmt, old: str, new: str) -> Stmt:
    """A statement with one buffer in place of another."""

    def rename(item: Expr) -> Expr:
        named = isinstance(item, Access) and item.tensor == old
        return Access(new, item.indices) if named and isinstance(item, Access) else item

    buffer = new if stmt.buffer == old else stmt.buffer
    lhs = tuple(transform(part, rename) for part in stmt.lhs)
    return replace(stmt, buffer=buffer, value=transform(stmt.value, rename), lhs=lhs)
