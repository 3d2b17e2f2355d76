"""Extents as formulas over size symbols: their names, and which of them are the same.

Each dimension of an input has an extent: an annotated name or number, or a symbol of its own.
Dimensions over which one bare index runs share their extent. Extents of other tensors are formulas
that range inference finds; where a bare index runs over such a tensor and an input, the input's
symbol becomes that formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..errors import OpError
from . import affine
from .bounds import stays_inside
from .components import tensor_cycles
from .expr import (
    Access,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    Size,
    accesses,
    indices_of,
    sizes_in,
    sizes_of,
    substitute,
    walk,
)
from .located import failure
from .op import Equation, Op, SizeRule
from .printer import print_expr
from .uses import Use

Dim = tuple[str, int]


class Extents:
    """The extents known so far. `resolve` brings any expression up to date."""

    def __init__(
        self,
        op: Op,
        uses: Sequence[Sequence[Use]],
        given: Sequence[Mapping[str, Range]],
        origins: Sequence[Mapping[str, str]],
    ) -> None:
        self.ranks = _ranks(op)
        self._values: dict[Expr, Expr] = {}
        self._given = {
            d for p in op.params for d in p.type.dims or () if isinstance(d, str)
        }  # symbols that the user named
        self.dims: dict[Dim, Expr] = {}
        self.index_of: dict[Dim, str] = {}
        self._declare(op, _classes(op, uses, given, self.ranks), uses, origins)
        for shape in op.shapes.values():
            self.check_known(shape)
        for tensor, shape in op.shapes.items():
            self.define(tensor, shape)

    def resolve(self, expr: Expr) -> Expr:
        """The expression with every symbol that turned out to be another extent replaced."""
        values = self._values
        if not any(size in values for size in sizes_in(expr)):
            return expr
        return substitute(expr, values)

    def extent(self, tensor: str, dim: int) -> Expr | None:
        """The extent of a dimension, None while it is not known."""
        found = self.dims.get((tensor, dim))
        return None if found is None else self.resolve(found)

    def check_known(self, exprs: Iterable[Expr]) -> None:
        """Every size in the expressions must be the extent of an input dimension."""
        known = {s for e in self.dims.values() for s in sizes_of([self.resolve(e)])}
        for name in sizes_of(map(self.resolve, exprs)):
            if name not in known:
                raise OpError(
                    f"size {name} is the extent of no input dimension; annotate an input with it"
                )

    def define(self, tensor: str, shape: Iterable[Expr]) -> None:
        """Records the extents of a tensor that is not an input."""
        for dim, extent in enumerate(shape):
            self.dims[tensor, dim] = affine.normalize(self.resolve(extent))

    def unify(self, a: Expr, b: Expr, parts: bool = False) -> bool:
        """Makes two extents the same if a symbol can become the other; else they intersect. Where
        what is read may be `parts` of them, a size that the user named becomes no formula."""
        a, b = self.resolve(a), self.resolve(b)
        if a is b:
            return True
        for old, new in ((b, a), (a, b)):
            if not isinstance(old, Size) or old.name in sizes_of([new]):
                continue
            if parts and old.name in self._given and not isinstance(new, Size):
                continue
            if isinstance(new, Size) and old.name in self._given and new.name not in self._given:
                continue  # keep the name that the user gave
            step: dict[Expr, Expr] = {old: new}
            self._values = {k: substitute(v, step) for k, v in self._values.items()} | step
            return True
        return False

    def rules(self, op: Op) -> tuple[SizeRule, ...]:
        """What the shapes of the inputs must satisfy."""
        return tuple(
            SizeRule(
                p.name,
                d,
                affine.normalize(self.resolve(self.dims[p.name, d])),
                self.index_of.get((p.name, d)),
            )
            for p in op.params
            for d in range(self.ranks.get(p.name, 0))
        )

    def _declare(
        self,
        op: Op,
        classes: dict[Dim, Dim],
        uses: Sequence[Sequence[Use]],
        origins: Sequence[Mapping[str, str]],
    ) -> None:
        symbol: dict[Dim, Expr] = {}
        aliases: dict[Expr, Dim] = {}
        for param in op.params:
            for d, said in enumerate(param.type.dims or ()):
                root = classes[param.name, d]
                value: Expr = Const(said) if isinstance(said, int) else Size(said)
                if isinstance(value, Size):
                    aliases[value] = root
                if isinstance(value, Const):
                    symbol[root] = value
                symbol.setdefault(root, value)
        taken = {e.name for e in symbol.values() if isinstance(e, Size)} | self._given
        taken |= {p.name for p in op.params} | {eq.tensor for eq in op.equations}
        indices = {i for here in uses for u in here for i in indices_of(u.expr)}
        for name in sorted(indices & self._given):
            raise OpError(f"{name} is both an index and a size; rename one")
        taken |= indices
        ends = _ends(op)
        for here, original in zip(uses, origins, strict=True):
            for use in here:
                at = (use.tensor, use.dim)
                if at not in classes or not isinstance(use.expr, Index):
                    continue
                end = ends.get(original.get(use.expr.name, use.expr.name))
                if end is not None and classes[at] not in symbol and end not in aliases:
                    symbol[classes[at]] = end
                    taken.add(end.name)
                name = original.get(use.expr.name, use.expr.name)
                self.index_of.setdefault(at, name)
                if classes[at] not in symbol and name.upper() not in taken:
                    symbol[classes[at]] = Size(name.upper())
                    taken.add(name.upper())
        for param in op.params:
            for d in range(self.ranks.get(param.name, 0)):
                root = classes[param.name, d]
                implied = Size(f"{param.name}_{d}")
                self.dims[param.name, d] = symbol.setdefault(root, implied)
                if implied.name not in self._given:
                    aliases[implied] = root
        self._values = {a: symbol[r] for a, r in aliases.items() if symbol[r] is not a}


def _ends(op: Op) -> dict[str, Size]:
    """The size at which the given range of an index ends: `i in 1:N` names what i runs over."""
    given = [r for eq in op.equations for r in eq.ranges]
    for eq in op.equations:
        given += [r for e in walk(eq.rhs) if isinstance(e, Reduce) for r in e.ranges]
    ends: dict[str, Size] = {}
    for r in given:
        if isinstance(r.hi, Size):
            ends.setdefault(r.index, r.hi)
    return ends


def _ranks(op: Op) -> dict[str, int]:
    """The rank of every tensor whose rank is known; uses that disagree are errors."""
    ranks = {p.name: len(p.type.dims) for p in op.params if p.type.dims is not None}
    for tensor, shape in op.shapes.items():
        ranks[tensor] = len(shape)
    used: list[tuple[int, Access]] = []
    for n, eq in enumerate(op.equations):
        used.append((n, Access(eq.tensor, eq.lhs)))
    for n, eq in enumerate(op.equations):
        used += [(n, access) for root in eq.roots for access in accesses(root)]
    for n, access in used:
        rank = len(access.indices)
        known = ranks.setdefault(access.tensor, rank)
        if known != rank:
            raise failure(
                op,
                n,
                f"{print_expr(access)} has {rank} {'index' if rank == 1 else 'indices'}, but "
                f"{access.tensor} has {known} {'dimension' if known == 1 else 'dimensions'}",
            )
    return ranks


def _classes(
    op: Op,
    uses: Sequence[Sequence[Use]],
    given: Sequence[Mapping[str, Range]],
    ranks: Mapping[str, int],
) -> dict[Dim, Dim]:
    """For every dimension of an input, a representative of those that share its extent. An index
    with a `given` range may run over a part of what the user named, so it makes no number of it,
    and ties nothing that the range and conditions keep it inside of.

    A tensor of several equations, or one that reads itself, ties the equations together: its
    dimension counts too where whole indices run over it everywhere.
    """
    parent = {(p.name, d): (p.name, d) for p in op.params for d in range(ranks.get(p.name, 0))}
    parent |= {at: at for at in _spanned(op, uses)}

    def find(at: Dim) -> Dim:
        while parent[at] != at:
            at = parent[at]
        return at

    number: dict[Dim, int] = {}
    named: dict[str, Dim] = {}

    def called() -> set[Dim]:
        return {find(at) for at in named.values()}

    def join(a: Dim, b: Dim, parts: bool = False) -> None:
        a, b = find(a), find(b)
        if a == b or (a in number and b in number and number[a] != number[b]):
            return  # two different numbers stay apart, and are an error later
        if parts and (a in number) != (b in number) and {a, b} <= number.keys() | called():
            return
        parent[b] = a
        if b in number:
            number[a] = number[b]

    declared: dict[Dim, Expr] = {}
    for param in op.params:
        for d, said in enumerate(param.type.dims or ()):
            declared[param.name, d] = Const(said) if isinstance(said, int) else Size(said)
            if isinstance(said, int):
                number[param.name, d] = said
            if isinstance(said, str):
                join(named.setdefault(said, (param.name, d)), (param.name, d))
    for here, told in zip(uses, given, strict=True):
        ties: list[tuple[Use, Index, Dim]] = [
            (use, use.expr, (use.tensor, use.dim))
            for use in here
            if (use.tensor, use.dim) in parent and isinstance(use.expr, Index) and not use.guarded
        ]
        apart = {name for name in told if _are_apart(name, told, ties, declared)}
        first: dict[Index, Dim] = {}
        for _, index, at in ties:
            if index.name not in apart:
                join(first.setdefault(index, at), at, index.name in told)
    return {at: find(at) for at in parent}


def _are_apart(
    name: str,
    told: Mapping[str, Range],
    ties: Sequence[tuple[Use, Index, Dim]],
    declared: Mapping[Dim, Expr],
) -> bool:
    """Does an index run over parts of several extents, inside of each whatever the sizes are?"""
    mine = [(use, at) for use, index, at in ties if index.name == name]
    return len({declared.get(at) for _, at in mine}) > 1 and all(
        stays_inside(told, use, lambda *at: declared.get(at)) for use, _ in mine
    )


def _spanned(op: Op, uses: Sequence[Sequence[Use]]) -> set[Dim]:
    """Dimensions of defined tensors that every equation writes, and that those of a cycle of
    tensors read, from end to end.

    From end to end means by an index without a given range that nowhere stands but alone.
    """
    cycles = tensor_cycles(op)
    count: dict[str, int] = {}
    for eq in op.equations:
        count[eq.tensor] = count.get(eq.tensor, 0) + 1
    out: set[Dim] = set()
    torn: set[Dim] = set()
    for eq, here in zip(op.equations, uses, strict=True):
        if count[eq.tensor] == 1 and eq.tensor not in cycles:
            continue
        own = cycles.get(eq.tensor)
        ties = [
            u
            for u in here
            if u.tensor not in op.shapes
            and (u.tensor == eq.tensor or (own is not None and cycles.get(u.tensor) == own))
        ]
        ranged = {r.index for r in (*eq.ranges, *_inner_ranges(eq))}
        apart = {i for u in here if not isinstance(u.expr, Index) for i in indices_of(u.expr)}
        for use in ties:
            whole = isinstance(use.expr, Index) and use.expr.name not in ranged | apart
            (out if whole and not use.guarded else torn).add((use.tensor, use.dim))
    return out - torn


def _inner_ranges(eq: Equation) -> list[Range]:
    return [r for item in walk(eq.rhs) if isinstance(item, Reduce) for r in item.ranges]
