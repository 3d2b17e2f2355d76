"""isl's verdict against brute force, in both directions.

A random primitive is applied without asking whether it is legal. The nest is then run instance by
instance in Python, and its values compared with those of the default nest; dependences between
iterations that would run at once are looked for in the same run. Both must agree with `validate`.
"""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from diptych.algo.errors import ScheduleError
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop.compute import ComputeAt
from diptych.sched.loop.compute_with import ComputeWith
from diptych.sched.loop.extent import spans
from diptych.sched.loop.fuse import Fuse
from diptych.sched.loop.inline import Inline
from diptych.sched.loop.marks import Parallel, Vectorize
from diptych.sched.loop.nest import Loop, Nest, leaves, loops
from diptych.sched.loop.primitive import Primitive
from diptych.sched.loop.reorder import Reorder
from diptych.sched.loop.rfactor import Rfactor
from diptych.sched.loop.schedule import Schedule
from diptych.sched.loop.show import show
from diptych.sched.loop.split import Split
from diptych.sched.loop.stage import Stage
from diptych.sched.loop.storage import place
from diptych.sched.loop.tree import around_loop, around_stmt
from diptych.sched.loop.validate import validate
from diptych.sched.loop.values import Reverse, Shift, Skew
from hypothesis import given, settings
from hypothesis import strategies as st

OPERATORS = {
    "matmul": ("C[i,j] = sum(A[i,k]*B[k,j])", {"I": 3, "J": 4, "K": 3}),
    "triangle": (
        "C[i,j] = sum(A[i,k]*A[j,k]) where i in 0:I, j in 0:I, j <= i\n"
        "C[i,j] = 0 where i in 0:I, j in 0:I, j > i",
        {"I": 4, "K": 2},
    ),
    "stencil": ("t[i] = x[i] + x[i+1]\ny[i] = t[i] - 2*t[i+1] + t[i+2]", {"I": 8}),
    "scan": ("c[0,j] = x[0,j]\nc[i,j] = c[i-1,j] + x[i,j] where i in 1:I", {"I": 4, "J": 3}),
    "skewed": (
        "c[i,j] = x[i,j] + where((i > 0) & (j < J - 1), c[i-1,j+1], 0) where i in 0:I, j in 0:J",
        {"I": 3, "J": 4},
    ),
    "reversed": ("F[y,x] = a[y,x] + 1\nG[y,x] = F[y,X-1-x] where x in 0:X", {"Y": 2, "X": 4}),
    "rows": ("m[i] = max(x[i,j])\ny[i,j] = (x[i,j] - m[i]) * sum(x[i,l] - m[i])", {"I": 3, "J": 3}),
    "gather": ("y[n,d] = w[at[n],d] + w[at[n],d]", {"N": 3, "AT_0": 3, "W_0": 4, "D": 2}),
    "epilogue": ("y[i,j] = max(sum(A[i,k]*B[k,j]) + b[j], 0)", {"I": 3, "J": 3, "K": 2}),
}


def bound(name: str) -> Nest:
    text, sizes = OPERATORS[name]
    schedule = Schedule(parse(text))
    known = {n: sizes.get(n, 4) for n in schedule.nest().kernel.checked.sizes}
    return schedule.nest(sizes=known)


def draw_primitive(rng: random.Random, nest: Nest) -> Primitive:
    names = [loop.name for loop in loops(nest.tree)]
    one = rng.choice(names)
    buffers = [name for name, b in nest.buffers.items()]
    chain = [loop.name for loop in around_stmt(nest.tree, rng.choice(list(nest.stmts)))]
    kind = rng.choice(
        [
            "split", "reorder", "reorder", "reorder", "fuse", "stage", "compute_at", "compute_with",
            "rfactor", "reverse", "skew", "shift", "inline",
        ]
    )  # fmt: skip
    if kind == "split":
        return Split(one, rng.choice([2, 3]))
    if kind == "reorder":
        rng.shuffle(chain)
        return Reorder(tuple(chain[: rng.choice([2, 3, 4])]))
    if kind == "fuse":
        return Fuse(
            *(chain[n : n + 2] if len(chain) > (n := rng.randrange(3)) + 1 else chain * 2)[:2]
        )
    if kind == "stage":
        return Stage(rng.choice(buffers), one, "stack")
    if kind == "compute_at":
        return ComputeAt(rng.choice(buffers), one)
    if kind == "rfactor":
        return Rfactor(one)
    if kind == "reverse":
        return Reverse(one)
    if kind == "skew":
        return Skew(one, rng.choice(chain), rng.choice([-1, 1, 2]))
    if kind == "shift":
        return Shift(rng.choice(list(nest.stmts)), one, rng.choice([-1, 1, 2]))
    if kind == "inline":
        return Inline(rng.choice(buffers))
    stages = list(dict.fromkeys(s.buffer for s in nest.stmts.values()))
    a, b = rng.choice(stages), rng.choice(stages)
    return ComputeWith(a, b, one.rpartition(".")[2])


def inputs_of(nest: Nest, rng: random.Random) -> dict[str, dict[tuple[int, ...], int]]:
    from itertools import product

    found = {}
    for tensor in nest.kernel.tensors.values():
        if tensor.role == "input":
            shape = [range(extent.value) for extent in tensor.shape]
            top = 3 if tensor.name == "at" else 1000
            found[tensor.name] = {cell: rng.randrange(top) for cell in product(*shape)}
    return found


