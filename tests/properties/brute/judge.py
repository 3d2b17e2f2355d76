"""Is a nest right? Found by running every instance of it, in the order that its loops say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from diptych.algo.tensor_expr.expr import Const, accesses
from diptych.algo.tensor_expr.op import Kernel
from diptych.sched.loop.initial import initial
from diptych.sched.loop.nest import Leaf, Loop, Nest, Seq, Stmt, Tree, leaves
from diptych.sched.loop.tree import around_stmt
from properties.brute.folding import stage_value
from properties.brute.meaning import Cell, Meaning, Token, combined, identity
from properties.brute.numbers import Point, function, points

Instance = tuple[str, Cell]
Place = tuple[str, Cell]
Left = dict[str, list[Point]]
"""The instances of statements that are still to run."""


class Illegal(Exception):
    """What is wrong with a nest, in words for whoever reads a failing test."""


@dataclass
class Truth:
    """What a kernel means: the value of every instance of its stages, and its outputs."""

    kernel: Kernel
    values: dict[Instance, Token] = field(default_factory=dict)
    outputs: dict[Place, Token] = field(default_factory=dict)

    def of(self, kernel: Kernel) -> dict[Instance, Token]:
        """The values of the instances of a kernel that primitives made of this one.

        A user's reduction in two steps is known in its nest alone: its stages, which need each
        other, do not run one after the other. So there only stages that stayed have known values.
        """
        new = {s.name for s in kernel.stages if s not in self.kernel.stages}
        if any(s.turn is not None for s in kernel.stages if s.name in new):
            return {at: value for at, value in self.values.items() if at[0] not in new}
        return meaning_of(kernel).values if new else self.values


def meaning_of(kernel: Kernel) -> Truth:
    """The kernel run as it is written: stages one after the other."""
    run = Run(initial(kernel), None)
    run.all()
    return Truth(kernel, run.values, run.outputs())


def fault(nest: Nest, truth: Truth) -> str | None:
    """What is wrong with a nest, None if it gives the outputs and every instance its value."""
    run = Run(nest, truth.of(nest.kernel))
    try:
        run.all()
    except Illegal as wrong:
        return str(wrong)
    right = run.outputs() == truth.outputs
    return None if right else "an output is not complete, or another value"


@dataclass
class Marked:
    """A loop whose iterations run at once: who touches which element, by iteration."""

    loop: Loop
    now: int = 0
    touched: dict[tuple[str, Cell, int], dict[tuple[int, str, str], None]] = field(
        default_factory=dict
    )


class Run:
    """Executes a nest whose sizes are bound; buffers live as long as their loops say."""

    def __init__(self, nest: Nest, wanted: dict[Instance, Token] | None) -> None:
        self.nest, self.wanted = nest, wanted
        self.known = {name for name, _ in wanted or ()}
        self.values: dict[Instance, Token] = {}
        self.cells: dict[str, dict[Cell, Token]] = {name: {} for name in nest.buffers}
        self.lives = dict.fromkeys(nest.buffers, 0)
        self.marked: list[Marked] = []
        self.stages = {stage.name: stage for stage in nest.kernel.stages}
        self.inputs = {
            name
            for name, buffer in nest.buffers.items()
            if name == buffer.tensor and nest.kernel.tensors[name].role == "input"
        }

    def shape(self, buffer: str) -> Sequence[int]:
        extents = self.nest.kernel.tensors[self.nest.buffers[buffer].tensor].shape
        return [int(e.value) for e in extents if isinstance(e, Const)]

    def all(self) -> None:
        missing = set(self.nest.stmts) ^ set(leaves(self.nest.tree))
        if missing:
            raise Illegal(f"{missing} are not once in the tree")
        start = {name: list(points(s.dims, s.domain)) for name, s in self.nest.stmts.items()}
        self.tree(self.nest.tree, start)

    def outputs(self) -> dict[Place, Token]:
        tensors = self.nest.kernel.tensors
        names = [t.name for t in tensors.values() if t.role == "output"]
        return {(n, cell): value for n in names for cell, value in self.cells[n].items()}

    def tree(self, tree: Tree, left: Left) -> None:
        match tree:
            case Leaf(name):
                if len(left[name]) > 1:
                    raise Illegal(f"{name} {left[name][:2]} run in no order")
                for point in left[name]:
                    self.instance(self.nest.stmts[name], point)
            case Seq(parts):
                for part in parts:
                    self.tree(part, {name: left[name] for name in leaves(part)})
            case Loop() as loop:
                self.loop(loop, left)

    def loop(self, loop: Loop, left: Left) -> None:
        groups: dict[int, Left] = {}
        for name, instances in left.items():
            at = function(loop.values[name], self.nest.stmts[name].dims)
            for point in instances:
                groups.setdefault(at(point), {n: [] for n in left})[name].append(point)
        marked = Marked(loop) if loop.kind not in ("serial", "unroll") else None
        if marked:
            self.marked.append(marked)
        for value in sorted(groups):
            if loop.extent is not None and not 0 <= value < loop.extent:
                raise Illegal(f"{loop.name} is {value}, its extent {loop.extent}")
            for name, buffer in self.nest.buffers.items():
                if buffer.at == loop.name:
                    self.cells[name] = {}
                    self.lives[name] += 1
            if marked:
                marked.now = value
            self.tree(loop.body, groups[value])
        if marked:
            self.marked.pop()
            self.conflicts(marked)

    def instance(self, stmt: Stmt, point: Point) -> None:
        meaning = Meaning(stmt.dims, point, lambda b, c: self.read(stmt, b, c), self.shape)
        stage = self.stages.get(stmt.instance[0])
        value = stage_value(stage, stmt.value, meaning) if stage else meaning.value(stmt.value)
        by_data = [part for part in stmt.lhs if accesses(part)]
        if by_data:
            chosen = [hash(meaning.value(part)) for part in by_data]
            value = hash(("to one of", *chosen, hash(value)))
        if stmt.name in self.stages:
            self.check(stmt, meaning, value)
        for cell in meaning.cells(stmt.buffer, stmt.lhs):
            inside = all(0 <= c < n for c, n in zip(cell, self.shape(stmt.buffer), strict=True))
            if not inside and not self.nest.buffers[stmt.buffer].border:
                raise Illegal(f"{stmt.name} {point} writes {stmt.buffer}{list(cell)}, outside")
            store, cell = self.cells[stmt.buffer], self.folded(stmt.buffer, cell)
            if stmt.reducer is None:
                self.touch(stmt, stmt.buffer, cell, "write")
                store[cell] = value
                continue
            self.touch(stmt, stmt.buffer, cell, "update")
            if cell not in store:
                raise Illegal(f"{stmt.name} {point} updates {stmt.buffer}{list(cell)} before")
            zero = identity(stmt.reducer, self.nest.buffers[stmt.buffer].dtype)
            store[cell] = combined(store[cell], value, stmt.reducer, zero)

    def check(self, stmt: Stmt, meaning: Meaning, value: Token) -> None:
        """The instance must be one of the kernel, and see what it sees as written."""
        instance = (stmt.instance[0], tuple(map(meaning.number, stmt.instance[1])))
        if self.wanted is None:
            self.values[instance] = value
        elif instance[0] in self.known and self.wanted.get(instance) != value:
            raise Illegal(f"{instance} sees another value, or is none of the kernel")

    def folded(self, buffer: str, cell: Cell) -> Cell:
        """The place of an element, which others may share."""
        place = list(cell)
        for dim, count in self.nest.buffers[buffer].fold:
            place[dim] %= count
        return tuple(place)

    def read(self, stmt: Stmt, buffer: str, cell: Cell) -> Token:
        cell = self.folded(buffer, cell)
        self.touch(stmt, buffer, cell, "read")
        if buffer in self.inputs:
            return hash((buffer, cell))
        if cell not in self.cells[buffer]:
            raise Illegal(f"{stmt.name} reads {buffer}{list(cell)}, which is not written")
        return self.cells[buffer][cell]

    def touch(self, stmt: Stmt, buffer: str, cell: Cell, kind: str) -> None:
        if buffer not in self.inputs:
            for marked in self.marked:
                place = (buffer, cell, self.lives[buffer])
                marked.touched.setdefault(place, {})[marked.now, kind, stmt.name] = None

    def conflicts(self, marked: Marked) -> None:
        """No two iterations of a loop that runs at once may meet where one of them writes."""
        for (buffer, cell, _), touches in marked.touched.items():
            if len({now for now, _, _ in touches}) < 2:
                continue
            kinds = {kind for _, kind, _ in touches}
            if kinds == {"read"}:
                continue
            stmts = {name: self.nest.stmts[name] for _, _, name in touches}
            if kinds == {"update"} and self.may_meet(list(stmts.values()), marked.loop):
                continue
            raise Illegal(f"iterations of {marked.loop.name} meet in {buffer}{list(cell)}")

    def may_meet(self, updates: Sequence[Stmt], loop: Loop) -> bool:
        """Are the updates atomic, or those of a reduction in lanes, which combines them?"""
        atomic = all(stmt.atomic for stmt in updates) and len({s.reducer for s in updates}) == 1
        in_lanes = loop.kind == "vector" and len(updates) == 1
        return atomic or (in_lanes and self.one_element(updates[0], loop))

    def one_element(self, stmt: Stmt, loop: Loop) -> bool:
        """Do lanes that differ in nothing else accumulate into one element?"""
        name = stmt.name
        if any(accesses(part) for part in stmt.lhs):
            return False
        others = [
            function(item.values[name], stmt.dims)
            for item in around_stmt(self.nest.tree, name)
            if item.name != loop.name
        ]
        cell = [function(part, stmt.dims) for part in stmt.lhs]
        found: dict[Cell, Cell] = {}
        return all(
            found.setdefault(tuple(f(p) for f in others), here) == here
            for p in points(stmt.dims, stmt.domain)
            for here in [tuple(f(p) for f in cell)]
        )
