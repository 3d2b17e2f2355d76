"""Random expressions, as trees that render as text, at points where they are smooth.

Values are bounded, and what can have a kink keeps away from it by construction: `L` and `R` hold
distinct multiples of 1/4, with 1/8 between those of one and the other, and what is compared,
rounded or chosen by size is an element of them plus at most 1/20.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

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


class Terms:
    """Draws expressions; what they use is counted by name."""

    def __init__(self, seed: int, ranks: dict[str, int]) -> None:
        self.rng = Random(seed)
        self.ranks = ranks  # of the parameters
        self.uses: set[str] = set()
        self.made: dict[str, tuple[int, ...]] = {}  # the extents of tensors defined so far

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
                end = f"{i}+1" if EXTENTS[i] <= EXTENTS[first] else f"{i}//2+1"
                spans[0] = self.rng.choice(
                    [f"{first} in 0:{end}", f"{first} in {i}:{EXTENTS[first]}"]
                )
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
                return self.beyond(name, self.ranks[name], scope)
        return self.element(self.rng.choice(["A", "A", "B", "C", "C"]), scope)

    def element(self, name: str, scope: tuple[str, ...]) -> Tree:
        places = [self.place(scope) for _ in range(self.ranks[name])]
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
