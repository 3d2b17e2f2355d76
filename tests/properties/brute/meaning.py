"""What a statement computes, as tokens: two values are the same exactly if their tokens are.

Operations are uninterpreted, so equal tokens mean the same operations on the same elements. An
accumulation is the multiset of what was combined, for reducers are associative and commutative;
partial results that are combined in turn are merged. `folding.py` says the same of users' own
reducers. Elements that are chosen by data stand for
all they may be: reading one is an operation on the whole row, an update goes to all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from diptych.algo.tensor_expr.affine import is_affine, is_integer
from diptych.algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, accesses
from diptych.algo.tensor_expr.reducers import REDUCERS
from properties.brute.numbers import Point, function

WHOLE = (1 << 61) - 1
Cell = tuple[int, ...]


@dataclass(frozen=True)
class Sum:
    """Everything that a reducer has combined, in any order."""

    reducer: str
    total: int


Product = tuple[int, ...]


@dataclass(frozen=True)
class Chain:
    """What a user's reducer has combined in a component, and in those that it needs."""

    fold: str
    number: int
    products: tuple[tuple[int, Product], ...]


Token = int | Sum | Chain
Read = Callable[[str, Cell], Token]


def key(token: Token) -> int:
    """A token as a number."""
    if isinstance(token, Sum):
        return hash(("sum", token.reducer, token.total))
    return hash(token) if isinstance(token, Chain) else token


def combined(old: Token, new: Token, reducer: str, zero: int) -> Token:
    """An accumulation with one more value; `zero` is the token of the reducer's identity."""

    def total(token: Token) -> int:
        if isinstance(token, Sum) and token.reducer == reducer:
            return token.total
        return 0 if token == zero else hash(("part", key(token)))

    found = (total(old) + total(new)) % WHOLE
    return Sum(reducer, found) if found else zero


def identity(reducer: str, dtype: object) -> int:
    return constant(Const(REDUCERS[reducer].identity(dtype), dtype))  # type: ignore[arg-type]


def constant(const: Const) -> int:
    return hash(("const", repr(const.value), str(const.dtype)))


class Meaning:
    """Values of expressions at one instance; `read` gives elements, `shape` a tensor's extents."""

    def __init__(
        self,
        dims: tuple[str, ...],
        point: Point,
        read: Read,
        shape: Callable[[str], Sequence[int]],
    ) -> None:
        self.dims, self.point, self.read, self.shape = dims, point, read, shape

    def number(self, expr: Expr) -> int:
        return function(expr, self.dims)(self.point)

    def value(self, expr: Expr) -> Token:
        if is_integer(expr):
            return hash(("int", self.number(expr)))
        match expr:
            case Const():
                return constant(expr)
            case Cast(dtype, arg):
                return hash(("cast", str(dtype), key(self.value(arg))))
            case Access():
                return self.access(expr)
            case Call("where", (cond, yes, no)):
                known = self.truth(cond)
                if known is not None:
                    return self.value(yes if known else no)
                parts = (key(self.value(part)) for part in (cond, yes, no))
                return hash(("where", *parts))
            case Call(op, args):
                if is_affine(expr):
                    return hash(("bool", bool(self.number(expr))))
                return hash((op, *(key(self.value(arg)) for arg in args)))
        raise AssertionError(expr)

    def truth(self, cond: Expr) -> bool | None:
        """A condition as far as it follows from the indices; None where data decide."""
        if is_affine(cond):
            return bool(self.number(cond))
        match cond:
            case Call("and" | "or" as op, (a, b)):
                strong = op == "or"
                sides = (self.truth(a), self.truth(b))
                if strong in sides:
                    return strong
                return None if None in sides else not strong
            case Call("not", (a,)):
                known = self.truth(a)
                return None if known is None else not known
        return None

    def access(self, access: Access) -> Token:
        cells = list(self.cells(access.tensor, access.indices))
        if len(cells) == 1 and not any(accesses(part) for part in access.indices):
            return self.read(access.tensor, cells[0])
        chosen = [key(self.value(part)) for part in access.indices if accesses(part)]
        return hash(("one of", *chosen, *(key(self.read(access.tensor, cell)) for cell in cells)))

    def cells(self, tensor: str, indices: Sequence[Expr]) -> Iterator[Cell]:
        """The element of an access; all along the dimensions that data decide."""
        extents = self.shape(tensor)
        return product(
            *(
                range(extent) if accesses(part) else (self.number(part),)
                for part, extent in zip(indices, extents, strict=True)
            )
        )