def result(run: Any, unwritten: Any, nest: Nest, seed_: int) -> Any:
    """The output cells, or the name of the failure."""
    inputs = inputs_of(nest, random.Random(seed_))
    try:
        done = run(nest, inputs, 17)
    except unwritten:
        return "unwritten"
    (output,) = nest.kernel.checked.op.returns
    return done.cells[output]


def within_reach(nest: Nest, loop: Loop) -> bool:
    """Does the brute-force run see all of a loop's values, which copies have dims for?"""
    found = spans(nest, loop)
    return found is None or (found[0] >= -8 and found[1] < 17)


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(rng=st.randoms(use_true_random=False))
def test_order_and_flow(name: str, run: Any, unwritten: Any, rng: random.Random) -> None:
    nest = bound(name)
    want = result(run, unwritten, nest, 1)
    assert want != "unwritten"
    for _ in range(rng.choice([1, 2, 3, 4])):
        primitive = draw_primitive(rng, nest)
        try:
            primitive.legal(nest)
            accepted, why = True, ""
        except ScheduleError as error:
            accepted, why = False, str(error)
            if not re.search(" before it| before C|newest|yet|last value", why):
                continue  # meaningless rather than illegal: nothing to run
        after = place(primitive.apply(nest))
        if not all(within_reach(after, loop) for loop in loops(after.tree)):
            continue
        got = result(run, unwritten, after, 1)
        assert (got == want) == accepted, f"{primitive.text}: {why}\n{show(after)}"
        try:
            validate(after)
            assert accepted, f"{primitive.text} is refused, but its nest validates: {why}"
        except ScheduleError as error:
            assert not accepted, f"{primitive.text} is accepted, but: {error}"
        if accepted:
            nest = after


def touched(value: Any, stmt: Any, point: Any) -> list[tuple[str, tuple[int, ...], str]]:
    """The cells that an instance touches: buffer, coordinates, and read, write or update."""
    found: list[tuple[str, tuple[int, ...], str]] = []

    def read(buffer: str, cell: tuple[int, ...]) -> int:
        found.append((buffer, cell, "read"))
        return 0

    cell = tuple(value(e, point, read) for e in stmt.lhs)
    value(stmt.value, point, read)
    return [*found, (stmt.buffer, cell, "update" if stmt.reducer else "write")]


def collides(run: Any, at: Any, nest: Nest, loop: Loop, *, lanes: bool) -> bool:
    """Do two iterations of a loop meet in a cell that one of them writes?

    Buffers inside the loop are its iterations' own. With `lanes`, updates of one cell by all lanes
    do not count.
    """
    order = run(nest, inputs_of(nest, random.Random(1)), 17).order
    outer = around_loop(nest.tree, loop.name)
    inside = {loop.name, *(item.name for item in loops(loop.body))}
    seen: dict[Any, dict[int, set[str]]] = {}
    own: dict[Any, set[Any]] = {}
    for name, point in order:
        if name not in set(leaves(loop)):
            continue
        stmt = nest.stmts[name]
        around = around_stmt(nest.tree, name)
        value = at(loop.values[name], point, None)
        place_ = tuple(at(item.values[name], point, None) for item in outer)
        rest = tuple(at(i.values[name], point, None) for i in around if i is not loop)
        for buffer, cell, kind in touched(at, stmt, point):
            if nest.buffers[buffer].at in inside:
                continue
            seen.setdefault((place_, buffer, cell), {}).setdefault(value, set()).add(kind)
            if kind == "update":
                own.setdefault((name, rest), set()).add(cell)
    # Lanes may share the cell that they update if they all share it, and nothing else uses it.
    horizontal = lanes and all(len(cells) == 1 for cells in own.values())
    for users in seen.values():
        kinds = set().union(*users.values())
        if len(users) < 2 or kinds == {"read"}:
            continue
        if not (horizontal and kinds == {"update"}):
            return True
    return False


@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "gather"])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(rng=st.randoms(use_true_random=False))
def test_marks_stay_right(name: str, run: Any, value: Any, rng: random.Random) -> None:
    """Loops that were marked first are still concurrent after what follows."""
    nest = bound(name)
    for _ in range(rng.choice([2, 4, 6])):
        loop = rng.choice(list(loops(nest.tree))).name
        mark = rng.choice([Parallel(loop), Vectorize(loop)])
        primitive = rng.choice([mark, draw_primitive(rng, nest)])
        try:
            nest = primitive.step(nest)
        except ScheduleError:
            continue
    for loop in loops(nest.tree):
        if loop.kind in ("parallel", "vector"):
            assert not collides(run, value, nest, loop, lanes=loop.kind == "vector"), show(nest)


@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "gather"])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(rng=st.randoms(use_true_random=False))
def test_concurrent_loops(name: str, run: Any, value: Any, rng: random.Random) -> None:
    nest = bound(name)
    for _ in range(rng.choice([0, 1, 2, 3])):
        primitive = draw_primitive(rng, nest)
        try:
            nest = primitive.step(nest)
        except ScheduleError:
            continue
    loop = rng.choice(list(loops(nest.tree)))
    for primitive in (Parallel(loop.name), Vectorize(loop.name)):
        try:
            primitive.legal(nest)
            accepted, why = True, ""
        except ScheduleError as error:
            accepted, why = False, str(error)
        lanes = isinstance(primitive, Vectorize)
        assert accepted != collides(run, value, nest, loop, lanes=lanes), f"{why}\n{show(nest)}"
