"""Reverse mode on the equations of an operator: the gradient operator, again in index form.

For each statement `O[f(d)] (+)= rhs(.., X[h(d)], ..)` over a domain D, and d backwards through
the equation list: `dX[h(d)] += drhs/dX * dO[f(d)]` over the same D, turned into a gather. What the
derivatives read of the forward computation is computed again inside the gradient operator.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..algo.dtypes import DType
from ..algo.errors import GradientError
from ..algo.tensor_expr.affine import normalize
from ..algo.tensor_expr.build import add, compare, mul, sub
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    accesses,
    indices_of,
    substitute,
    walk,
)
from ..algo.tensor_expr.op import Checked, Equation, Op
from ..algo.tensor_expr.reducers import EXTREMES
from .algebra import without_zeros
from .assemble import Derived, assemble, known_types
from .blocks import Applied, Block, hidden
from .checkpoint import checkpoints
from .cotangent import NOTHING, Cotangent, one
from .derivatives import EVEN, FIRST, Guarded, pullback, sharing, smooth_reads
from .gather import Term, contributions, own
from .naming import fresh_name
from .ruled import RuledFold
from .scatter import Scatter
from .statements import Normal, Statement, companion, normal, ordered
from .tidy import in_order


def adjoint(
    op: Op,
    wrt: tuple[str, ...] | str,
    saved: tuple[str, ...] = (),
    ties: str = EVEN,
    steps: tuple[tuple[str, int], ...] = (),
) -> Op:
    """The gradient operator of `op` by its parameters `wrt`.

    Its parameters are those of `op` that it needs, in their order (one that only says a size is
    kept, unread), then `dC` for every returned tensor C, the cotangent of C. It returns `dA` for
    every A of `wrt`, of the shape of A: zeros where no result depends on A. Tensors named in
    `saved` are taken as parameters, before the cotangents, where the gradient reads them; of
    recurrences in `steps` every so many steps (`h_kept`). All else that it needs of the forward
    computation it computes again.

    Conventions (DESIGN section 2): ties of max and min share evenly, or with `ties` "first" the
    first instance (in the order of the loops as written) or argument takes all; `where` selects,
    duplicate gathered elements accumulate, prod is right with zeros. Raises `GradientError` for a
    name that is no parameter, an integer parameter, and reducers that have no derivative.
    """
    if not isinstance(wrt, (str, tuple, list)):
        raise GradientError(
            f"gradient of {op.name}: expected names of parameters, {wrt!r} came; name at least one "
            f"of {', '.join(p.name for p in op.params)}"
        )
    names = (wrt,) if isinstance(wrt, str) else tuple(wrt)
    _check_names(op, names)
    key = f"adjoint {names} {saved} {ties} {steps}"
    made: Op = op.memo(key, lambda: _Reverse(op, names, saved, sharing(ties), steps).run())
    return made


def _check_names(op: Op, names: Sequence[str]) -> None:
    types = {p.name: p.type.dtype for p in op.params}
    if not names:
        raise GradientError(f"gradient of {op.name}: name at least one of {', '.join(types)}")
    for name in names:
        if name not in types:
            raise GradientError(
                f"gradient of {op.name} by {name}: it has no such parameter; "
                f"expected one of {', '.join(types)}"
            )
        refuse_integer(op, name, types[name])
    if len(set(names)) != len(names):
        raise GradientError(f"gradient of {op.name}: {', '.join(names)} names a parameter twice")


def refuse_integer(op: Op, name: str, dtype: DType | None) -> None:
    """Raises `GradientError` if `dtype` is known and not a float."""
    if dtype is not None and not dtype.is_float:
        raise GradientError(
            f"gradient of {op.name} by {name}: it has elements of type {dtype}, and only floats "
            "have gradients; ask for the other parameters"
        )


def normal_of(op: Op) -> Normal:
    """The statements of an operator; what has a rule has none."""
    checked = check(op)
    blocks, inside = _blocks(op)
    equations = ordered(checked)
    if blocks:
        instead = {name: block.params for block in blocks for name in block.results}
        equations = tuple(in_order(equations, instead))
    return normal(checked, equations, inside, known_types(checked))


def _blocks(op: Op) -> tuple[list[Block], set[str]]:
    """The parts of an operator that have rules, and the tensors that only they define."""
    blocks = [Block(rule, check(op)) for rule in op.rules]
    return blocks, hidden(op, blocks) if op.rules else set()


class _Reverse:
    """The state of one differentiation."""

    def __init__(
        self,
        op: Op,
        wrt: tuple[str, ...],
        saved: tuple[str, ...],
        ties: str,
        steps: tuple[tuple[str, int], ...],
    ) -> None:
        self.op, self.wrt, self.saved, self.sharing = op, wrt, saved, ties
        self.checked: Checked = check(op)
        self.blocks: list[Block | RuledFold] = [*_blocks(op)[0]]
        self.dtypes = known_types(self.checked)
        self.normal: Normal = normal_of(op)
        given = checkpoints(self.normal, dict(steps), saved)
        self.normal.instead |= given.again
        self.normal.shapes |= given.kept
        self.saved = tuple(name for name in (*saved, *given.kept) if name not in given.again)
        self.blocks += [RuledFold(op.name, ruled) for ruled in self.normal.ruled]
        for block in self.blocks[len(op.rules) :]:  # what is computed again has its rule
            if not set(self.saved) >= set(block.results):
                self.saved = tuple(name for name in self.saved if name not in block.results)
        self.taken = {*self.normal.shapes, *self.checked.sizes}
        self.seeds = {name: self._name(f"d{name}") for name in op.returns}
        self.ties: dict[str, list[Equation]] = {}
        self._refuse_indices()
        self.active = self._active()
        self.cotangents: dict[str, Cotangent] = {}
        self.applied: dict[str, Applied] = {}

    def run(self) -> Op:
        """The gradient operator."""
        for name in self.wrt:
            self.cotangents[name] = self._cotangent(name)
        last: dict[str, float] = {s.tensor: n for n, s in enumerate(self.normal.statements)}
        blocks = {name: block for block in self.blocks for name in block.results}
        for block in self.blocks:
            places = [self.normal.places[name] for name in block.results]
            last |= dict.fromkeys(block.results, min(places))
        order = sorted(last, key=lambda tensor: -last[tensor])
        left = [t for t in order if t in self.active]
        while True:  # a second look only at tensors that need each other
            known = (t for t in left if t in self.seeds or t in self.cotangents)
            tensor = next(known, None)
            if tensor is None:
                break
            if tensor in blocks:
                left = [t for t in left if t not in blocks[tensor].results]
                self._pull(blocks[tensor])
                continue
            left.remove(tensor)
            cotangent = self._cotangent(tensor)
            if cotangent.seed is None and any(term.bound for term in cotangent.terms):
                without_zeros(cotangent, self.normal, self.cotangents)
                if not cotangent.terms and not cotangent.scatters:
                    continue
            for statement in self.normal.of(tensor):
                self._reverse(statement, cotangent.name)
        found = [self.cotangents[t] for t in order if t in self.cotangents]
        found = [c for c in found if c.seed is not None or c.terms or c.scatters]
        results = [self.cotangents[name] for name in self.wrt]
        floats = {*self.active, *self.seeds.values(), *(c.name for c in self.cotangents.values())}
        return assemble(
            Derived(
                self.op, self.normal, self.seeds, found, results, self.ties, self.saved,
                self.applied, floats,
            )
        )  # fmt: skip

    def _pull(self, block: Block | RuledFold) -> None:
        """Adds what a block contributes to the cotangents of what it takes, by its rule."""
        given = [
            self._cotangent(r) for r in block.results if r in self.seeds or r in self.cotangents
        ]
        cotangents = {c.tensor: c.name for c in given}
        if isinstance(block, RuledFold):
            found, parts = block.pulled(
                self.active, cotangents, self.dtypes, self._name, self.taken
            )
            for statement, amount in parts:
                self._spread(statement, (Guarded((), amount),), None)
        else:
            found, gives = block.pulled(
                self.active, cotangents, self.dtypes, self._name, self.taken
            )
            for param, name in gives.items():
                target = self._cotangent(param)
                hints = next(eq.lhs for eq in found.made if eq.tensor == name)
                names = tuple(e.name if isinstance(e, Index) else None for e in hints)
                target.terms.append(Term((), (), Access(name, target.lhs), names))
        self.applied[given[-1].tensor] = found

    def _name(self, wanted: str) -> str:
        name = fresh_name(wanted, self.taken)
        self.taken.add(name)
        return name

    def _cotangent(self, tensor: str) -> Cotangent:
        found = self.cotangents.get(tensor)
        if found is None:
            shape = self.normal.shapes[tensor]
            name = self._name(f"d{tensor}_total" if tensor in self.seeds else f"d{tensor}")
            found = Cotangent(tensor, name, shape, self.dtypes.get(tensor))
            found.filled = frozenset(
                dim  # `c[0] = x[0]` is refused where c or x has no element
                for s in self.normal.statements
                for at in _elements(s, tensor)
                for dim, e in enumerate(at)
                if not s.where and not indices_of(e)
            )
            if tensor in self.seeds:
                found.seed = Access(self.seeds[tensor], found.lhs)
            self.cotangents[tensor] = found
        return found

    def _refuse_indices(self) -> None:
        """An operator that gives nothing but indices has no gradient."""
        found = {s.tensor: s.reducer for s in self.normal.statements if s.reducer in EXTREMES}
        if all(name in found for name in self.op.returns):
            name = self.op.returns[0]
            raise GradientError(
                f"gradient of {self.op.name} by {', '.join(self.wrt)}: {name} is {found[name]}, an "
                f"index, which has no derivative; differentiate the value there, as max or min does"
            )

    def _active(self) -> set[str]:
        """The tensors that depend smoothly on a parameter of `wrt`."""
        smooth = [
            (s.tensor, smooth_reads(s.body))
            for s in self.normal.statements
            if s.reducer not in EXTREMES  # an index is constant almost everywhere
        ]
        smooth += [(name, set(block.params)) for block in self.blocks for name in block.results]
        active = set(self.wrt)
        while True:  # a second round only for recurrences
            more = {tensor for tensor, sources in smooth if sources & active} - active
            if not more:
                return active
            active |= more

    def _reverse(self, s: Statement, name: str) -> None:
        """Adds what one statement contributes to the cotangents of what it reads."""
        given = Access(name, s.lhs)
        stored = Access(s.tensor, s.lhs)
        seeds: tuple[Guarded, ...]
        if s.reducer in (None, "sum"):
            seeds = (Guarded((), given),)
        elif s.reducer in ("max", "min"):
            chosen = compare("eq", s.body, stored)
            beaten = compare("lt" if s.reducer == "max" else "gt", s.body, stored)
            if self.sharing == FIRST:
                place = _place(s)
                first = compare("eq", place, self._companion("first", s, "min", place, chosen))
                seeds = (Guarded(((first, True),), given),)
            else:
                one_each = Call("where", (chosen, one(stored, self.dtypes.get(s.tensor)), NOTHING))
                ties = self._companion("ties", s, "sum", one_each)
                # Where the maximum is NaN none is less and none is equal: it shows, as dm / 0.
                seeds = (Guarded(((beaten, False),), Call("div", (given, ties))),)
        elif s.reducer == "prod":
            seeds = (Guarded((), mul(given, _others(s))),)
        else:
            raise GradientError(
                f"gradient of {self.op.name} by {', '.join(self.wrt)}: {s.tensor} is reduced by "
                f"{s.reducer}, which has no derivative; "
                "write it with where, or differentiate sum, prod, max or min"
            )
        self._spread(s, seeds, stored if s.reducer is None else None)

    def _spread(self, s: Statement, seeds: tuple[Guarded, ...], value: Expr | None) -> None:
        """Adds what the cotangents `seeds` of a statement's body give to what the body reads."""
        for access, amount in pullback(s.body, seeds, value, self.sharing).items():
            if access.tensor not in self.active:
                continue
            target = self._cotangent(access.tensor)
            for part in contributions(s, access, amount, target.shape):
                if isinstance(part, Scatter):
                    target.scatters[self._name(f"{target.name}_scattered")] = part
                else:
                    target.terms.append(part)

    def _companion(
        self, what: str, s: Statement, reducer: str, body: Expr, condition: Expr | None = None
    ) -> Access:
        """A reduction of `body` over the instances of each maximum (or minimum) where a condition
        holds: how many attain it, or which is the first."""
        name = self._name(f"{s.tensor}_{what}")
        equation, shape, access = companion(name, s, body, reducer, condition)
        self.ties.setdefault(s.tensor, []).append(equation)
        self.normal.shapes[name] = shape or self.normal.shapes[s.tensor]
        return access


