"""Why the default schedule of an operator is what it is: the figures that it was chosen by.

For each loop nest: what it has to do, the least time that the roofline allows, what was chosen
and which figures speak for it, and what else could have been.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...algo.dtypes import DType, bf16
from ...algo.tensor_expr.expr import Access, Call, Const, walk
from ...algo.tensor_expr.op import Op
from ...algo.tensor_expr.printer import print_expr
from ...algo.tensor_expr.types import dtype_of
from .access import Group, groups
from .default import choose
from .dot import factors
from .draft import laid_out
from .machine import Machine
from .parallelism import WORTH_A_THREAD
from .peaks import Peaks
from .show import show
from .sketch import Choice
from .sketch_build import build
from .words import words_of

_WORK = {"exp": 18, "log": 20, "tanh": 24, "sigmoid": 22, "erf": 40, "sin": 20, "cos": 20,
         "pow": 60, "div": 4, "sqrt": 4, "rsqrt": 6, "floordiv": 6, "mod": 8}  # fmt: skip
"""Operations that stand for one call, where that is not 1: those of range reductions and
polynomials, and what takes a divider as long."""


def explain(
    op: Op,
    dtypes: Mapping[str, DType] | None,
    sizes: Mapping[str, int],
    machine: Machine,
    peaks: Peaks,
) -> str:
    """The default schedule of an operator at sizes, with the model's figures and reasons."""
    sketch = choose(op, dtypes, sizes, machine)
    schedule = build(op, dtypes, sizes, sketch, machine)
    made = laid_out(op, dtypes, sizes)
    found = groups(made) if made else []
    choices = [sketch.choices.get(g.name, Choice()) for g in found]
    laid = {g.main.tensor: c.layout for g, c in zip(found, choices, strict=True) if c.layout}
    found = [replace(g, layouts=laid) for g in found] if laid else found
    kept = {g.name for g, choice in zip(found, choices, strict=True) if choice.join}
    nests = []
    for group, choice in zip(found, choices, strict=True):
        nests.append(_Nest(group, choice, kept, machine, peaks))
        # What one of several nests in a loop has read lies in a cache when the next one reads it.
        joined = choice.join is not None or any(c.join and c.join[0] == group.name for c in choices)
        kept = kept | _touched(group) if joined else kept
    at = ", ".join(f"{name}={n}" for name, n in sizes.items())
    threads = f"{machine.threads} thread{'s' if machine.threads > 1 else ''}"
    lines = [
        f"{op.name}{f' at {at}' if at else ''}",
        f"on {threads} with vectors of {machine.vector_bytes} bytes, {machine.registers} "
        f"registers, caches of {_bytes(machine.l1)} and {_bytes(machine.l2)}",
    ]
    for nest in nests:
        lines += ["", *nest.lines()]
    lines += ["", f"in all {_seconds(sum(n.expected for n in nests))}", "", "schedule:"]
    steps = [primitive.text for primitive in schedule.primitives]
    lines += [f"  {step}" for step in steps or ["none: the loops as written"]]
    loops = show(schedule.nest(dtypes or {}, sizes)).split("\n")
    return "\n".join([*lines, "", "loops:", *(f"  {line}" for line in loops)])


