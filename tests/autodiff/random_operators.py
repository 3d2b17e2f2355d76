"""Random operators over every construct of the language, at points where they are smooth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from autodiff.random_folds import FOLDS
from autodiff.random_recurrences import RECURRENCES
from autodiff.random_terms import (
    BOUNDARIES,
    EXTENTS,
    PAIRS,
    PLACES,
    ROUNDED,
    SMOOTH,
    WIDTH,
    Terms,
    Tree,
)

Array = np.ndarray[Any, Any]


@dataclass
class Case:
    """An operator as lines of trees, the arrays of its parameters, and what it uses."""

    lines: list[Tree]
    returns: list[str]
    params: dict[str, Array]
    uses: set[str]

    @property
    def text(self) -> str:
        """The operator's text, with those parameters that it reads."""
        body = "\n".join(f"    {line}" for line in self.lines)
        params = [f"{n}: [{', '.join(map(str, a.shape))}]" for n, a in self.read(body).items()]
        return f"f({', '.join(params)}) -> {', '.join(self.returns)}:\n{body}"

    @property
    def arrays(self) -> list[Array]:
        """The arguments."""
        return list(self.read("\n".join(map(str, self.lines))).values())

    def read(self, body: str) -> dict[str, Array]:
        """The parameters that the lines name."""
        found = {n: a for n, a in self.params.items() if f"{n}[" in body or f"{n}." in body}
        return found or {"A": self.params["A"]}


