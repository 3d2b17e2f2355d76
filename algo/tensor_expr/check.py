"""From an `Op` to a `Checked`: every range explicit, every access proved in bounds, for all sizes.

In this order: indices get unique names and sizes their symbols (`extents.py`); equation by
equation, ranges are inferred (`ranges.py`) and accesses proved; when the last equation of a tensor
is done, its shape follows and it is proved to be written exactly once (`coverage.py`). Equations of
tensors that need each other are checked together and get an order of their loops (`order.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ..errors import NeedsSizes, OpError
from . import affine
from .affine import is_affine, to_isl
from .boundary import desugared
from .bounds import check_bounds, stays_inside
from .build import const
from .components import tensor_cycles, units
from .coverage import check_writes, shape
from .defined import check_integers, check_names, check_own_reads
from .domains import closure, counterexample, within
from .dynamic import check_maxima
from .expr import (
    Expr,
    Index,
    Range,
    Reduce,
    Size,
    indices_of,
    sizes_of,
    walk,
)
from .extents import Extents
from .extremes import check_extremes
from .folds import groups
from .located import failure
from .op import Checked, Equation, Op, Step
from .order import arranged
from .printer import print_expr
from .ranges import Extent, infer
from .settle import forced, says
from .uses import (
    Use,
    free_indices,
    map_exprs,
    uses,
    with_ranges,
    with_unique_binders,
)


def check(op: Op) -> Checked:
    """The checked op, or an `OpError` that names the index, the extents and the equation."""
    found: Checked = op.memo("checked", lambda: _Checker(op).run())
    return found


class _Checker:
    def __init__(self, op: Op) -> None:
        self.op = op
        check_names(op)
        check_integers(op)
        self.groups = groups(op.equations)
        self.equations: list[Equation] = []
        origins = [found for group in self.groups for found in self._add(group)]
        self.uses: list[tuple[Use, ...]] = [uses(eq) for eq in self.equations]
        # Equations that reduce together share their indices, so each counts with all their uses.
        together = [
            [use for n in group for use in self.uses[n]] for group in self.groups for _ in group
        ]
        self.given = [  # the ranges that are written in each equation
            {r.index: r for n in group for r in _ranges_in(self.equations[n])}
            for group in self.groups for _ in group
        ]  # fmt: skip
        self.extents = Extents(op, together, self.given, origins)
        self.ranges: dict[int, dict[str, Range]] = {}
        self.cycles = tensor_cycles(op)

    def _add(self, group: tuple[int, ...]) -> list[dict[str, str]]:
        """Adds equations, with no index bound twice but those that they reduce over together, and
        none that another of them has on the left."""
        origins: dict[str, str] = {}
        bound = dict.fromkeys(i for n in group for i in free_indices(self.op.equations[n]))
        for n in group:
            eq, found = with_unique_binders(self.op.equations[n], bound)
            self.equations.append(eq)
            origins |= found
            joint = eq.rhs.indices if isinstance(eq.rhs, Reduce) else ()
            for item in walk(eq.rhs):
                if isinstance(item, Reduce):
                    bound.update((i, None) for i in item.indices if i not in joint)
        return [origins for _ in group]

    def fail(self, number: int, message: str) -> OpError:
        return failure(self.op, number, message)

    def run(self) -> Checked:
        for n, eq in enumerate(self.equations):
            try:
                self.extents.check_known(eq.roots)
            except OpError as err:
                raise self.fail(n, str(err)) from None
        steps: list[Step] = []
        for unit in units(self.op, self.cycles):
            steps += self._define(unit)
        return self._result(tuple(steps))

    def _define(self, unit: Sequence[int]) -> list[Step]:
        """Ranges, shapes and proofs of one equation, or of those of a cycle of tensors."""
        cyclic = self.equations[unit[0]].tensor in self.cycles
        together = [group for group in self.groups if group[0] in unit]
        left = list(together)
        while left:
            group = self._infer_one(left)
            left.remove(group)
            for n in group:
                if not cyclic:
                    self._expand(n)
                tensor = self.equations[n].tensor
                if all(m in self.ranges for m in self._defining(tensor)):
                    self._shape(tensor)
        if cyclic:
            check_own_reads(self.op, {n: self.equations[n] for n in unit})
        for group in together if cyclic else ():
            self._unify(group)
            for n in group:
                self.ranges[n] = {i: self._resolved(r) for i, r in self.ranges[n].items()}
                self._expand(n)
        for tensor in dict.fromkeys(self.equations[n].tensor for n in unit):
            if all(m in self.ranges for m in self._defining(tensor)):
                self._prove(tensor)
        if not cyclic:
            return [Step(n) for n in unit]
        mine = {n: self.equations[n] for n in unit}
        found, steps = arranged(mine, self.ranges, together, self.fail)
        for n, eq in found.items():
            self.equations[n] = eq
        return steps

    def _infer_one(self, left: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Infers the ranges of the first equation (or joint reduction) for which it is possible.

        What reads tensors of unknown extents comes later if it can: they narrow its ranges. Where
        no equation is possible, a dimension ends where an equation before ends that writes it.
        """
        first: OpError | None = None
        for extent in (self.extents.extent, self._written):
            for group in sorted(left, key=self._reads_unknown):
                try:
                    self._unify(group)
                    self._infer(group, extent)
                except OpError as error:
                    first = first or error
                    continue
                return group
        assert first is not None
        raise first

    def _written(self, tensor: str, dim: int) -> Expr | None:
        """The extent of a dimension, or how far the first equation goes that writes all of it."""
        known = self.extents.extent(tensor, dim)
        for n in () if known is not None else self._defining(tensor):
            index = self.equations[n].lhs[dim]
            if n in self.ranges and isinstance(index, Index):
                r = self.ranges[n][index.name]
                if r.lo is const(0) and not indices_of(r.hi):
                    return self.extents.resolve(r.hi)
        return known

    def _reads_unknown(self, group: tuple[int, ...]) -> bool:
        return any(
            self.extents.extent(use.tensor, use.dim) is None
            for n in group
            for use in self.uses[n]
            if use.tensor != self.equations[n].tensor
        )

    def _defining(self, tensor: str) -> list[int]:
        return [n for n, eq in enumerate(self.equations) if eq.tensor == tensor]

    def _resolved(self, r: Range) -> Range:
        return _tidied(Range(r.index, self.extents.resolve(r.lo), self.extents.resolve(r.hi)))

    def _resolve(self, n: int) -> None:
        before = self.equations[n]
        self.equations[n] = map_exprs(before, self.extents.resolve)
        if self.equations[n] is not before:
            self.uses[n] = uses(self.equations[n])

    def _unify(self, group: tuple[int, ...]) -> None:
        first: dict[str, Use] = {}
        told = {r.index for n in group for r in _ranges_in(self.equations[n])}  # or found before
        every = [(n, use) for n in group for use in self.uses[n]]
        for n, use in every:
            index = use.expr
            extent = self.extents.extent(use.tensor, use.dim)
            if use.guarded or not isinstance(index, Index) or extent is None:
                continue
            before = first.setdefault(index.name, use)
            known = self.extents.extent(before.tensor, before.dim)
            assert known is not None
            parts = index.name in self.given[n]
            if (
                parts
                and known is not extent
                and all(
                    stays_inside(self.given[n], each, self.extents.extent) for each in (before, use)
                )
            ):
                continue
            if self.extents.unify(known, extent, parts) or index.name in told:
                continue  # an index with a given range may run over a part of either
            if _both_known(known, extent):
                raise self.fail(
                    n,
                    f"index {index.name}: {print_expr(known)} from {before.tensor} dim "
                    f"{before.dim}, {print_expr(extent)} from {use.tensor} dim {use.dim}",
                )
        for n in group:
            self._resolve(n)

    def _infer(self, group: tuple[int, ...], extent: Extent) -> None:
        """The ranges of one equation, or of those that reduce together, over the same indices."""
        given: dict[str, Range] = {}
        outer: dict[str, None] = {}
        bound: dict[str, None] = {}
        own = {n: free_indices(self.equations[n]) for n in group}
        for n in group:
            eq = self.equations[n]
            outer |= dict.fromkeys(own[n])
            given |= {r.index: _tidied(r) for r in eq.ranges}
            for item in walk(eq.rhs):
                if isinstance(item, Reduce):
                    bound |= dict.fromkeys(item.indices)
                    given |= {r.index: _tidied(r) for r in item.ranges}
            if eq.reducer is None:
                self._check_free(n, eq, own[n])
            self._check_affine(n, given)
        ranges = infer(
            [*outer, *bound],
            list(outer),
            given,
            [use for n in group for use in self.uses[n]],
            extent,
            lambda message: self.fail(group[0], message),
        )
        for n in group:
            self.ranges[n] = ranges
            self.equations[n] = with_ranges(self.equations[n], own[n], ranges)

    def _expand(self, n: int) -> None:
        """Replaces total accesses by what they mean, now that the extents are known."""
        eq, extent, ranges = self.equations[n], self.extents.extent, self.ranges[n]

        def holds(claim: Expr, least: int) -> bool:
            if not is_affine(claim):
                return False
            around = () if least else (r.index for r in eq.ranges)  # where none runs, any holds
            dims = closure([*indices_of(claim), *around], ranges)
            return counterexample(dims, within(ranges[d] for d in dims), [claim], least) is None

        try:
            whole = map_exprs(eq, lambda e: desugared(e, extent, holds))
            lhs = tuple(desugared(e, extent, holds, position=True) for e in eq.lhs)
        except NeedsSizes as err:
            raise self._needs(n, str(err), err.sizes) from None
        except OpError as err:
            raise self.fail(n, str(err)) from None
        if whole is eq:
            return
        whole = Equation(eq.tensor, lhs, whole.rhs, whole.ranges, whole.where, eq.reducer)
        self.equations[n], self.uses[n] = whole, uses(whole)
        self._check_affine(n, {})

    def _check_free(self, n: int, eq: Equation, outer: Sequence[str]) -> None:
        left = {i for e in eq.lhs for i in indices_of(e)}
        for index in outer:
            if index not in left:
                raise self.fail(
                    n,
                    f"index {index} is not on the left and no reduction binds it; "
                    f"put it on the left, or reduce over it: sum(...)",
                )

    def _check_affine(self, n: int, given: Mapping[str, Range]) -> None:
        parts = [(u.expr, f"it is an index into {u.tensor}") for u in self.uses[n]]
        parts += [(e, f"it bounds index {r.index}") for r in given.values() for e in (r.lo, r.hi)]
        for expr, role in parts:
            if not is_affine(expr):
                try:
                    to_isl(expr)
                except OpError as err:
                    raise self._needs(n, f"{err}; {role}", forced(expr)) from None

    def _needs(self, n: int, message: str, sizes: Sequence[str]) -> OpError:
        """The error for what is affine only where `sizes` are numbers, if there are any."""
        if not sizes:
            return self.fail(n, message)
        error = self.fail(n, says(self.op, message, sizes))
        if set(sizes) & set(self.op.maxima):
            return error
        inputs = {p.name for p in self.op.params}
        known = {at: e for at, e in self.extents.dims.items() if at[0] in inputs}
        extents = {at: self.extents.resolve(extent) for at, extent in known.items()}
        return NeedsSizes(str(error), sizes, extents)

    def _shape(self, tensor: str) -> None:
        """The extents of a tensor all of whose equations have ranges."""
        mine = {n: self.equations[n] for n in self._defining(tensor)}
        if len(mine) > 1 and any(eq.reducer is not None for eq in mine.values()):
            raise self.fail(
                max(mine), f"{tensor} is accumulated, so a single equation may define it"
            )
        if tensor not in self.op.shapes:
            self._check_start(mine)
            self.extents.define(tensor, shape(mine, self.fail))

    def _prove(self, tensor: str) -> None:
        """Proves that accesses are in bounds and that each element is written once."""
        mine = {n: self.equations[n] for n in self._defining(tensor)}
        for n, eq in mine.items():
            fail = partial(self.fail, n)
            check_bounds(eq, self.uses[n], self.ranges[n], self._extent, fail)
        if all(eq.reducer is None for eq in mine.values()):
            extents = [self._extent(tensor, d) for d in range(self.extents.ranks[tensor])]
            check_writes(tensor, mine, extents, self.fail)

    def _extent(self, tensor: str, dim: int) -> Expr:
        found = self.extents.extent(tensor, dim)
        assert found is not None
        return found

    def _check_start(self, mine: Mapping[int, Equation]) -> None:
        """An output index starts at 0; of several equations, coverage tells."""
        if len(mine) > 1:
            return
        ((n, eq),) = mine.items()
        tensor = eq.tensor
        for index in eq.lhs:
            if isinstance(index, Index) and eq.reducer is None:
                lo = self.ranges[n][index.name].lo
                if lo is not const(0):
                    raise self.fail(
                        n,
                        f"output index {index.name} of {tensor} starts at {print_expr(lo)}, not at "
                        f"0; shift it, or define the elements before by another equation",
                    )

    def _result(self, steps: tuple[Step, ...]) -> Checked:
        resolve = self.extents.resolve
        rules = self.extents.rules(self.op)
        equations = tuple(map_exprs(eq, lambda e: _tidy(resolve(e))) for eq in self.equations)
        shapes: dict[str, tuple[Expr, ...]] = {}
        for tensor, rank in self.extents.ranks.items():
            shapes[tensor] = tuple(affine.normalize(self._extent(tensor, d)) for d in range(rank))
        sizes = tuple(dict.fromkeys(r.extent.name for r in rules if isinstance(r.extent, Size)))
        check_maxima(self.op, sizes)
        check_extremes(self.op, equations)
        return Checked(self.op, equations, shapes, sizes, rules, steps)


def _tidied(r: Range) -> Range:
    """A range in canonical form."""
    return Range(r.index, affine.normalize(r.lo), affine.normalize(r.hi))


def _tidy(expr: Expr) -> Expr:
    """Ranges in canonical form; all else as it was written."""
    return _tidied(expr) if isinstance(expr, Range) else expr


def _ranges_in(eq: Equation) -> list[Range]:
    return [r for root in (eq.rhs, *eq.ranges) for r in walk(root) if isinstance(r, Range)]


def _both_known(a: Expr, b: Expr) -> bool:
    return not sizes_of([a, b])
