"""Several operators as one: the equations of all of them, with names that do not collide.

What one part returns and another takes becomes a tensor of the composed operator, a temporary
unless it is returned. Sizes that meet this way become one size: `K` of a consumer whose input has
the producer's extent `H - 2` is replaced by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..dtypes import DType, TensorType
from .affine import normalize
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
from .folds import groups
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
    fixed: dict[str, list[Expr]] = {
        name: [Const(n) for n in shape] for name, shape in (shapes or {}).items()
    }
    sizes = _Sizes(parts, fixed)
    tensors = _tensor_names(parts, sizes.names())
    taken = {name for names in tensors for name in names.values()} | set(sizes.names())
    equations: list[Equation] = []
    declared_shapes: dict[str, tuple[Expr, ...]] = {}
    inputs: dict[str, _Input] = {}
    made: dict[str, str] = {}
    for position, part in enumerate(parts):
        rename = Rename(tensors[position], sizes.meaning(position), taken)
        extents = check(part.op).shapes
        for param, outside in zip(part.op.params, part.args, strict=True):
            if outside not in made:
                dims = fixed.get(outside) or list(map(rename.expr, extents[param.name]))
                found = inputs.setdefault(outside, _Input(tensors[position][param.name], dims))
                found.dtype = found.dtype or param.type.dtype
        for group in groups(part.op.equations):
            equations += rename.equations([part.op.equations[n] for n in group])
        own = {eq.tensor for eq in part.op.equations}
        for tensor, shape in part.op.shapes.items():
            if tensor in own:
                declared_shapes[tensors[position][tensor]] = tuple(map(rename.expr, shape))
        for name, outside in zip(part.op.returns, part.results, strict=True):
            made[outside] = tensors[position][name]
    for each in inputs.values():
        if each.param.type.dims is None:
            declared_shapes[each.name] = tuple(map(normalize, each.dims))
    locations = tuple(loc for part in parts for loc in part.op.locations)
    op = Op(
        _name(parts),
        tuple(each.param for each in inputs.values()),
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


@dataclass(slots=True)
class _Input:
    """A parameter of the composed operator: its extents, and the type that some reader says."""

    name: str
    dims: Sequence[Expr]
    dtype: DType | None = None

    @property
    def param(self) -> Param:
        """The parameter. Extents that are formulas do not fit in a header: then it says none."""
        shown: list[str | int] = []
        for dim in self.dims:
            match dim:
                case Size(symbol):
                    shown.append(symbol)
                case Const(value) if type(value) is int:
                    shown.append(value)
                case _:
                    return Param(self.name, TensorType(self.dtype, None))
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
    roots = [root for eq in op.equations for root in eq.roots]
    roots += [e for extents in op.shapes.values() for e in extents]
    said = [d for p in op.params for d in p.type.dims or () if isinstance(d, str)]
    return list(dict.fromkeys([*checked.sizes, *said, *sizes_of(roots)]))


_Symbol = tuple[int, str]


class _Sizes:
    """Which size symbols of the parts are one, and what each becomes.

    A symbol is (position of its part, name). Where an argument's dimension meets a result's, or
    one argument is read twice, the extents on both sides are equal: a union of two symbols, or a
    value for one.
    """

    def __init__(self, parts: Sequence[Part], fixed: Mapping[str, Sequence[Expr]]) -> None:
        self._parent: dict[_Symbol, _Symbol] = {}
        self._value: dict[_Symbol, tuple[int, Expr]] = {}
        known: dict[str, tuple[int, Sequence[Expr]]] = {}
        for position, part in enumerate(parts):
            shapes = check(part.op).shapes
            for symbol in _symbols(part.op):
                self._parent[position, symbol] = (position, symbol)
            for param, outside in zip(part.op.params, part.args, strict=True):
                extents = shapes[param.name]
                for said, extent in zip(param.type.dims or (), extents, strict=False):
                    if isinstance(said, str):  # which may have turned out to be something else
                        self._meet((position, extent), (position, Size(said)))
                first = fixed.get(outside) or extents
                origin, others = known.setdefault(outside, (position, first))
                for extent, other in zip(extents, others, strict=True):
                    self._meet((origin, other), (position, extent))
            for name, outside in zip(part.op.returns, part.results, strict=True):
                known[outside] = (position, shapes[name])
        taken: set[str] = set()
        roots = dict.fromkeys(self._find(symbol) for symbol in self._parent)
        self._names = {r: _fresh(r[1], taken) for r in roots if r not in self._value}

    def _find(self, symbol: _Symbol) -> _Symbol:
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
                    self._become(one, self._value.pop(two))
        elif isinstance(right, Size):
            self._become(self._find((bt, right.name)), a)
        elif isinstance(left, Size):
            self._become(self._find((at, left.name)), b)

    def _become(self, root: _Symbol, value: tuple[int, Expr]) -> None:
        """Gives a symbol a value, unless it has a constant one or the value depends on it."""
        before = self._value.get(root)
        constant = before is not None and isinstance(before[1], Const)
        if not constant and not self._depends(value, root):
            self._value[root] = value

    def _depends(self, value: tuple[int, Expr], root: _Symbol) -> bool:
        waiting = [value]
        while waiting:
            at, expr = waiting.pop()
            for item in walk(expr):
                if isinstance(item, Size):
                    found = self._find((at, item.name))
                    if found == root:
                        return True
                    if found in self._value:
                        waiting.append(self._value[found])
        return False

    def names(self) -> list[str]:
        """The symbols of the composed operator."""
        return list(self._names.values())

    def meaning(self, position: int) -> dict[Expr, Expr]:
        """What each size of the part at `position` becomes."""
        return {
            Size(name): self._resolve((at, name)) for at, name in self._parent if at == position
        }

    def _resolve(self, symbol: _Symbol) -> Expr:
        root = self._find(symbol)
        if root not in self._value:
            return Size(self._names[root])
        at, value = self._value[root]
        inner = {s for s in walk(value) if isinstance(s, Size)}
        return substitute(value, {s: self._resolve((at, s.name)) for s in inner})


class Rename:
    """The renaming of one part: tensors, sizes, and indices that would collide with either."""

    def __init__(
        self, tensors: Mapping[str, str], sizes: Mapping[Expr, Expr], taken: set[str]
    ) -> None:
        self.tensors, self.sizes, self.taken = tensors, sizes, taken

    def expr(self, expr: Expr) -> Expr:
        """A renamed expression without indices of its own that could collide."""
        return self._apply(expr, {})

    def equations(self, together: Sequence[Equation]) -> list[Equation]:
        """One equation, or those of a joint reduction, under the new names."""
        roots = [root for eq in together for root in eq.roots]
        used = dict.fromkeys(name for root in roots for name in indices_of(root))
        for root in roots:
            for item in walk(root):
                if isinstance(item, Reduce):
                    used.update(dict.fromkeys(item.indices))
                elif isinstance(item, Range):
                    used.setdefault(item.index)
        busy = self.taken | set(used)
        indices = {name: _fresh(name, busy) for name in used if name in self.taken}
        return [self._renamed(eq, indices) for eq in together]

    def _renamed(self, eq: Equation, indices: Mapping[str, str]) -> Equation:
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
                case Access(tensor, at, boundary):
                    return Access(self.tensors[tensor], at, boundary)
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
