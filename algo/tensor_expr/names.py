"""What a bare name in operator text means: an index, a size, or a tensor of rank 0.

In this order:

1. what a header, a shape line or a `size` or `index` line declares;
2. an index, if it stands alone on the left, in `over`, or has a range, or is all of an index
   position (`x[i]`);
3. a tensor of rank 0 (defined, listed in the header, or somewhere read as `lr[]`);
4. a size, if it stands in the bound of a range or in a `where` condition;
5. the implied size of an index (`K` where k is an index) or dimension (`A_0`);
6. an index, if it stands anywhere in an index position (`x[i + k]`);
7. a parameter of rank 0, where no header lists the parameters.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace

from ..dtypes import BY_NAME
from ..errors import OpError
from ..location import Loc
from .binding import OPEN
from .expr import Access, Boundary, Expr, Index, Range, Reduce, Size, substitute, walk
from .lexer import Token, fail
from .operations import FUNCTIONS
from .reducers import NAMES
from .surface import Draft

CONSTANTS: dict[str, bool | float] = {
    "True": True, "False": False, "inf": float("inf"), "nan": float("nan"),
}  # fmt: skip

_FUNCTIONS = frozenset((*FUNCTIONS, *NAMES, *BY_NAME))


@dataclass(slots=True)
class _Scope:
    """What one equation says of its names, and where they first stand."""

    certain: dict[str, None] = field(default_factory=dict)
    whole: dict[str, None] = field(default_factory=dict)
    inside: dict[str, None] = field(default_factory=dict)
    bounds: dict[str, None] = field(default_factory=dict)
    bare: dict[str, Loc] = field(default_factory=dict)
    spots: dict[str, Loc] = field(default_factory=dict)

    def add(self, other: _Scope) -> None:
        """What another scope says too, where this one says nothing yet."""
        for own in fields(self):
            mine, more = getattr(self, own.name), getattr(other, own.name)
            mine.update({name: said for name, said in more.items() if name not in mine})


@dataclass(frozen=True, slots=True)
class _Let:
    """What a name stands for, and what its line said of the names in it."""

    name: Token
    value: Expr
    scope: _Scope


class Equations:
    """Collects the equations of one operator; names are resolved when all have been read.

    `tensors` holds the rank of every tensor, None while only the header has named it.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, int | None] = {}
        self.sizes: dict[str, None] = {}
        self.indices: dict[str, None] = {}
        self.shapes: dict[str, tuple[Expr, ...]] = {}
        self.listed = False  # by a header
        self._drafts: list[tuple[Draft, _Scope]] = []
        self._lets: dict[str, _Let] = {}
        self._scope = _Scope()

    @property
    def spots(self) -> dict[str, Loc]:
        """Where each name of the current equation first stands."""
        return self._scope.spots

    def begin(self) -> None:
        """A new equation."""
        self._scope = _Scope()

    def end(self, draft: Draft) -> None:
        """The equation is complete."""
        self._drafts.append((draft, self._scope))

    def let(self, name: Token, value: Expr) -> None:
        """The name stands for `value`, whose names mean what they do where it is used."""
        if name.text in self._lets:
            raise fail(f"{name.text} is defined by two let lines; rename one", name.loc)
        self._lets[name.text] = _Let(name, value, self._scope)

    def declare(self, tensor: str, dims: tuple[Expr, ...]) -> None:
        """A shape line; every name in it is a size."""
        names = {item.name: item for dim in dims for item in walk(dim) if isinstance(item, Index)}
        self.sizes.update(dict.fromkeys(names))
        to_sizes: dict[Expr, Expr] = {item: Size(name) for name, item in names.items()}
        self.shapes[tensor] = tuple(substitute(dim, to_sizes) for dim in dims)

    def spot(self, token: Token) -> None:
        """Remembers where a name stands."""
        self._scope.spots.setdefault(token.text, token.loc)

    def index(self, token: Token) -> None:
        """The token names an index for certain."""
        self.spot(token)
        self._scope.certain.setdefault(token.text)

    def bare(self, token: Token) -> Expr:
        """A name that stands alone; if no `let` line says what for, it passes for an index."""
        self.spot(token)
        if token.text in self._lets:
            let = self._lets[token.text]
            self._scope.add(let.scope)
            return let.value
        self._scope.bare.setdefault(token.text, token.loc)
        return Index(token.text)

    def on_left(self, lhs: Sequence[Expr]) -> None:
        """The left side; the names that stand alone in it are indices."""
        self.position(lhs)
        self._scope.certain.update(dict.fromkeys(e.name for e in lhs if isinstance(e, Index)))

    def access(
        self, token: Token, indices: tuple[Expr, ...], boundary: Boundary | None = None
    ) -> Expr:
        """`tensor[indices]`."""
        self.spot(token)
        self._scope.spots.setdefault(f"{token.text}[{len(indices)}]", token.loc)
        if self.tensors.get(token.text) is None:
            self.tensors[token.text] = len(indices)
        self.position(indices)
        return Access(token.text, indices, boundary)

    def position(self, exprs: Iterable[Expr]) -> None:
        """Expressions in index positions."""
        for expr in exprs:
            for item in walk(expr):
                if isinstance(item, Index):
                    self._scope.inside.setdefault(item.name)
                    if item is expr:
                        self._scope.whole.setdefault(item.name)

    def bounds(self, exprs: Iterable[Expr]) -> None:
        """The bounds of a range, or a `where` condition."""
        for expr in exprs:
            for item in walk(expr):
                if isinstance(item, Index):
                    self._scope.bounds.setdefault(item.name)

    def resolve(self) -> list[Draft]:
        """The equations, in which `Index` now means an index."""
        indices = {name for _, scope in self._drafts for name in (*scope.certain, *scope.inside)}
        for name, let in self._lets.items():
            for what, names in ("tensor", self.tensors), ("size", self.sizes), ("index", indices):
                if name in names:
                    article = "an" if what == "index" else "a"
                    raise fail(
                        f"{name} stands for an expression here and is {article} {what} elsewhere; "
                        f"rename one",
                        let.name.loc,
                    )
        bounded, implied = self._sizes_by_use()
        return [self._resolved(draft, scope, bounded, implied) for draft, scope in self._drafts]

    def _sizes_by_use(self) -> tuple[set[str], set[str]]:
        """Sizes known from the bounds of ranges, and those implied by the names of indices."""
        bounded = {
            name
            for _, scope in self._drafts
            for name in scope.bounds
            if name not in scope.certain and name not in scope.whole and name not in self.indices
        }
        every = {
            name
            for _, scope in self._drafts
            for name in (*scope.certain, *scope.inside)
            if name not in self.sizes and name not in bounded
        }
        return bounded, {name.upper() for name in every if name.upper() != name}

    def _resolved(self, draft: Draft, scope: _Scope, bounded: set[str], implied: set[str]) -> Draft:
        values: dict[Expr, Expr] = {}
        for name in scope.certain:
            if name in self.sizes:
                raise fail(
                    f"{name} is an index here and a size elsewhere; rename one",
                    scope.spots[name],
                    OpError,
                )
        for name, loc in scope.bare.items():
            meaning = self.meaning(name, scope, bounded, implied)
            if meaning is None:
                raise fail(self._unknown(name, scope), loc)
            values[Index(name)] = meaning
        ranges: list[Range] = []
        for r in draft.ranges:
            fresh = substitute(r, values)
            assert isinstance(fresh, Range)
            ranges.append(fresh)
        return replace(
            draft,
            lhs=tuple(substitute(e, values) for e in draft.lhs),
            rhs=substitute(draft.rhs, values),
            ranges=tuple(ranges),
            conditions=tuple(substitute(e, values) for e in draft.conditions),
        )

    def meaning(
        self, name: str, scope: _Scope, bounded: set[str], implied: set[str]
    ) -> Expr | None:
        """What `name` is in the equation of `scope`, by the rules of this module."""
        if name in self.sizes:
            return Size(name)
        if name in self.indices or name in scope.certain or name in scope.whole:
            return Index(name)
        if name in self.tensors:
            return None if self.tensors[name] else Access(name, ())
        if name in bounded or name in implied or self._names_dimension(name):
            return Size(name)
        if name in scope.inside:
            return Index(name)
        return None if self.listed or name in _FUNCTIONS else Access(name, ())

    def _names_dimension(self, name: str) -> bool:
        tensor, _, dim = name.rpartition("_")
        return tensor in self.tensors and dim.isdigit()

    def _unknown(self, name: str, scope: _Scope) -> str:
        rank = self.tensors.get(name)
        if rank:
            plural = "index" if rank == 1 else "indices"
            return f"{name} is read without its {rank} {plural}; write {name}[...]"
        if name in _FUNCTIONS:
            return f"{name} is a function; write {name}(...)"
        known = [*scope.certain, *scope.inside, *self.sizes, *self.tensors]
        hint = suggestion(name, known) or (
            f"; list it in the header, or if it is a size add a line: size {name}"
        )
        return f"unknown name '{name}', which is no index, size or scalar here{hint}"


