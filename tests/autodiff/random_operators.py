"""Random operators over every construct of the language, at points where they are smooth.

An expression is a tree that renders as text; what it uses is counted by name. Values are bounded
and what can have a kink keeps away from it by construction: `L` and `R` hold distinct multiples of
1/4, with 1/8 between those of one and the other, and what is compared, rounded or chosen by size
is an element of them plus at most 1/20. Costs of paths are distinct powers of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from autodiff.random_folds import FOLDS

Array = np.ndarray[Any, Any]
EXTENTS = {"i": 3, "j": 2, "k": 3, "l": 2}
WIDTH = 9  # of every dimension of a parameter: the most that a place can be, and one
PLACES = {
    "plain": ["{}"],
    "shifted": ["{}+1", "8-{}"],
    "strided": ["2*{}", "3*{}+2"],
    "window": ["{}+{}", "2*{}+{}", "2*{}+2*{}"],
    "quotient": ["({}+{})//2", "{}//2+1"],
    "remainder": ["(2*{}+{})%5", "({}+7)%9"],
}
BOUNDARIES = ["edge", "zero", "reflect", "wrap", "fill(0.5)"]
SMOOTH = {
    "tanh": "tanh({})", "sin": "sin({})", "cos": "cos({})", "sigmoid": "sigmoid({})",
    "softplus": "softplus({})", "erf": "erf({})", "neg": "-({})", "exp": "exp(sin({}))",
    "exp2": "exp2(sin({}))", "expm1": "expm1(sin({}))", "sqrt": "sqrt(2 + sin({}))",
    "rsqrt": "rsqrt(2 + sin({}))", "cbrt": "cbrt(2 + sin({}))", "log": "log(2 + sin({}))",
    "log2": "log2(2 + sin({}))", "log1p": "log1p(0.5 * sin({}))", "square": "({})**2",
    "cube": "sin({})**3", "inverse": "(2 + sin({}))**-1", "root power": "(2 + sin({}))**0.5",
    "power 0": "({})**0", "power 1": "({})**1", "cast": "f64({})", "cast f32": "f32({})",
}  # fmt: skip
PAIRS = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "div": "({} / (2 + sin({})))",
    "pow": "(2 + sin({}))**sin({})", "mod": "((50 + sin({})) % (40 + sin({})) - 10)",
    "hypot": "sqrt(1 + ({})**2 + sin({})**2)",
}  # fmt: skip
ROUNDED = {
    "abs": "abs({})", "sign": "sign({})", "floor": "floor({})", "ceil": "ceil({})",
    "floordiv": "({}) // 2", "mod by a number": "({}) % 3", "integer cast": "f64(i64({}))",
    "max with 0": "max({}, 0)", "min with 0": "min({}, 0)",
}  # fmt: skip


@dataclass(eq=False)
class Tree:
    """Text with a gap for each part."""

    text: str
    parts: list[Tree] = field(default_factory=list)

    def __str__(self) -> str:
        return self.text.format(*map(str, self.parts)) if self.parts else self.text

    def walk(self) -> Iterator[Tree]:
        """It and all parts of it, outermost first."""
        yield self
        for part in self.parts:
            yield from part.walk()


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


class Source:
    """Draws operators."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.uses: set[str] = set()
        self.lines: list[Tree] = []
        self.made: dict[str, tuple[int, ...]] = {}  # the extents of tensors defined so far
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
        kind = self.rng.choice(RECURRENCES)
        self.uses.add(kind)
        x, y = self.expr(("i",), 1), self.expr(("i", "j"), 1)
        match kind:
            case "along":
                self.line(f"{name}[0] = {{}}", self.expr((), 1))
                self.line(f"{name}[i] = sin({{}}) * {name}[i-1] + {{}} where i in 1:3",
                          self.expr(("i",), 1), x)  # fmt: skip
            case "backwards":
                self.line(f"{name}[2] = {{}}", self.expr((), 1))
                self.line(f"{name}[i] = tanh({name}[i+1] * B[i]) + {{}} where i in 0:2", x)
            case "second order":
                self.line(f"{name}[i] = {{}} where i in 0:2", self.expr(("i",), 1))
                self.line(f"{name}[i] = 0.5 * {name}[i-1] - B[i] * {name}[i-2] + {{}}"
                          " where i in 2:5", Tree("B[i+1] * {}", [self.expr((), 1)]))  # fmt: skip
            case "cells":
                self.line(f"{name}[0,j] = {{}} where j in 0:2", self.expr(("j",), 1))
                self.line(f"{name}[i,j] = tanh({{}} + sum(A[j,l] * {name}[i-1,l], over=(l in 0:2,"
                          "))) where i in 1:3, j in 0:2", y)  # fmt: skip
            case "from zero":
                self.line(f"{name}[i,j] = sin({{}} + C[i,j] * {name}.zero[i-1,j]) "
                          "where i in 0:3, j in 0:2", y)  # fmt: skip
            case "two tensors":
                self.line(f"{name}c[0,j] = A[j,0] where j in 0:2")
                self.line(f"{name}[0,j] = 0 where j in 0:2")
                self.line(f"{name}c[i,j] = sigmoid({{}}) * {name}c[i-1,j] + {name}[i-1,j]"
                          " where i in 1:3, j in 0:2", y)  # fmt: skip
                self.line(f"{name}[i,j] = B[j] * tanh({name}c[i,j]) where i in 1:3, j in 0:2")
                self.made[f"{name}c"] = (3, 2)
            case "table":
                self.line(f"{name}[0,j] = {{}} where j in 0:2", self.expr(("j",), 1))
                self.line(f"{name}[i,0] = {{}} where i in 1:3", self.expr(("i",), 1))
                self.line(f"{name}[i,j] = 0.5 * {name}[i-1,j] * {name}[i,j-1] - {name}[i-1,j-1]"
                          " + {} where i in 1:3, j in 1:2", y)  # fmt: skip
            case "shortest path":
                at = "0.01 * tanh({})"
                self.line(f"{name}[0,0] = cost[0,0]")
                self.line(f"{name}[0,j] = {name}[0,j-1] + cost[0,j] where j in 1:3")
                self.line(f"{name}[i,0] = {name}[i-1,0] + cost[i,0] + {at} where i in 1:3",
                          self.expr(("i",), 1))  # fmt: skip
                self.line(f"{name}[i,j] = min(min({name}[i-1,j], {name}[i,j-1]), "
                          f"{name}[i-1,j-1]) + cost[i,j] where i in 1:3, j in 1:3")  # fmt: skip
            case "in time":
                self.line(f"{name}[0,i] = {{}} where i in 0:3", x)
                self.line(f"{name}[t,i] = {name}[t-1,i] + 0.3 * ({name}.zero[t-1,i-1] - "
                          f"{name}.zero[t-1,i+1] * B[i]) where t in 1:4, i in 0:3")  # fmt: skip
        shapes = {"along": (3,), "backwards": (3,), "second order": (5,), "shortest path": (3, 3),
                  "in time": (4, 3)}  # fmt: skip
        self.made[name] = shapes.get(kind, (3, 2))

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

    # Expressions

    def expr(self, scope: tuple[str, ...], depth: int) -> Tree:
        """A bounded expression in the indices of `scope`."""
        if depth == 0:
            return self.access(scope)
        inner = depth - 1
        kind = self.rng.choice(
            ["access", "smooth", "smooth", "pair", "pair", "pair", "choice", "rounded", "larger",
             "reduce", "reduce", "reduce"]
        )  # fmt: skip
        match kind:
            case "access":
                return self.access(scope)
            case "smooth":
                name = self.rng.choice(sorted(SMOOTH))
                self.uses.add(name)
                return Tree(SMOOTH[name], [self.expr(scope, inner)])
            case "pair":
                name = self.rng.choice(["mul", *sorted(PAIRS)])
                self.uses.add(name)
                return Tree(PAIRS[name], [self.expr(scope, inner), self.expr(scope, inner)])
            case "rounded":
                name = self.rng.choice(sorted(ROUNDED))
                self.uses.add(name)
                off = Tree("{} + 0.125", [self.anchored(scope, inner)])
                return Tree("0.1 * {} * {}", [Tree(ROUNDED[name], [off]), self.access(scope)])
            case "larger":
                name = self.rng.choice(["max", "min"])
                self.uses.add(f"{name} of two")
                sides = [self.anchored(scope, inner), self.anchored(scope, inner, "R")]
                return Tree(f"0.2 * {name}({{}}, {{}})", sides)
            case "choice":
                self.uses.add("where")
                sides = [self.expr(scope, inner), self.expr(scope, inner)]
                return Tree("where({}, {}, {})", [self.condition(scope), *sides])
        return self.reduced(scope, inner)

    def reduced(self, scope: tuple[str, ...], depth: int) -> Tree:
        """A reduction over one or two further indices, at times under a condition."""
        free = [name for name in "kl" if name not in scope]
        if not free:
            return self.expr(scope, depth)
        bound = tuple(free[: self.rng.choice([1, 1, 2])])
        name = self.rng.choice(["sum", "sum", "sum", "prod", "max", "min"])
        self.uses.add(name)
        spans = [f"{k} in 0:{EXTENTS[k]}" for k in bound]
        where = ""
        if scope and name == "sum" and self.rng.random() < 0.4:
            first = bound[0]
            if self.rng.random() < 0.5:
                self.uses.add("condition of a sum")
                where = f", where={first} {self.rng.choice(['<=', '!=', '<'])} {scope[0]}"
            else:
                self.uses.add("dependent range")
                i = scope[0]
                spans[0] = self.rng.choice([f"{first} in 0:{i}+1", f"{first} in {i}:3"])
        if name in ("max", "min"):
            body: Tree = self.anchored((*scope, *bound), depth, distinct="".join(bound))
            return Tree(f"0.2 * {name}({{}}, over=({', '.join(spans)},))", [body])
        body = self.expr((*scope, *bound), depth)
        if name == "prod":
            body = Tree(self.rng.choice(["(1.2 + sin({}))", "sin({})"]), [body])
        return Tree(f"{name}({{}}, over=({', '.join(spans)},){where})", [body])

    def anchored(
        self, scope: tuple[str, ...], depth: int, grid: str = "L", distinct: str = ""
    ) -> Tree:
        """An element of a grid, another for each value of the indices `distinct`, and little."""
        places = [self.rng.choice(["{}", "{}+1", "2*{}", "8-{}"]).format(k) for k in distinct]
        while len(places) < 2:
            places.append(self.place(scope))
        self.rng.shuffle(places)
        small = self.expr(scope, depth)
        return Tree(f"({grid}[{','.join(places)}] + 0.05 * tanh({{}}))", [small])

    def condition(self, scope: tuple[str, ...]) -> Tree:
        kinds = ["size", "data", "all", "all", *(["index"] * 3 if scope else [])]
        kind = self.rng.choice(kinds)
        self.uses.add(f"condition on {kind}")
        match kind:
            case "index":
                i, j = self.rng.choice(scope), self.rng.choice(scope)
                forms = [f"{i} < 1", f"{i} == 1", f"{i} != {j}", f"{i} + {j} < 2", f"{i} >= {j}",
                         f"({i} < 2) & ({j} > 0)", f"({i} == 0) | ({j} == 1)", f"~({i} < 1)",
                         f"{i} % 2 == 0"]  # fmt: skip
                return Tree(self.rng.choice(forms))
            case "size":
                return Tree("{} < {}", [self.anchored(scope, 1), self.anchored(scope, 0, "R")])
            case "data":
                return Tree("{} > 0", [self.element("A", scope)])
        free = [name for name in "kl" if name not in scope]
        if not free:
            return Tree("{} > 0", [self.element("A", scope)])
        k = free[0]
        name = self.rng.choice(["any", "all", "all"])
        self.uses.add(name)
        inside = self.element("C", (*scope, k))
        return Tree(f"{name}({{}} > -0.1, over=({k} in 0:{EXTENTS[k]},))", [inside])

    def access(self, scope: tuple[str, ...]) -> Tree:
        """An element of a parameter, or of an earlier tensor, wherever it may be."""
        known = [n for n in self.made if not n.endswith("_at")]
        if known and self.rng.random() < 0.45:
            name = self.rng.choice(known)
            self.uses.add("earlier tensor")
            shape = self.made[name]
            if all(any(EXTENTS[i] <= n for i in scope) for n in shape) and self.rng.random() < 0.7:
                fit = [[i for i in scope if EXTENTS[i] <= n] for n in shape]
                return Tree(f"{name}[{','.join(self.rng.choice(each) for each in fit)}]")
            return self.beyond(name, len(shape), scope)
        kind = self.rng.choice(["element"] * 6 + ["gather", "guarded gather", "beyond", "beyond"])
        match kind:
            case "gather":
                self.uses.add(kind)
                i = self.place(scope)
                return Tree(f"A[at[{i}],{self.place(scope)}]" if self.rng.random() < 0.5
                            else f"B[at[{i}]]")  # fmt: skip
            case "guarded gather":
                self.uses.add(kind)
                i = self.place(scope)
                return Tree(f"where(part[{i}] >= 0, B[part[{i}]] * {{}}, 0.3)",
                            [self.element("B", scope)])  # fmt: skip
            case "beyond":
                name = self.rng.choice(["A", "B", "C"])
                return self.beyond(name, self.params[name].ndim, scope)
        return self.element(self.rng.choice(["A", "A", "B", "C", "C"]), scope)

    def element(self, name: str, scope: tuple[str, ...]) -> Tree:
        places = [self.place(scope) for _ in range(self.params[name].ndim)]
        if len(places) == 2 and places[0] == places[1]:
            self.uses.add("diagonal")
        return Tree(f"{name}[{','.join(places)}]")

    def beyond(self, name: str, rank: int, scope: tuple[str, ...]) -> Tree:
        """At times outside of the tensor."""
        kind = self.rng.choice(BOUNDARIES)
        self.uses.add(kind.split("(")[0])
        index = lambda: self.rng.choice(scope) if scope else "0"  # noqa: E731
        forms = ["{}-1", "{}+1", "2*{}-1", "1-{}", "{}"]
        places = [self.rng.choice(forms).format(index()) for _ in range(rank)]
        return Tree(f"{name}.{kind}[{','.join(places)}]")

    def place(self, scope: tuple[str, ...]) -> str:
        """An index expression of at most 8."""
        if not scope:
            return str(self.rng.randrange(WIDTH))
        kind = self.rng.choice(["plain", "plain", *PLACES])
        self.uses.add(kind)
        form = self.rng.choice(PLACES[kind])
        return form.format(*(self.rng.choice(scope) for _ in range(form.count("{}"))))


RECURRENCES = ["along", "backwards", "second order", "cells", "from zero", "two tensors", "table",
               "shortest path", "in time"]  # fmt: skip
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