def _elements(s: Statement, tensor: str) -> list[tuple[Expr, ...]]:
    """The elements of a tensor that every instance of a statement writes or reads."""
    if s.tensor == tensor:
        return [s.lhs]
    read = [a.indices for a in accesses(s.body) if a.tensor == tensor]
    if read and any(isinstance(e, Call) and e.op == "where" for e in walk(s.body)):
        return []
    return read


def _place(s: Statement) -> Expr:
    """A number for each instance of the same element, ascending in the order of the loops."""
    fixed = {e.name for e in s.lhs if isinstance(e, Index)}
    place: Expr = Const(0)
    for r in s.ranges:
        if r.index not in fixed:
            place = add(mul(place, sub(r.hi, r.lo)), sub(Index(r.index), r.lo))
    return normalize(place)


def _others(s: Statement) -> Expr:
    """The product over all other instances of the same element: right also where one is 0."""
    fixed = {e.name for e in s.lhs if isinstance(e, Index)}
    reduced = [r for r in s.ranges if r.index not in fixed]
    fresh: dict[Expr, Expr] = {Index(r.index): Index(own(r.index)) for r in reduced}
    other: Expr | None = None
    for r in reduced:
        differs = compare("ne", fresh[Index(r.index)], Index(r.index))
        other = differs if other is None else Call("or", (other, differs))
    if other is None:
        return Const(1)
    body = Call("where", (other, substitute(s.body, fresh), Const(1)))
    where: Expr | None = None
    same = [compare("eq", substitute(e, fresh), e) for e in s.lhs if not isinstance(e, Index)]
    for c in (*same, *(substitute(c, fresh) for c in s.where)):
        where = c if where is None else Call("and", (where, c))
    ranges = tuple(
        Range(index.name, r.lo, r.hi)
        for index, r in zip(fresh.values(), reduced, strict=True)
        if isinstance(index, Index)
    )
    return Reduce("prod", tuple(r.index for r in ranges), body, ranges, where)
