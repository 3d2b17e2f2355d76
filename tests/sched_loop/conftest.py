"""A nest run in Python, instance by instance: the brute-force oracle of the schedule tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from diptych.algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, Index, Size, indices_of
from diptych.algo.tensor_expr.reducers import REDUCERS
from diptych.sched.loop.nest import Leaf, Loop, Nest, Seq, Stmt, Tree, leaves

Point = dict[str, int]
Cells = dict[tuple[int, ...], int]
LOWEST = -8
Reader = Callable[[str, tuple[int, ...]], int]


class Unwritten(Exception):
    """A cell was read that nothing has written."""


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "neg": lambda a: -a,
    "min": min,
    "max": max,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a: not a,
}


def evaluate(
    expr: Expr, point: Mapping[str, int], read: Callable[[str, tuple[int, ...]], int]
) -> Any:
    """An expression at one instance; integers stand for all element types."""
    match expr:
        case Const(value, _):
            return value if isinstance(value, bool) else int(value) if value in (0, 1) else value
        case Index(name) | Size(name):
            return point[name]
        case Cast(_, arg):
            return evaluate(arg, point, read)
        case Access(tensor, indices):
            return read(tensor, tuple(evaluate(e, point, read) for e in indices))
        case Call("where", (cond, yes, no)):
            return evaluate(yes if evaluate(cond, point, read) else no, point, read)
        case Call(op, args):
            return OPERATIONS[op](*(evaluate(arg, point, read) for arg in args))
    raise AssertionError(expr)


def no_read(tensor: str, cell: tuple[int, ...]) -> int:
    raise AssertionError(f"a domain that reads {tensor}")


def instances(stmt: Stmt, limit: int) -> Iterator[Point]:
    """Every instance with dims in LOWEST..limit-1; the domain must have no others."""
    ready: list[list[Expr]] = [[] for _ in stmt.dims]
    for condition in stmt.domain:
        ready[max((stmt.dims.index(d) for d in indices_of(condition)), default=0)].append(condition)

    def extend(point: Point, depth: int) -> Iterator[Point]:
        if depth == len(stmt.dims):
            yield dict(point)
            return
        for value in range(LOWEST, limit):
            point[stmt.dims[depth]] = value
            if all(evaluate(condition, point, no_read) for condition in ready[depth]):
                yield from extend(point, depth + 1)
        del point[stmt.dims[depth]]

    return extend({}, 0)


class Run:
    """Executes a nest whose sizes are bound; `order` lists (statement, point) as they ran."""

    def __init__(self, nest: Nest, inputs: Mapping[str, Cells], limit: int) -> None:
        self.nest = nest
        self.order: list[tuple[str, Point]] = []
        self.cells: dict[str, Cells] = {name: dict(cells) for name, cells in inputs.items()}
        for name, buffer in nest.buffers.items():
            if buffer.at is None:
                self.cells.setdefault(name, {})
        start = {name: list(instances(stmt, limit)) for name, stmt in nest.stmts.items()}
        self.tree(nest.tree, start)

    def read(self, buffer: str, cell: tuple[int, ...]) -> int:
        if cell not in self.cells[buffer]:
            raise Unwritten(f"{buffer}{list(cell)}")
        return self.cells[buffer][cell]

    def tree(self, tree: Tree, left: dict[str, list[Point]]) -> None:
        match tree:
            case Leaf(stmt):
                assert len(left[stmt]) <= 1, (stmt, left[stmt])
                for point in left[stmt]:
                    self.run(self.nest.stmts[stmt], point)
            case Seq(parts):
                for part in parts:
                    self.tree(part, {name: left[name] for name in leaves(part)})
            case Loop() as loop:
                self.loop(loop, left)

    def loop(self, loop: Loop, left: dict[str, list[Point]]) -> None:
        groups: dict[int, dict[str, list[Point]]] = {}
        for name, points in left.items():
            for point in points:
                value = evaluate(loop.values[name], point, no_read)
                groups.setdefault(value, {n: [] for n in left})[name].append(point)
        if loop.extent is not None:
            assert all(0 <= value < loop.extent for value in groups), loop.name
        for value in sorted(groups):
            for name, buffer in self.nest.buffers.items():
                if buffer.at == loop.name:
                    self.cells[name] = {}
            self.tree(loop.body, groups[value])

    def run(self, stmt: Stmt, point: Point) -> None:
        self.order.append((stmt.name, point))
        cell = tuple(evaluate(e, point, self.read) for e in stmt.lhs)
        value = evaluate(stmt.value, point, self.read)
        if stmt.reducer is not None:
            combine = OPERATIONS[REDUCERS[stmt.reducer].combine]
            value = combine(self.read(stmt.buffer, cell), value)
        self.cells[stmt.buffer][cell] = value


@pytest.fixture(scope="session")
def run() -> type[Run]:
    return Run


@pytest.fixture(scope="session")
def unwritten() -> type[Exception]:
    return Unwritten


@pytest.fixture(scope="session")
def value() -> Callable[[Expr, Mapping[str, int], Any], Any]:
    """Evaluates an expression at one instance."""
    return evaluate