class _Nest:
    """One loop nest, its choice and its figures."""

    def __init__(
        self, group: Group, choice: Choice, kept: set[str], machine: Machine, peaks: Peaks
    ) -> None:
        """`kept` are tensors that lie in a cache."""
        self.group, self.choice, self.machine = group, choice, machine
        self.operations = operations(group) * group.work
        self.dtype = "f64" if group.sizes[group.main.tensor] == 8 else "f32"
        self.dtype = "i8" if choice.words else self.dtype
        self.threads = machine.threads if choice.outer is not None or choice.join else 1
        lanes = machine.lanes(group.sizes[group.main.tensor]) if choice.vector is None else 1
        self.arithmetic = self.operations * lanes / peaks.arithmetic(self.dtype, self.threads)
        moved = self.moved = sum(
            math.prod(group.shapes[t]) * group.sizes[t] for t in _touched(group) - kept
        )
        self.memory = moved / peaks.bandwidth(moved, machine, self.threads)
        shared = peaks.region if choice.outer is not None else 0.0
        self.expected = max(self.arithmetic, self.memory) + shared

    def lines(self) -> Iterator[str]:
        group, choice = self.group, self.choice
        loops = " x ".join(f"{i} {group.extents[i]}" for i in (*group.outs, *group.reds)) or "once"
        reduced = f", {', '.join(group.reds)} reduced" if group.reds else ""
        yield (
            f"{group.name}: {loops}{reduced}; {_count(self.operations)} operations on "
            f"{_bytes(self.moved)}"
        )
        yield (
            f"  at least {_seconds(max(self.arithmetic, self.memory))}: "
            f"{_seconds(self.arithmetic)} by arithmetic, {_seconds(self.memory)} by memory"
        )
        if choice.join is not None:
            consumer, index = choice.join
            again = "anew for the first rows of a block"
            kept = again if choice.slides else "where nothing of it is needed twice"
            yield f"  computed inside loop {consumer}.{index}, {kept}"
        yield from self._lanes()
        yield from self._tile()
        if choice.blocks:
            blocks = ", ".join(f"{index} by {size}" for index, size in choice.blocks)
            yield f"  blocks for the caches, outermost first: {blocks}"
        if choice.pack:
            yield f"  copied into panels in the order of use: {', '.join(choice.pack)}"
        if choice.layout:
            yield f"  laid out along dimension {choice.layout[-1]}, whose rows fill vectors"
        if choice.beside:
            yield f"  in the same loops, by what they read: {', '.join(choice.beside)}"
        if choice.stream:
            yield "  stored past the caches, which what the kernel touches would pass through"
        yield from self._threads()

    def _lanes(self) -> Iterator[str]:
        """The index that runs in lanes, and how all others would walk."""
        choice, group = self.choice, self.group
        if choice.merge:
            yield f"  {' and '.join(choice.merge)} are one walk through memory, in lanes"
            return
        if choice.vector is None:
            yield "  no lanes: along no index are they cheaper than one element after the other"
        elif choice.vector in group.extents:
            width = f", {choice.vectors} vectors wide" if choice.vectors > 1 else ""
            yield f"  lanes along {choice.vector}{width}: {self._walks(choice.vector)}"
        for index in (*group.outs, *group.reds):
            if index != choice.vector and group.extents[index] > 1:
                yield f"    else along {index}: {self._walks(index)}"

    def _walks(self, index: str) -> str:
        """How accesses move along an index."""
        group = self.group
        written = Access(group.main.tensor, group.main.lhs)
        pairs = [(read, group.stride(read, index)) for read in group.reads]
        if index not in group.reds:
            pairs.append((written, group.store_stride(index)))
        said = [f"{print_expr(access)} {_walk(stride)}" for access, stride in pairs]
        return ", ".join(said) + (", lanes combined at the end" if index in group.reds else "")

    def _tile(self) -> Iterator[str]:
        choice, group = self.choice, self.group
        if not choice.tile:
            return
        if choice.words:
            yield from self._words()
            return
        sides = " x ".join(f"{size} of {index}" for index, size in choice.tile)
        served = {
            print_expr(read): size
            for index, size in choice.tile
            for read in group.reads
            if group.stride(read, index) == 0
        }
        reuse = ", ".join(f"{read} serves {size}" for read, size in served.items())
        yield f"  unrolled {sides}{': ' + reuse if reuse else ''}"
        if self._has_faster_halves():
            yield (
                "  bf16 is multiplied as f32; tensorize takes words of two, about twice as fast, "
                "and subnormal numbers as 0"
            )

    def _has_faster_halves(self) -> bool:
        """Are products of bf16 added up on a machine that does so by words, if it is asked to?"""
        main, kinds = self.group.main, self.group.kinds
        found = factors(main.value, kinds) if main.reducer == "sum" else None
        able = self.machine.matrices or 2 in self.machine.dots
        return able and found is not None and dtype_of(found[0], kinds) is bf16

    def _words(self) -> Iterator[str]:
        choice, found = self.choice, words_of(self.group)
        if found is None:
            return
        unit = "the matrix unit" if self.machine.matrices else "dot products of four"
        wide = choice.vectors * self.machine.lanes(4)
        yield (
            f"  by {unit}, in blocks of {choice.tile[0][1]} {found.rows} by {wide} "
            f"{found.columns}, four bytes along {found.depth} at a time"
        )
        yield f"  copied so that these lie side by side: {found.right.tensor}"

    def _threads(self) -> Iterator[str]:
        choice, machine = self.choice, self.machine
        if choice.join is not None or machine.threads == 1:
            return
        if choice.outer is None:
            yield (
                f"  one thread: less work than {_seconds(WORTH_A_THREAD)}, which another is worth, "
                "or no loop to share"
            )
            return
        chunk = f", blocks of {choice.chunk}" if choice.chunk else ""
        yield f"  {machine.threads} threads share {choice.outer}{chunk}"


def _touched(group: Group) -> set[str]:
    """The tensors that a nest reads and writes."""
    return {group.main.tensor, *(read.tensor for read in group.reads)}


def operations(group: Group) -> int:
    """Additions, multiplications and comparisons of one instance of a nest; a function counts as
    the operations that it takes."""
    count = 1 if group.reds else 0
    for item in walk(group.main.value):
        match item:
            case Call("pow", (_, Const())):
                count += 2
            case Call(name, _):
                count += _WORK.get(str(name), 1)
    return max(count, 1)


def _walk(stride: int | None) -> str:
    if stride is None:
        return "anywhere"
    return {0: "stays", 1: "goes on"}.get(stride, f"jumps by {stride}")


def _count(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"


def _bytes(number: float) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} B"


def _seconds(number: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number * 1e9:.3g} ns"
