"""Random primitives on whatever loops a nest has, as the text of a call.

A new primitive is a function marked `@proposal`, which gives the arguments of its call or None
where nothing fits. `wild` views choose loops and stages without regard to what could be legal.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

from diptych.sched.loop.dependences import folding
from diptych.sched.loop.nest import Leaf, Loop, Nest, Seq, Tree, leaves, loops
from diptych.sched.loop.storage import in_coordinates, reads
from diptych.sched.loop.tree import around_stmt

FACTORS = (2, 3, 4, 5, 7, 8)
T = TypeVar("T")


@dataclass
class View:
    """A nest through the eyes of somebody who adds a primitive."""

    rng: random.Random
    nest: Nest
    wild: bool = False

    def __post_init__(self) -> None:
        self.loops = list(loops(self.nest.tree))
        self.serial = [loop for loop in self.loops if loop.kind == "serial"]
        self.temps = [
            name
            for name, buffer in self.nest.buffers.items()
            if self.nest.kernel.tensors[buffer.tensor].role == "temp" and buffer.tensor == name
        ]

    def one(self, good: Sequence[T], every: Sequence[T] = ()) -> T | None:
        """One of the good ones; of all where the view is wild, or of nothing better."""
        pool = every if (self.wild and every) or not good else good
        return self.rng.choice(pool) if pool else None

    def loop(self, good: Callable[[Loop], bool]) -> str | None:
        """The name of a serial loop, of a good one where there is one."""
        found = self.one(list(filter(good, self.serial)), self.loops if self.wild else self.serial)
        return found and found.name

    def chain(self) -> list[Loop]:
        """The loops on a way from the root to a statement."""
        return around_stmt(self.nest.tree, self.rng.choice(list(leaves(self.nest.tree))))

    def accumulates(self, loop: Loop) -> bool:
        """Does a reduction run along the loop?"""
        stmts = [self.nest.stmts[name] for name in leaves(loop)]
        folds = folding(self.nest.kernel)
        return any(
            (s.reducer is not None or s.name in folds)
            and in_coordinates(loop.values[s.name], s.lhs, s) is None
            for s in stmts
        )

    def atomic(self, loop: Loop) -> bool:
        """Are all updates under the loop atomic?"""
        return all(self.nest.stmts[s].atomic for s in leaves(loop) if self.nest.stmts[s].reducer)

    def recurs(self, loop: Loop) -> bool:
        """Does a statement under the loop read other elements of what is written there?"""
        stmts = [self.nest.stmts[name] for name in leaves(loop)]
        own = {s.buffer for s in stmts}
        return any(r.tensor in own and r.indices != s.lhs for s in stmts for r in reads(s))

    def touched(self, name: str) -> set[str]:
        """The buffers that a statement reads or writes."""
        stmt = self.nest.stmts[name]
        return {stmt.buffer, *(read.tensor for read in reads(stmt))}


Draw = Callable[[View], str | None]
PROPOSALS: dict[str, Draw] = {}
WEIGHTS: dict[str, int] = {}


def proposal(weight: int) -> Callable[[Draw], Draw]:
    """Lists a primitive called like the function, drawn in proportion to its weight."""

    def add(draw: Draw) -> Draw:
        PROPOSALS[draw.__name__], WEIGHTS[draw.__name__] = draw, weight
        return draw

    return add


def propose(
    view: View, often: Collection[str] = (), never: Collection[str] = ()
) -> tuple[str, str]:
    """A random primitive and its call: `("split", 'split("C.i", 4)')`."""
    weights = [
        0 if name in never else 4 * weight if name in often else weight
        for name, weight in WEIGHTS.items()
    ]
    while True:
        (name,) = view.rng.choices(list(PROPOSALS), weights)
        arguments = PROPOSALS[name](view)
        if arguments is not None:
            return name, f"{name}({arguments})"


def innermost(loop: Loop) -> bool:
    return not any(loops(loop.body))


@proposal(8)
def split(v: View) -> str | None:
    name = v.loop(lambda loop: loop.extent is None)
    tail = v.rng.choice(["", "", ', tail="separate"'])
    return name and f'"{name}", {v.rng.choice(FACTORS)}{tail}'


@proposal(6)
def tile(v: View) -> str | None:
    """Two loops one directly in the other, by their full names."""
    pairs = [(a, a.body) for a in v.serial if isinstance(a.body, Loop) and a.body.kind == "serial"]
    pair = v.one([(a, b) for a, b in pairs if a.extent is None and b.extent is None], pairs)
    if pair is None:
        return None
    parts = ", ".join(f'"{loop.name}": {v.rng.choice(FACTORS)}' for loop in pair)
    return f"{{{parts}}}"


@proposal(5)
def fuse(v: View) -> str | None:
    pairs = [(a.name, a.body.name) for a in v.serial if isinstance(a.body, Loop)]
    pair = v.one(pairs)
    return pair and f'"{pair[0]}", "{pair[1]}"'


@proposal(6)
def reorder(v: View) -> str | None:
    chain = [loop.name for loop in v.chain() if v.wild or loop.kind == "serial"]
    if len(chain) < 2:
        return None
    n = v.rng.randint(2, len(chain))
    some = v.rng.sample(chain, n)
    return ", ".join(f'"{name}"' for name in some)


@proposal(5)
def vectorize(v: View) -> str | None:
    name = v.loop(lambda loop: innermost(loop) and not v.recurs(loop))
    lanes = v.rng.choice(["", "", ", 4", ", 8"])
    return name and f'"{name}"{lanes}'


@proposal(6)
def unroll(v: View) -> str | None:
    name = v.loop(lambda loop: loop.extent is not None or innermost(loop))
    return name and f'"{name}"'


@proposal(6)
def parallel(v: View) -> str | None:
    outer = [v.nest.tree] if isinstance(v.nest.tree, Loop) else _parts(v.nest.tree)
    names = {loop.name for loop in outer if isinstance(loop, Loop)}
    name = v.loop(
        lambda loop: (
            loop.name in names
            and (not v.accumulates(loop) or v.atomic(loop))
            and not v.recurs(loop)
        )
    )
    return name and f'"{name}"'


def _parts(tree: Tree) -> tuple[Tree, ...]:
    return tree.parts if isinstance(tree, Seq) else ()


@proposal(7)
def stage(v: View) -> str | None:
    loop = v.one(v.serial, v.loops)
    if loop is None:
        return None
    under = {v.nest.buffers[b].tensor for name in leaves(loop) for b in v.touched(name)}
    everything = sorted({buffer.tensor for buffer in v.nest.buffers.values()})
    tensor = v.one(sorted(under), everything)
    scope = v.rng.choice(["stack", "stack", "heap", "register"])
    double = ", double=True" if scope != "register" and v.rng.random() < 0.3 else ""
    return f'"{tensor}", at="{loop.name}", scope="{scope}"{double}'


@proposal(12)
def compute_at(v: View) -> str | None:
    """A temporary under a loop that reads it and does not compute it."""
    if v.rng.random() < 0.3:
        return _once(v)
    pairs = []
    for temp in v.temps:
        makes = {s.name for s in v.nest.stmts.values() if s.buffer == temp}
        uses = {name for name in v.nest.stmts if temp in v.touched(name)} - makes
        pairs += [
            (temp, loop.name)
            for loop in v.loops
            if uses <= set(leaves(loop)) and not makes & set(leaves(loop)) and uses
        ]
    wild = [(temp, loop.name) for temp in v.temps for loop in v.loops]
    pair = v.one(pairs, wild)
    return pair and f'"{pair[0]}", "{pair[1]}"'


def _once(v: View) -> str | None:
    """One stage of a reduction, or what is returned, under a loop of what it belongs with."""
    parts = [name for name in v.nest.stmts if name.endswith((".init", ".final"))]
    returned = {t.name for t in v.nest.kernel.tensors.values() if t.role == "output"}
    stages = [*parts, *sorted(returned)]
    pairs = []
    for stage in stages:
        own = {s.name for s in v.nest.stmts.values() if stage in (s.name, s.buffer)}
        near = {b for name in own for b in v.touched(name)}
        kin = {name for name in v.nest.stmts if near & set(v.touched(name))} - own
        pairs += [
            (stage, loop.name)
            for loop in v.serial
            if kin & set(leaves(loop)) and not own & set(leaves(loop))
        ]
    pair = v.one(pairs, [(stage, loop.name) for stage in stages for loop in v.loops])
    return pair and f'"{pair[0]}", "{pair[1]}"'


@proposal(12)
def store_at(v: View) -> str | None:
    """A temporary kept over the iterations of loops around it and its readers."""
    pairs = []
    for temp in v.temps:
        users = {name for name in v.nest.stmts if temp in v.touched(name)}
        around = [loop.name for loop in v.loops if users <= set(leaves(loop))]
        pairs += [(temp, name) for name in ([None, *around] if around else [])]
    pair = v.one(pairs, [(temp, loop.name) for temp in v.temps for loop in v.loops])
    if pair is None:
        return None
    fold = f', fold={{"d0": {v.rng.randint(1, 3)}}}' if v.wild and v.rng.random() < 0.3 else ""
    return (f'"{pair[0]}"' if pair[1] is None else f'"{pair[0]}", "{pair[1]}"') + fold


@proposal(9)
def compute_with(v: View) -> str | None:
    """Two nests of one sequence, down to the outermost loop of both."""
    pairs = []
    for node in _sequences(v.nest.tree):
        for a, b in combinations(node.parts, 2):
            if isinstance(a, Loop) and isinstance(b, Loop):
                names = [loop.name.rpartition(".")[2] for loop in (a, b)]
                if v.wild or names[0] == names[1]:
                    pairs.append((next(leaves(a)), next(leaves(b)), names[1]))
    pair = v.one(pairs)
    return pair and f'"{pair[0]}", "{pair[1]}", "{pair[2]}"'


def _sequences(tree: Tree) -> list[Seq]:
    match tree:
        case Seq(parts):
            return [tree, *(found for part in parts for found in _sequences(part))]
        case Loop() as loop:
            return _sequences(loop.body)
        case Leaf():
            return []


def _reduction(v: View) -> str | None:
    """A loop of a reduction, if there is one."""
    name = v.loop(v.accumulates)
    loop = next((item for item in v.loops if item.name == name), None)
    return name if loop is not None and (v.wild or v.accumulates(loop)) else None


@proposal(9)
def rfactor(v: View) -> str | None:
    name = _reduction(v)
    return name and f'"{name}"'


@proposal(6)
def reverse(v: View) -> str | None:
    name = v.loop(lambda loop: not v.recurs(loop))
    return name and f'"{name}"'


@proposal(6)
def specialize(v: View) -> str | None:
    """A divisor or a bound of a size."""
    size = v.one(list(v.nest.kernel.checked.sizes))
    condition = v.rng.choice([" % 2 == 0", " % 4 == 0", " >= 8", " < 5"])
    return size and f'"{size}{condition}"'


@proposal(6)
def shift(v: View) -> str | None:
    """A stage of a loop; one that shares the loop with others only where the view is wild."""
    alone = [loop for loop in v.serial if len({v.nest.stmts[s].buffer for s in leaves(loop)}) == 1]
    loop = v.one(alone, v.serial)
    if loop is None:
        return None
    stage = v.rng.choice([v.nest.stmts[name].buffer for name in leaves(loop)])
    return f'"{stage}", "{loop.name}", {v.rng.choice([-2, -1, 1, 3])}'


@proposal(6)
def skew(v: View) -> str | None:
    chain = [loop for loop in v.chain() if v.wild or loop.kind == "serial"]
    if len(chain) < 2:
        return None
    n = v.rng.randrange(len(chain) - 1)
    inner = v.rng.choice(chain[n + 1 :])
    names = (inner.name, chain[n].name)
    if v.wild and v.rng.random() < 0.1:
        names = names[::-1]
    return f'"{names[0]}", "{names[1]}", {v.rng.choice([-1, 1, 2])}'


@proposal(40)
def inline(v: View) -> str | None:
    stages = v.nest.kernel.stages
    single = [s.tensor for s in stages if sum(t.tensor == s.tensor for t in stages) == 1]
    name = v.one([t for t in v.temps if t in single], v.temps if v.wild else ())
    return name and f'"{name}"'


@proposal(7)
def atomic(v: View) -> str | None:
    """The updates under a loop of a reduction."""
    name = _reduction(v)
    return name and f'"{name}"'


@proposal(7)
def privatize(v: View) -> str | None:
    name = _reduction(v)
    return name and f'"{name}"{v.rng.choice(["", ", copies=3", ", copies=2"])}'


def _own(v: View) -> str | None:
    """A buffer that the kernel allocates."""
    own = [name for name, buffer in v.nest.buffers.items() if buffer.scope != "param"]
    return v.one(own, list(v.nest.buffers))


@proposal(9)
def layout(v: View) -> str | None:
    """Axes in another order, the last one in blocks."""
    name = _own(v)
    if name is None or not v.nest.buffers[name].rank:
        return None
    axes = [f"d{n}" for n in range(v.nest.buffers[name].rank)]
    last, by = axes.pop(), v.rng.choice(FACTORS)
    axes += v.rng.choice([[last], [f"{last}//{by}", f"{last}%{by}"]])
    v.rng.shuffle(axes)
    return ", ".join(f'"{axis}"' for axis in (name, *axes))


@proposal(9)
def pad(v: View) -> str | None:
    name = _own(v)
    if name is None or not v.nest.buffers[name].rank:
        return None
    dim = v.rng.randrange(v.nest.buffers[name].rank)
    return f'"{name}", d{dim}={v.rng.choice(FACTORS)}'


@proposal(8)
def align(v: View) -> str | None:
    name = _own(v)
    return name and f'"{name}", {v.rng.choice([16, 128, 4096])}'


@proposal(7)
def stream(v: View) -> str | None:
    """A buffer that is only stored to."""
    stmts = v.nest.stmts.values()
    updated = {s.buffer for s in stmts if s.reducer is not None}
    stored = [
        s.buffer
        for s in stmts
        if s.buffer not in updated and v.nest.buffers[s.buffer].scope in ("param", "heap")
    ]
    name = v.one(stored, list(v.nest.buffers) if v.wild else ())
    return name and f'"{name}"'


@proposal(7)
def prefetch(v: View) -> str | None:
    """Something that is read under a loop."""
    loop = v.one(v.loops)
    if loop is None:
        return None
    read = {r.tensor for name in leaves(loop) for r in reads(v.nest.stmts[name])}
    tensor = v.one(sorted(read), list(v.nest.buffers))
    return tensor and f'"{tensor}", "{loop.name}", {v.rng.choice([1, 2, 9])}'