class Source(Terms):
    """Draws operators."""

    def __init__(self, seed: int) -> None:
        self.numbers = np.random.default_rng(seed)
        self.lines: list[Tree] = []
        self.hidden: set[str] = set()  # temporaries that are indices
        self.params: dict[str, Array] = {
            "A": self.values(WIDTH, WIDTH),
            "B": self.values(WIDTH),
            "C": self.values(WIDTH, WIDTH),
            "L": self.grid(WIDTH, WIDTH) / 4,
            "R": self.grid(WIDTH, WIDTH) / 4 + 1 / 8,
            "at": self.numbers.integers(0, WIDTH, WIDTH),
            "part": self.numbers.integers(-2, WIDTH, WIDTH),  # out of range at times
            "bins": self.numbers.permutation(np.array([0, 1, 2, 0, 2, 1])).reshape(3, 2),
            "some": self.numbers.integers(-2, 5, (3, 2)),
            "cost": self.numbers.permutation(0.2 * 2.0 ** np.arange(9)).reshape(3, 3),
        }
        super().__init__(seed, {name: array.ndim for name, array in self.params.items()})

    def values(self, *shape: int) -> Array:
        """Numbers that are not near 0."""
        signs = self.numbers.choice([-1.0, 1.0], shape)
        return np.asarray(signs * self.numbers.uniform(0.3, 1.3, shape))

    def grid(self, *shape: int) -> Array:
        """Distinct whole numbers, 0 not in the middle only."""
        size = int(np.prod(shape))
        return np.asarray(self.numbers.permutation(size).reshape(shape) - size // 2, float)

    def draw(self) -> Case:
        """An operator of one to three definitions; all but hidden ones may be returned."""
        for name in "TUV"[: self.rng.choice([1, 1, 2, 2, 3])]:
            self.rng.choice(DEFINITIONS)(self, name)
        known = [n for n in self.made if n not in self.hidden]
        kept = [n for n in known[:-1] if self.rng.random() < 0.4] + known[-1:]
        if len(kept) > 1:
            self.uses.add("several results")
        if len(self.made) > len(kept):
            self.uses.add("temporary")
        return Case(self.lines, kept, self.params, self.uses)

    # Definitions: what may stand for a tensor.

    def line(self, text: str, *parts: Tree) -> None:
        self.lines.append(Tree(text, list(parts)))

    def plain(self, name: str) -> None:
        """Everything at once, over one or two indices."""
        left = ("i", "j")[: self.rng.randint(1, 2)]
        ranges = ", ".join(f"{i} in 0:{EXTENTS[i]}" for i in left)
        self.line(
            f"{name}[{','.join(left)}] = {{}} where {ranges}",
            self.expr(left, self.rng.choice([1, 2, 2, 3])),
        )
        self.made[name] = tuple(EXTENTS[i] for i in left)

    def pieces(self, name: str) -> None:
        """Two equations on two regions, one of them at times a single row."""
        self.uses.add("regions")
        cut = self.rng.choice([1, 2])
        self.line(f"{name}[i,j] = {{}} where i in 0:{cut}, j in 0:2", self.expr(("i", "j"), 1))
        self.line(f"{name}[i,j] = {{}} where i in {cut}:3, j in 0:2", self.expr(("i", "j"), 2))
        self.made[name] = (3, 2)

    def scatter(self, name: str) -> None:
        """Into bins that data say, by each way to accumulate; `bins` has every bin."""
        by = self.rng.choice(["+=", "+=", "*=", "max=", "min="])
        self.uses.add(f"scatter {by}")
        value, ranges = self.expr(("i", "j"), 2), "i in 0:3, j in 0:2"
        self.line(f"{name}: [3]")
        if by == "+=" and self.rng.random() < 0.5:
            self.uses.add("guarded scatter")
            guard = "some[i,j] >= 0, some[i,j] < 3"
            self.line(f"{name}[some[i,j]] += {{}} where {ranges}, {guard}", value)
        elif by == "+=":
            self.line(f"{name}[bins[i,j]] += {{}} where {ranges}", value)
        elif by == "*=":
            self.line(f"{name}[bins[i,j]] *= 1 + 0.3 * sin({{}}) where {ranges}", value)
        else:
            value = self.anchored(("i", "j"), 2, distinct="ij")
            self.line(f"{name}[bins[i,j]] {by} 0.2 * {{}} where {ranges}", value)
        self.made[name] = (3,)

    def extreme(self, name: str) -> None:
        """The place of an extreme, and what is read there."""
        which = self.rng.choice(["argmax", "argmin"])
        self.uses.add(which)
        place = f"{name}_at"
        self.line(f"{place}[i] = {which}({{}}, over=(k in 0:3,)) where i in 0:3",
                  self.anchored(("i", "k"), 1, distinct="k"))  # fmt: skip
        self.line(f"{name}[i,j] = A[{place}[i],j] * {{}} where i in 0:3, j in 0:2",
                  self.expr(("i", "j"), 1))  # fmt: skip
        self.made[place] = (3,)
        self.hidden.add(place)
        self.made[name] = (3, 2)

    def recurrence(self, name: str) -> None:
        self.uses.add("recurrence")
        kind = self.rng.choice(list(RECURRENCES))
        self.uses.add(kind)
        extents, lines = RECURRENCES[kind]
        drawn = {"x": self.expr(("i",), 1), "y": self.expr(("i", "j"), 1)}
        for text, gaps in lines:
            parts = [drawn[gap] if gap in drawn else self.expr(tuple(gap), 1) for gap in gaps]
            self.line(text.replace("@", name), *parts)
        for tensor, shape in extents.items():
            self.made[tensor.replace("@", name)] = shape

    def fold(self, name: str) -> None:
        """A reduction by a reducer of its own, of several components, at times with a condition."""
        kind = self.rng.choice(sorted(FOLDS))
        self.uses |= {"fold", kind}
        definitions, parts, hidden = FOLDS[kind]
        left = ("i", "j")[: self.rng.randint(1, 2)]
        at, inside = ",".join(left), (*left, "k")
        for text in definitions:
            self.line(text.replace("fold", f"fold{name}"))
        tensors = [*(f"{name}{n}" for n in range(len(parts) - 1)), name]
        args = [self.given(part, inside) for part in parts]
        where = ", where=k <= i" if self.rng.random() < 0.4 else ""
        ranges = ", ".join(f"{i} in 0:{EXTENTS[i]}" for i in left)
        lhs, gaps = ", ".join(f"{t}[{at}]" for t in tensors), ", ".join(["{}"] * len(args))
        over = f"over=(k in 0:3,){where}"
        self.line(f"{lhs} = fold{name}({gaps}, {over}) where {ranges}", *args)
        for tensor in tensors:
            self.made[tensor] = tuple(EXTENTS[i] for i in left)
        self.hidden |= set(tensors[:hidden])

    def given(self, part: str, scope: tuple[str, ...]) -> Tree:
        """What a reducer's component is given: `FOLDS` says what kind."""
        if part == "any":
            return self.expr(scope, 1)
        if part == "distinct":
            return Tree("0.2 * {}", [self.anchored(scope, 1, distinct="k")])
        return Tree(part)


DEFINITIONS: list[Callable[[Source, str], None]] = [
    *[Source.plain] * 7, *[Source.recurrence] * 4, *[Source.scatter] * 2,
    *[Source.fold] * 2, Source.pieces, Source.extreme,
]  # fmt: skip
EVERY = {
    *PLACES, *(b.split("(")[0] for b in BOUNDARIES), *SMOOTH, *PAIRS, *ROUNDED, *RECURRENCES,
    *FOLDS, "fold",
    "sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "where", "max of two",
    "min of two", "gather", "guarded gather", "scatter +=", "scatter *=", "scatter max=",
    "scatter min=", "guarded scatter", "regions", "several results", "temporary", "diagonal",
    "earlier tensor", "condition of a sum", "dependent range", "condition on index",
    "condition on size", "condition on data", "condition on all", "recurrence",
}  # fmt: skip


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The case with as many parts as possible replaced by a number, so that it still fails."""
    again = True
    while again:
        again = False
        for tree in [t for line in case.lines for part in line.parts for t in part.walk()]:
            text, parts = tree.text, tree.parts
            if text == "0.5":
                continue
            tree.text, tree.parts = "0.5", []
            if fails(case):
                again = True
            else:
                tree.text, tree.parts = text, parts
    return case
