"""Several operators as one: the equations of all of them, with names that do not collide.

What one part returns and another takes becomes a tensor of the composed operator, a temporary
unless it is returned. Sizes that meet this way become one size: `K` of a consumer whose input has
the producer's extent `H - 2` is replaced by it, as long as nothing outside binds `K` as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..dtypes import DType, TensorType
from .check import check
from .expr import (
    Access,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    Size,
    indices_of,
    sizes_of,
    substitute,
    transform,
    walk,
)
from .op import Equation, Op, Param


@dataclass(frozen=True, slots=True)
class Part:
    """An operator in its place: the outside names of its arguments and of its results."""

    op: Op
    args: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Composed:
    """`op` takes the outside names `args`, one a parameter, and returns `results`."""

    op: Op
    args: tuple[str, ...]
    results: tuple[str, ...]


def compose(
    parts: Sequence[Part],
    returns: Sequence[str],
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Composed:
    """One operator that does what `parts` do one after the other, and returns `returns`.

    Parts come in an order in which each reads only what is given or an earlier part returned.
    With the `shapes` of outside arrays the operator is made for these alone. Raises `OpError`
    where the ranges of the parts cannot be proved together.
    """
    fixed = {name: [Const(n) for n in shape] for name, shape in (shapes or {}).items()}
    sizes = _Sizes(parts, fixed)
    tensors = _tensor_names(parts, sizes.names())
    taken = {name for names in tensors for name in names.values()} | set(sizes.names())
    equations: list[Equation] = []
    declared_shapes: dict[str, tuple[Expr, ...]] = {}
    inputs: dict[str, _Input] = {}
    made: dict[str, str] = {}
    for position, part in enumerate(parts):
        rename = _Rename(tensors[position], sizes.meaning(position), taken)
        for param, outside in zip(part.op.params, part.args, strict=True):
            if outside not in made:
                declared = fixed.get(outside) or declared_extents(part.op, param)
                dims = [d and rename.expr(d) for d in declared]
                found = inputs.setdefault(outside, _Input(tensors[position][param.name], dims))
                found.merge(param.type.dtype, dims)
        equations += [rename.equation(eq) for eq in part.op.equations]
        for tensor, extents in part.op.shapes.items():
            declared_shapes[tensors[position][tensor]] = tuple(map(rename.expr, extents))
        for name, outside in zip(part.op.returns, part.results, strict=True):
            made[outside] = tensors[position][name]
    locations = tuple(loc for part in parts for loc in part.op.locations)
    op = Op(
        _name(parts),
        tuple(each.param(taken) for each in inputs.values()),
        tuple(equations),
        tuple(made[outside] for outside in returns),
        declared_shapes,
        locations if len(locations) == len(equations) else (),
    )
    check(op)
    return Composed(op, tuple(inputs), tuple(returns))


def _name(parts: Sequence[Part]) -> str:
    names = [part.op.name for part in parts]
    shown = names if len(names) <= 4 else [*names[:3], f"and_{len(names) - 3}_more"]
    return "_".join(shown)


def declared_extents(op: Op, param: Param) -> list[Expr | None]:
    """The extent of each dimension of a parameter as a symbol or a number, None where it is a
    formula over other sizes that `check` finds again by itself."""
    found = check(op).shapes[param.name]
    said = param.type.dims or (None,) * len(found)
    extents: list[Expr | None] = []
    for dim, extent in zip(said, found, strict=True):
        if isinstance(dim, str):
            extents.append(Size(dim))
        elif isinstance(dim, int):
            extents.append(Const(dim))
        else:
            extents.append(extent if isinstance(extent, (Size, Const)) else None)
    return extents


@dataclass(slots=True)
class _Input:
    """A parameter of the composed operator, from all parts that read it."""

    name: str
    dims: list[Expr | None]
    dtype: DType | None = None

    def merge(self, dtype: DType | None, dims: Sequence[Expr | None]) -> None:
        """What another reader says of it."""
        self.dtype = self.dtype or dtype
        self.dims = [a or b for a, b in zip(self.dims, dims, strict=True)]

    def param(self, taken: set[str]) -> Param:
        """The parameter; a dimension of which nothing is said gets a symbol of its own."""
        shown: list[str | int] = []
        for axis, dim in enumerate(self.dims):
            match dim:
                case Size(symbol):
                    shown.append(symbol)
                case Const(value) if type(value) is int:
                    shown.append(value)
                case _:
                    shown.append(_fresh(f"{self.name}_{axis}", taken))
        return Param(self.name, TensorType(self.dtype, tuple(shown)))


def _tensor_names(parts: Sequence[Part], sizes: Iterable[str]) -> list[dict[str, str]]:
    """A name for every tensor of every part; what is one value outside has one name."""
    taken = set(sizes)
    shared: dict[str, str] = {}
    out: list[dict[str, str]] = []
    for part in parts:
        outside = dict(zip((p.name for p in part.op.params), part.args, strict=True))
        outside.update(zip(part.op.returns, part.results, strict=True))
        names: dict[str, str] = {}
        for tensor in check(part.op).shapes:
            value = outside.get(tensor)
            if value is not None and value in shared:
                names[tensor] = shared[value]
                continue
            names[tensor] = _fresh(tensor, taken)
            if value is not None:
                shared[value] = names[tensor]
        out.append(names)
    return out


def _fresh(name: str, taken: set[str]) -> str:
    found, count = name, 2
    while found in taken:
        found, count = f"{name}_{count}", count + 1
    taken.add(found)
    return found


def _symbols(op: Op) -> list[str]:
    """Every size symbol of an op, also those that turn out to be formulas over others."""
    checked = check(op)
    roots = [e for eq in op.equations for e in (*eq.lhs, eq.rhs, *eq.ranges)]
    roots += [eq.where for eq in op.equations if eq.where is not None]
    roots += [e for extents in op.shapes.values() for e in extents]
    said = [d for p in op.params for d in p.type.dims or () if isinstance(d, str)]
    return list(dict.fromkeys([*checked.sizes, *said, *sizes_of(roots)]))


class _Sizes:
    """Which size symbols of the parts are one, and what each becomes.

    A symbol is (position of its part, name). Where an argument's dimension meets a result's, or
    one argument is read twice, the extents on both sides are equal: a union of two symbols, or a
    value for one.
    """

    def __init__(self, parts: Sequence[Part], fixed: Mapping[str, Sequence[Const]]) -> None:
        self._parent: dict[tuple[int, str], tuple[int, str]] = {}
        self._value: dict[tuple[int, str], tuple[int, Expr]] = {}
        self._outside: set[tuple[int, str]] = set()
        known: dict[str, tuple[int, Sequence[Expr | None], bool]] = {}
        for position, part in enumerate(parts):
            checked = check(part.op)
            for symbol in _symbols(part.op):
                self._parent[position, symbol] = (position, symbol)
            for param, outside in zip(part.op.params, part.args, strict=True):
                extents = declared_extents(part.op, param)
                first = fixed.get(outside) or extents
                origin, others, inner = known.setdefault(outside, (position, first, False))
                for extent, other in zip(extents, others, strict=True):
                    if isinstance(extent, Size) and not inner:
                        self._outside.add((position, extent.name))
                    if extent is not None and other is not None:
                        self._meet((origin, other), (position, extent))
            for name, outside in zip(part.op.returns, part.results, strict=True):
                known[outside] = (position, checked.shapes[name], True)
        self._names = self._name_classes()

    def _find(self, symbol: tuple[int, str]) -> tuple[int, str]:
        while self._parent[symbol] != symbol:
            symbol = self._parent[symbol]
        return symbol

    def _meet(self, a: tuple[int, Expr], b: tuple[int, Expr]) -> None:
        """The extents `a`, of an earlier part, and `b` are equal."""
        (at, left), (bt, right) = a, b
        if isinstance(left, Size) and isinstance(right, Size):
            one, two = self._find((at, left.name)), self._find((bt, right.name))
            if one != two:
                self._parent[two] = one
                if two in self._value:
                    self._value.setdefault(one, self._value.pop(two))
        elif isinstance(right, Size):
            root = self._find((bt, right.name))
            if not isinstance(self._value.get(root, (0, None))[1], Const):
                self._value[root] = a
        elif isinstance(left, Size) and isinstance(right, Const):
            self._value[self._find((at, left.name))] = b

    def _name_classes(self) -> dict[tuple[int, str], str]:
        bound = {self._find(symbol) for symbol in self._outside}
        taken: set[str] = set()
        names: dict[tuple[int, str], str] = {}
        for symbol in self._parent:
            root = self._find(symbol)
            value = self._value.get(root)
            if value is not None and not isinstance(value[1], Const) and root in bound:
                del self._value[
                    root
                ]  # an outside array binds it, and the call checks that they agree
                value = None
            if value is None and root not in names:
                names[root] = _fresh(root[1], taken)
        return names

    def names(self) -> list[str]:
        """The symbols of the composed operator."""
        return list(self._names.values())

    def meaning(self, position: int) -> dict[Expr, Expr]:
        """What each size of the part at `position` becomes."""
        return {
            Size(name): self._resolve((at, name)) for at, name in self._parent if at == position
        }

    def _resolve(self, symbol: tuple[int, str]) -> Expr:
        root = self._find(symbol)
        if root not in self._value:
            return Size(self._names[root])
        at, value = self._value[root]
        inner = {s for s in walk(value) if isinstance(s, Size)}
        return substitute(value, {s: self._resolve((at, s.name)) for s in inner})


class _Rename:
    """The renaming of one part: tensors, sizes, and indices that would collide with either."""

    def __init__(
        self, tensors: Mapping[str, str], sizes: Mapping[Expr, Expr], taken: set[str]
    ) -> None:
        self.tensors, self.sizes, self.taken = tensors, sizes, taken

    def expr(self, expr: Expr) -> Expr:
        """A renamed expression without indices of its own that could collide."""
        return self._apply(expr, {})

    def equation(self, eq: Equation) -> Equation:
        """The equation under the new names."""
        roots = [*eq.lhs, eq.rhs, *eq.ranges, *([] if eq.where is None else [eq.where])]
        used = dict.fromkeys(name for root in roots for name in indices_of(root))
        for root in roots:
            for item in walk(root):
                if isinstance(item, Reduce):
                    used.update(dict.fromkeys(item.indices))
                elif isinstance(item, Range):
                    used.setdefault(item.index)
        busy = self.taken | set(used)
        indices = {name: _fresh(name, busy) for name in used if name in self.taken}
        ranges = tuple(self._apply(r, indices) for r in eq.ranges)
        return Equation(
            self.tensors[eq.tensor],
            tuple(self._apply(e, indices) for e in eq.lhs),
            self._apply(eq.rhs, indices),
            ranges,  # type: ignore[arg-type]
            None if eq.where is None else self._apply(eq.where, indices),
            eq.reducer,
        )

    def _apply(self, expr: Expr, indices: Mapping[str, str]) -> Expr:
        def rule(item: Expr) -> Expr:
            match item:
                case Access(tensor, at):
                    return Access(self.tensors[tensor], at)
                case Size():
                    return self.sizes.get(item, item)
                case Index(name):
                    return Index(indices.get(name, name))
                case Range(name, lo, hi):
                    return Range(indices.get(name, name), lo, hi)
                case Reduce(reducer, bound, body, ranges, where, dtype):
                    new = tuple(indices.get(name, name) for name in bound)
                    return Reduce(reducer, new, body, ranges, where, dtype)
            return item

        return transform(expr, rule)
