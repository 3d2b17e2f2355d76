"""Random systems of tensors of ranks 0, 1 and 2 that need each other, and their values by demand.

A right side is drawn twice, as an operator has it and as Python: `solve` computes each element when
something asks for it, in Python's integers, and knows nothing of loops. Elements that need
themselves raise `Circular`.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from diptych.algo.tensor_expr.components import components

Cell = tuple[int, ...]
SIZES = (1, 2, 3, 4)


class Circular(Exception):
    """An element that needs itself."""


@dataclass(frozen=True)
class Part:
    """An equation for one region of a tensor: where it holds, and its right side, twice."""

    tensor: str
    lhs: tuple[str, ...]
    ranges: dict[str, tuple[str, str]]
    terms: tuple[tuple[str, str], ...]

    @property
    def reads(self) -> set[str]:
        """The tensors that it reads."""
        return {name for _, python in self.terms for name in re.findall(r"at\('(\w+)'", python)}

    @property
    def text(self) -> str:
        held = ", ".join(f"{i} in {lo}:{hi}" for i, (lo, hi) in self.ranges.items())
        rhs = " + ".join(text for text, _ in self.terms)
        return f"{self.tensor}[{','.join(self.lhs)}] = {rhs}{f' where {held}' if held else ''}"


@dataclass(frozen=True)
class System:
    """Equations of a cycle; `ranks` are those of the tensors."""

    ranks: dict[str, int]
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        lines = "".join(f"    {part.text}\n" for part in self.parts)
        return f"f(x: i64[N]) -> {', '.join(self.ranks)}:\n{lines}"


def draw(rng: random.Random) -> System:
    """Two to four tensors that all need each other, of which one at least has no dimensions.

    Terms are added while no element needs itself at a few sizes; a last one may see to it that
    some do.
    """
    while True:
        names = ["s", *rng.sample(["a", "b", "c", "m", "q"], rng.randint(1, 3))]
        ranks = {name: {"s": 0, "q": 0, "m": 2}.get(name, 1) for name in names}
        parts = [part for name in ranks for part in _parts(rng, name)]
        for _ in range(4 * len(parts)):
            longer = _with_term(rng, parts, ranks)
            if all(solvable(System(ranks, tuple(longer)), n) for n in SIZES):
                parts = longer
        if rng.random() < 0.15:
            parts = _with_term(rng, parts, ranks)
        parts.sort(key=lambda part: rng.random())
        parts.sort(key=lambda part: names.index(part.tensor))
        reads = {n: {t for p in parts if p.tensor == n for t in p.reads} for n in names}
        found = components(names, reads)
        if len(found) == 1:
            return System(ranks, tuple(parts))


def solvable(system: System, n: int) -> bool:
    """Does no element need itself at a size?"""
    try:
        solve(system, [1] * n)
    except Circular:
        return False
    return True


def _with_term(rng: random.Random, parts: list[Part], ranks: dict[str, int]) -> list[Part]:
    at = rng.randrange(len(parts))
    part = parts[at]
    terms = (*part.terms, _term(rng, list(part.ranges), ranks))
    return [*parts[:at], replace(part, terms=terms), *parts[at + 1 :]]


def _parts(rng: random.Random, name: str) -> list[Part]:
    indices = rng.sample(["i", "j", "t"], {"s": 0, "q": 0, "m": 2}.get(name, 1))
    whole = dict.fromkeys(indices, ("0", "N"))
    regions: list[tuple[tuple[str, ...], dict[str, tuple[str, str]]]]
    first, *rest = indices or [""]
    inner = {i: whole[i] for i in rest}
    match rng.choice(("whole", "first", "last")) if indices else "whole":
        case "whole":
            regions = [(tuple(indices), whole)]
        case "first":
            regions = [
                (("0", *rest), inner),
                (tuple(indices), {first: ("1", "N"), **inner}),
            ]
        case _:
            regions = [
                (tuple(indices), {first: ("0", "N-1"), **inner}),
                (("N-1", *rest), inner),
            ]
    return [
        Part(name, lhs, ranges, (_access("x", [[*ranges, "0"][0]], 0),)) for lhs, ranges in regions
    ]


def _term(rng: random.Random, indices: list[str], ranks: dict[str, int]) -> tuple[str, str]:
    """A term as an operator has it, and as Python."""
    kind = rng.choice(("read", "read", "where", "sum") if indices else ("read", "sum"))
    tensor = rng.choice(list(ranks))
    if kind == "read":
        return _read(rng, tensor, indices, ranks)
    if kind == "where":
        i = rng.choice(indices)
        test = f"{i} {rng.choice(('==', '<', '>'))} {rng.choice(('0', 'N-1', '1'))}"
        text, python = _read(rng, tensor, indices, ranks)
        if rng.random() < 0.5:
            return f"where({test}, {text}, 0)", f"({python} if {test} else 0)"
        return f"where({test}, 0, {text})", f"(0 if {test} else {python})"
    tests = [f"k {op} {i}" for i in indices for op in ("==", "<", ">")] or ["k >= 0"]
    test = f"({rng.choice(tests)}) & ({rng.choice(('k == N-1', 'k > 0', 'k >= 0', 'k == 0'))})"
    text, python = _read(rng, tensor, [*indices, "k"], ranks)
    body, value = f"{text} * x[k]", f"{python} * at('x', k)"
    python = f"sum(({value}) if {test} else 0 for k in range(N))"
    if rng.random() < 0.5:
        return f"sum({body}, where={test}, over=k in 0:N)", python
    return f"sum(where({test}, {body}, 0), over=k in 0:N)", python


def _read(
    rng: random.Random, tensor: str, indices: list[str], ranks: dict[str, int]
) -> tuple[str, str]:
    places = [
        rng.choice(
            [*indices, *(f"{i}-1" for i in indices), *(f"{i}+1" for i in indices), "0", "N-1"]
        )
        for _ in range(ranks[tensor])
    ]
    return _access(tensor, places, rng.randint(2, 5))


def _access(tensor: str, places: list[str], factor: int) -> tuple[str, str]:
    total = ".zero" if any(p[1:] and p != "N-1" for p in places) else ""
    text = f"{tensor}{total}[{','.join(places)}]"
    python = f"at('{tensor}', {', '.join(places)})"
    return (f"{factor} * {text}", f"{factor} * {python}") if factor else (text, python)


def solve(system: System, x: list[int]) -> dict[str, np.ndarray]:
    """The tensors by recursion from element to element."""
    n = len(x)
    known: dict[tuple[str, Cell], int | None] = {("x", (i,)): value for i, value in enumerate(x)}
    rules: dict[tuple[str, Cell], Callable[[], int]] = {}

    def at(tensor: str, *cell: int) -> int:
        if not all(0 <= i < n for i in cell):
            return 0
        if (tensor, cell) not in known:
            known[tensor, cell] = None
            known[tensor, cell] = rules[tensor, cell]()
        value = known[tensor, cell]
        if value is None:
            raise Circular(f"{tensor}{list(cell)}")
        return value

    for part in system.parts:
        code = compile(" + ".join(python for _, python in part.terms), part.text, "eval")
        boxes: list[dict[str, int]] = [{}]
        for i, (lo, hi) in part.ranges.items():
            ends = range(eval(lo, {"N": n}), eval(hi, {"N": n}))
            boxes = [{**box, i: value} for box in boxes for value in ends]
        for box in boxes:
            here = {"at": at, "N": n, **box}
            cell = tuple(eval(e, {"N": n, **box}) for e in part.lhs)
            rules[part.tensor, cell] = lambda code=code, here=here: eval(code, here)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))
    out = {}
    for name, rank in system.ranks.items():
        cells = np.ndindex((n,) * rank)
        values = [(at(name, *cell) + 2**63) % 2**64 - 2**63 for cell in cells]
        out[name] = np.array(values, np.int64).reshape((n,) * rank)
    return out
