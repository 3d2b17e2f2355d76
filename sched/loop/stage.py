"""`stage`: a tile of a tensor in a buffer of its own, with the copies in and out that it needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...algo import isl
from ...algo.errors import ScheduleError
from ...algo.tensor_expr.expr import Access, Expr, Index, indices_of, sizes_of, transform
from .flow import check_flow
from .layout import loop_names, loop_values, parse_layout
from .names import find_loop, index_of
from .nest import Buffer, Leaf, Loop, Nest, Stmt, Tree, leaves, loops
from .order import other_iteration
from .primitive import Primitive
from .regions import region
from .relations import from_data, primed, same_element, text
from .storage import cells, place, reads, touching
from .tree import around_loop, around_stmt, edit, seq
from .witness import first_pair

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
    layout axis (`B.pack.k`). An accumulator that lives there already only changes its scope.

    `scope` is stack, register, heap, shared or local. `layout` gives the axes of the storage,
    outermost first, as text over the tensor's dimensions, relative to the tile:
    ("j//32", "k", "j%32") makes panels of 32 columns. Dimensions go by the index that runs over
    them, or d0, d1, ... Value flow is checked.
    """

    called: ClassVar[str] = "stage"
    tensor: str
    at: str
    scope: str = "stack"
    layout: tuple[str, ...] | None = None

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
        inner = [nest.stmts[name] for name in leaves(loop)]
        if any(from_data(part) for s in inner if s.buffer == buffer.name for part in s.lhs):
            raise ScheduleError(
                f"{self.who}: elements of {buffer.tensor} are chosen by data when it is written"
                f"{_loc(inner, buffer.name)}; a tile of it is not known"
            )
        after = place(self.apply(nest))
        check_flow(after, [buffer.tensor], self.who)

    def _buffer(self, nest: Nest, loop: Loop) -> Buffer:
        """The buffer that holds the tensor under the loop: the accumulator, where there is one."""
        used = {name for name in nest.buffers if set(touching(nest, name)) & set(leaves(loop))}
        found = [nest.buffers[name] for name in used if nest.buffers[name].tensor == self.tensor]
        accumulator = nest.buffers.get(f"{self.tensor}.acc")
        if accumulator is not None and accumulator.name in used:
            updated = any(
                nest.stmts[s].reducer for s in leaves(loop) if nest.stmts[s].buffer == self.tensor
            )
            found = found if updated else [accumulator]
        if not found:
            known = sorted({nest.buffers[name].tensor for name in used})
            raise ScheduleError(
                f"{self.who}: {self.tensor} is not touched under loop {loop.name}; "
                f"touched are {', '.join(known)}"
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
        tile = _Tile(self, nest, loop, old)
        if _lives_in(nest, old, loop):
            own = replace(old, scope=self.scope, layout=tile.layout)
            return replace(nest, buffers={**nest.buffers, old.name: own})
        return tile.build()


def _loc(stmts: list[Stmt], buffer: str) -> str:
    loc = next((stmt.loc for stmt in stmts if stmt.buffer == buffer), None)
    return f" ({loc})" if loc else ""


def _lives_in(nest: Nest, buffer: Buffer, loop: Loop) -> bool:
    """Does every iteration of the loop have storage of its own already?"""
    if buffer.scope == "param" or buffer.at is None:
        return False
    return buffer.at in {loop.name, *(inner.name for inner in loops(loop.body))}


class _Tile:
    """The tile of one tensor under one loop, while it is made."""

    def __init__(self, primitive: Stage, nest: Nest, loop: Loop, old: Buffer) -> None:
        self.primitive, self.nest, self.loop, self.old = primitive, nest, loop, old
        self.who = primitive.who
        self.around = [*around_loop(nest.tree, loop.name), loop]
        self.inner = [nest.stmts[name] for name in leaves(loop)]
        self.touched = [(s, cell) for s in self.inner for cell in cells(s, old.name)]
        self.names = self._dimension_names()
        axes = primitive.layout
        self.layout = None if axes is None else parse_layout(axes, self.names, self.who)

    def _dimension_names(self) -> tuple[str, ...]:
        """What the tensor's dimensions are called: by the index of the first access, or d0 ..."""
        cell = self.touched[0][1]
        bare = [part.name if isinstance(part, Index) else f"d{n}" for n, part in enumerate(cell)]
        return (
            tuple(bare) if len(set(bare)) == len(bare) else tuple(f"d{n}" for n in range(len(bare)))
        )

    def build(self) -> Nest:
        """The nest with the buffer, its copies, and its statements turned to it."""
        name = _unused(f"{self.old.name}.{self.primitive.scope}", self.nest.buffers)
        tile = Buffer(
            name, self.old.tensor, self.old.dtype, self.old.rank, self.primitive.scope,
            self.loop.name, self.layout, True,
        )  # fmt: skip
        written = any(s.buffer == self.old.name for s in self.inner)
        comes_in, goes_out = self._comes_in(), written and self._goes_out()
        stem = self.old.tensor
        stmts = {
            n: _turned(s, self.old.name, name) if s in self.inner else s
            for n, s in self.nest.stmts.items()
        }
        body = self.loop.body
        outer = {loop.name: dict(loop.values) for loop in self.around}
        parts: list[Tree] = [body]
        if comes_in:
            label = "load" if written else "pack"
            parts.insert(
                0, self._copy(_unused(f"{stem}.{label}", stmts), name, self.old.name, stmts, outer)
            )
        if goes_out:
            parts.append(
                self._copy(_unused(f"{stem}.store", stmts), self.old.name, name, stmts, outer)
            )
        whole = seq(parts)

        def rebuilt(loop: Loop) -> Tree:
            return replace(
                loop,
                values=outer[loop.name],
                body=whole if loop.name == self.loop.name else loop.body,
            )

        tree = edit(self.nest.tree, {loop.name: rebuilt for loop in self.around})
        return replace(self.nest, stmts=stmts, tree=tree, buffers={**self.nest.buffers, name: tile})

    def _comes_in(self) -> bool:
        """Is a value read that does not come from this iteration?"""
        old, nest = self.old, self.nest
        if nest.kernel.tensors[old.tensor].role == "input":
            return True
        wanting = [s for s in self.inner if s.reducer is not None and s.buffer == old.name]
        wanting += [s for s in self.inner if any(r.tensor == old.name for r in reads(s))]
        if not wanting:
            return False
        outside = [s for s in nest.stmts.values() if s.buffer == old.name and s not in self.inner]
        return bool(outside) or self._crosses(
            wanting, [s for s in self.inner if s.buffer == old.name]
        )

    def _goes_out(self) -> bool:
        """Is a value written that somebody else wants?"""
        old, nest = self.old, self.nest
        if nest.kernel.tensors[old.tensor].role == "output":
            return True
        outside = [s for s in nest.stmts.values() if s not in self.inner]
        if any(True for s in outside for _ in cells(s, old.name)):
            return True
        return self._crosses(
            [s for s in self.inner if any(True for _ in cells(s, old.name))],
            [s for s in self.inner if s.buffer == old.name],
        )

    def _crosses(self, some: list[Stmt], writers: list[Stmt]) -> bool:
        """Do two iterations of the loops down to `at` meet in an element that one writes?"""
        for a in some:
            for cell in cells(a, self.old.name):
                for b in writers:
                    same = same_element(cell, b.lhs, primed(b.dims))
                    apart = " or ".join(other_iteration(loop, a, b) for loop in self.around)
                    if first_pair(a, b, [*same, f"({apart})"], self.who) is not None:
                        return True
        return False

    def _copy(
        self,
        label: str,
        target: str,
        source: str,
        stmts: dict[str, Stmt],
        outer: dict[str, dict[str, Expr]],
    ) -> Tree:
        """A statement that copies the region, in loops of its own."""
        mirror = self._mirrored()
        own, values, inner = mirror if mirror is not None else self._plain()
        touched = self.touched
        if label.rpartition(".")[2].startswith("store"):
            touched = [(s, s.lhs) for s in self.inner if s.buffer == self.old.name]
        free = [loop for loop in self.around if loop.name in own]
        dims = tuple(own[loop.name] for loop in free)
        found = region(self.nest, self.old.tensor, touched, free, (dims, self.names), self.who)
        if not found.exact and target == self.old.name:
            raise ScheduleError(
                f"{self.who}: the elements of {self.old.tensor} written under loop "
                f"{self.loop.name} are no convex block, so they cannot be copied out as one"
            )
        coordinates: tuple[Expr, ...] = tuple(map(Index, self.names))
        loc = self.touched[0][0].loc
        stmts[label] = Stmt(
            label, (*dims, *self.names), found.conditions, target, coordinates,
            Access(source, coordinates), None, (self.old.tensor, coordinates), loc,
        )  # fmt: skip
        for loop in self.around:
            outer[loop.name][label] = values[loop.name]
        tree: Tree = Leaf(label)
        for name, value, kind, extent in reversed(inner):
            tree = Loop(f"{label}.{name}", {label: value}, tree, kind, extent)
        return tree

    def _plain(self) -> Any:
        """Repeated for every loop around; inside, a loop a dimension or a storage axis."""
        used = set(self.names)
        own: dict[str, str] = {}
        for loop in self.around:
            name = index_of(loop.name)
            while name in used:
                name += "_"
            used.add(name)
            own[loop.name] = name
        values: dict[str, Expr] = {loop: Index(name) for loop, name in own.items()}
        if self.layout is None:
            inner = [(name, Index(name), "serial", None) for name in self.names]
        else:
            axes = zip(
                loop_names(self.layout, self.names),
                loop_values(self.layout, self.names),
                strict=True,
            )
            inner = [(name, value, "serial", None) for name, value in axes]
        return own, values, inner

    def _mirrored(self) -> Any:
        """An accumulator's copies run in its loops, as far as its coordinates determine them."""
        writers = [s for s in self.inner if s.buffer == self.old.name]
        if not writers:
            return None
        writer = max(writers, key=lambda s: len(around_stmt(self.nest.tree, s.name)))
        if not all(isinstance(part, Index) for part in writer.lhs) or self.names != tuple(
            part.name for part in writer.lhs if isinstance(part, Index)
        ):
            return None
        known = set(self.names)
        chain = around_stmt(self.nest.tree, writer.name)
        own: dict[str, str] = {}
        values: dict[str, Expr] = {}
        for loop in chain[: len(self.around)]:
            value = loop.values[writer.name]
            if set(indices_of(value)) <= known:
                values[loop.name] = value
                continue
            name = index_of(loop.name)
            while name in known or name in own.values():
                name += "_"
            own[loop.name] = name
            values[loop.name] = Index(name)
        inner = []
        for loop in chain[len(self.around) :]:
            value = loop.values[writer.name]
            if indices_of(value) and set(indices_of(value)) <= known:
                inner.append((index_of(loop.name), value, loop.kind, loop.extent))
        if not self._determined([*values.values(), *(value for _, value, _, _ in inner)]):
            return None
        return own, values, inner

    def _determined(self, values: list[Expr]) -> bool:
        """Do the values of loops tell all elements apart?"""
        second = primed(self.names)
        both = [*self.names, *(f"{name}'" for name in self.names)]
        plain = [value for value in values if set(indices_of(value)) <= set(self.names)]
        same = [f"{text(value)} = {text(value, second)}" for value in plain]
        apart = (
            " or ".join(f"{isl.ident(n)} != {isl.ident(n + chr(39))}" for n in self.names)
            or "1 = 0"
        )
        points = isl.make_set(both, [*same, f"({apart})"], sizes_of(plain))
        return isl.is_empty(points) is isl.Answer.YES


def _turned(stmt: Stmt, old: str, new: str) -> Stmt:
    """A statement with one buffer in place of another."""

    def rename(item: Expr) -> Expr:
        return (
            Access(new, item.indices) if isinstance(item, Access) and item.tensor == old else item
        )

    return replace(
        stmt,
        buffer=new if stmt.buffer == old else stmt.buffer,
        value=transform(stmt.value, rename),
        lhs=tuple(transform(part, rename) for part in stmt.lhs),
    )


def _unused(name: str, taken: Any) -> str:
    """`name`, numbered from the second one on."""
    n = 2
    found = name
    while found in taken:
        found, n = f"{name}{n}", n + 1
    return found