@dataclass(frozen=True, slots=True)
class Written:
    """An equation in the form in which it is printed: open where `over=` is not printed."""

    tensor: str
    lhs: tuple[Expr, ...]
    rhs: Expr
    ranges: tuple[Range, ...]
    conditions: tuple[Expr, ...]


def undeclared(
    equations: Sequence[Written], tensors: dict[str, int | None], sizes: Iterable[str]
) -> tuple[list[str], list[str]]:
    """The sizes and the indices that `size` and `index` lines must declare, because the rules
    above would take them for something else. `tensors` and `sizes` are known otherwise."""
    names = Equations()
    names.tensors.update(tensors)
    names.sizes.update(dict.fromkeys(sizes))
    for eq in equations:
        names.begin()
        names.on_left([_bared(e) for e in eq.lhs])
        for expr in (eq.rhs, *eq.ranges, *eq.conditions):
            for item in walk(expr):
                if isinstance(item, Access):
                    names.position(_bared(e) for e in item.indices)
                elif isinstance(item, Range):
                    names._scope.certain.setdefault(item.index)
                    names.bounds((_bared(item.lo), _bared(item.hi)))
                elif isinstance(item, Reduce):
                    if item.indices != OPEN:
                        names._scope.certain.update(dict.fromkeys(item.indices))
                    if item.where is not None:
                        names.bounds((_bared(item.where),))
        names.bounds(map(_bared, eq.conditions))
        names.end(Draft(eq.tensor, eq.lhs, eq.rhs, eq.ranges, eq.conditions, None, Loc("", 0)))
    bounded, implied = names._sizes_by_use()
    wrong: dict[Expr, None] = {}
    for eq, (_, scope) in zip(equations, names._drafts, strict=True):
        for expr in (*eq.lhs, eq.rhs, *eq.ranges, *eq.conditions):
            for item in walk(expr):
                if isinstance(item, Index | Size):
                    meant = names.meaning(item.name, scope, bounded, implied)
                    if meant is not item:
                        wrong.setdefault(item)
    return (
        [item.name for item in wrong if isinstance(item, Size)],
        [item.name for item in wrong if isinstance(item, Index)],
    )


def _bared(expr: Expr) -> Expr:
    """`expr` as the parser first sees it: a size is a name like any other."""
    sizes = [item for item in walk(expr) if isinstance(item, Size)]
    return substitute(expr, {item: Index(item.name) for item in sizes}) if sizes else expr


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """`; did you mean ...?` for the known word nearest to `word`, if one is near."""
    close = difflib.get_close_matches(word, [k for k in known if k != word], n=1)
    return f"; did you mean '{close[0]}'?" if close else None
