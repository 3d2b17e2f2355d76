"""From cotangents to an operator: what it computes again, its parameters, its names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ..algo.dtypes import DType
from ..algo.tensor_expr.annotation import annotation
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.components import cycles_of
from ..algo.tensor_expr.expr import (
    Access,
    Expr,
    Index,
    Reduce,
    accesses,
    sizes_of,
    substitute,
    transform,
    walk,
)  # fmt: skip
from ..algo.tensor_expr.op import Checked, Equation, Op, Param, Rule
from ..algo.tensor_expr.printer import print_equation
from ..algo.tensor_expr.simplify import Simplifier
from ..algo.tensor_expr.types import infer
from .blocks import Applied
from .cotangent import Cotangent
from .decided import decided
from .elide import elide
from .forms import simpler
from .gather import own
from .naming import named, numbered_indices, rename_indices
from .signs import plain_zeros, signed
from .statements import Normal, is_recurrence, reads
from .tidy import (
    closure,
    in_order,
    mapped,
    needed,
    rereading,
    reusing,
    single,
    without_copies,
    without_duplicates,
)


@dataclass(frozen=True)
class Derived:
    """What a derivation found, of which an operator is made.

    `found` are the cotangents of tensors in an order in which each reads earlier ones only (a
    recurrence and the temporaries that are part of it excepted), `results` those of parameters,
    `ties` further equations that read what the forward computation defines, by the tensor after
    which they come, `saved` what is given instead of being computed again, `applied` what rules
    compute, by the tensor after whose cotangent it comes, `floats` tensors that are surely floats.
    """

    op: Op
    normal: Normal
    seeds: Mapping[str, str]
    found: Sequence[Cotangent]
    results: Sequence[Cotangent]
    ties: Mapping[str, Sequence[Equation]]
    saved: Sequence[str]
    applied: Mapping[str, Applied]
    floats: Collection[str]

    @property
    def every(self) -> list[Cotangent]:
        """The cotangents that have equations."""
        return [*(c for c in self.found if not c.is_given), *self.results]

    def using(self, other: Mapping[str, Cotangent]) -> Derived:
        """The same with other forms of cotangents, by name."""
        found = [other.get(c.name, c) for c in self.found]
        return replace(self, found=found, results=[other.get(c.name, c) for c in self.results])


def assemble(derived: Derived) -> Op:
    """The gradient operator, in the form that says it in fewer words."""
    made = [c for c in derived.found if not c.is_given]
    _untangle(made, derived.normal)
    recurrent = cycles_of(
        [(c.name, {a.tensor for term in c.terms for a in accesses(term.value)}) for c in made]
    )
    for c in made:
        c.recurs = c.name in recurrent
    plain = _assembled(derived)
    returns = [c.name for c in derived.results]
    other = simpler(derived.every, derived.normal, derived.floats, returns, derived.saved)
    return elide(_shorter(plain, _assembled(derived.using(other))) if other else plain)


def _shorter(one: Op, other: Op) -> Op:
    """The operator with less text in the equations that the other has not; else the first."""

    def own(op: Op, than: Op) -> int:
        common = set(than.equations)
        return sum(1 + len(print_equation(eq)) for eq in op.equations if eq not in common)

    return other if own(other, one) < own(one, other) else one


def _assembled(derived: Derived) -> Op:
    op, normal, seeds, saved = derived.op, derived.normal, derived.seeds, derived.saved
    results, ties, applied, every = derived.results, derived.ties, derived.applied, derived.every
    given = {c.name: c.seed.tensor for c in derived.found if c.is_given and c.seed is not None}
    checked = check(op)
    returns = [c.name for c in results]
    extents = {c.name: c.shape for c in every}
    for part in applied.values():
        extents.update(part.shapes)
    sources: list[Cotangent | Applied] = []
    for c in derived.found:
        sources += [] if c.is_given else [c]
        sources += [applied[c.tensor]] if c.tensor in applied else []
    floats = {c.name for c in (*derived.found, *every)} | set(seeds.values())
    simplify = Simplifier(floats)
    backward = [
        rereading(mapped(decided(eq, defined[eq.tensor] > 1), simplify), given)
        for c in (*sources, *results)
        for defined in [Counter(eq.tensor for eq in c.equations())]
        for eq in map(single, c.equations())
    ]
    new = [rule for part in applied.values() for rule in part.rules]
    kept = {name for rule in new for name in rule.names}
    backward = reusing(without_copies(backward, returns, extents, kept))
    backward = needed(backward, {*returns, *kept})
    read = {a.tensor for eq in backward for a in reads(eq)}
    forward = in_order(again(op, normal, read, ties, saved))
    equations = [*forward, *backward]
    rules = (*_kept_rules(op, equations), *new)
    kept = {name for rule in rules for name in rule.names}
    counts = {eq.tensor: tensor for tensor, eqs in ties.items() for eq in eqs}
    shapes = _shapes(op, normal, seeds, every, equations, saved, counts)
    for eq in backward:  # of what a rule scatters
        if eq.tensor in extents and any(map(accesses, eq.lhs)):
            shapes.setdefault(eq.tensor, extents[eq.tensor])
    params = _params(op, normal, seeds, equations, shapes, saved)
    taken = {p.name for p in params} | {eq.tensor for eq in equations} | set(checked.sizes)
    hints = {c.name: _hints(c, normal) for c in every}
    numbered = numbered_indices(op.equations, checked.equations)
    equations = [named(eq, hints.get(eq.tensor, ()), taken, numbered) for eq in equations]
    several = {eq.tensor for eq in equations}
    floats |= set(derived.floats)
    for n, eq in enumerate(equations):
        equations[n] = eq = mapped(eq, lambda e: plain_zeros(e, floats))
        equations[n] = eq if n < len(forward) else mapped(eq, signed)
    equations = without_duplicates(equations, returns, kept)
    gone = several - {eq.tensor for eq in equations}
    shapes = {name: extents for name, extents in shapes.items() if name not in gone}
    name = "_".join((op.name, *returns))
    return Op(name, params, tuple(equations), tuple(returns), shapes, rules=rules)


def _kept_rules(op: Op, equations: Sequence[Equation]) -> list[Rule]:
    """The rules of what is computed again."""
    defined = {eq.tensor for eq in equations}
    return [r for r in op.rules if defined & set(r.names[len(r.params) :])]


def _untangle(cotangents: Sequence[Cotangent], normal: Normal) -> None:
    """Puts the cotangents of temporaries of a recurrence into that of the recurrence.

    Each of them needs the other at a later step; alone the recurrence reads only itself. One that
    is a recurrence itself (the prefixes of a fold) stays, and they are computed together.
    """
    by_name = {c.name: c for c in cotangents}
    owners = {c.name: normal.temporaries.get(c.tensor) for c in cotangents}
    for c in cotangents:
        while True:
            later = [
                by_name[a.tensor]
                for term in c.terms
                for a in accesses(term.value)
                if owners.get(a.tensor) == c.tensor and a.tensor != c.name
            ]
            circular = [t for t in later if not _reads(t, t) and _reaches(t, c, by_name)]
            if not circular:
                break
            inner = circular[0]
            c.terms = [replace(term, value=_inlined(term.value, inner)) for term in c.terms]


def _reads(c: Cotangent, other: Cotangent) -> bool:
    return any(a.tensor == other.name for term in c.terms for a in accesses(term.value))


def _reaches(start: Cotangent, goal: Cotangent, by_name: Mapping[str, Cotangent]) -> bool:
    stack, seen = [start], set()
    while stack:
        c = stack.pop()
        if c is goal:
            return True
        if c.name not in seen:
            seen.add(c.name)
            names = {a.tensor for term in c.terms for a in accesses(term.value)}
            stack += [by_name[name] for name in names if name in by_name]
    return False


def _inlined(value: Expr, inner: Cotangent) -> Expr:
    """`value` with the elements of `inner` replaced by what they are."""
    (equation,) = inner.equations()

    def rule(item: Expr) -> Expr:
        if not isinstance(item, Access) or item.tensor != inner.name:
            return item
        at = dict(zip(equation.lhs, item.indices, strict=True))
        return substitute(_own_bounds(equation.rhs), at)

    return transform(value, rule)


def _own_bounds(expr: Expr) -> Expr:
    """A copy whose bound indices have new names."""
    bound = {r for item in walk(expr) if isinstance(item, Reduce) for r in item.indices}
    return rename_indices(expr, {name: own(name) for name in bound})


def again(
    op: Op,
    normal: Normal,
    names: Iterable[str],
    ties: Mapping[str, Sequence[Equation]] = MappingProxyType({}),
    saved: Collection[str] = (),
) -> list[Equation]:
    """The equations that compute `names`, but for what is `saved`: each tensor as it is written,
    unless a part of its statements (a reduction inside it, the prefixes of a fold) is wanted
    itself."""
    whole: dict[str, list[Equation]] = {}
    for eq in normal.equations:
        whole.setdefault(eq.tensor, []).append(eq)
    split: dict[str, list[Equation]] = {}
    for s in normal.statements:
        split.setdefault(s.tensor, []).append(s.equation)
    whole |= {tensor: list(equations) for tensor, equations in normal.instead.items()}
    counted = {eq.tensor: [eq] for after in ties.values() for eq in after}
    owners = {
        t: {o} for t, o in normal.temporaries.items()
        if not is_recurrence(whole[o]) and o not in normal.instead
    }  # fmt: skip
    apart: set[str] = set()
    folds = [f for f in normal.folds if normal.instead.keys().isdisjoint(f.tensors)]
    together = {tensor: fold.tensors for fold in folds for tensor in fold.tensors}
    for fold in folds:
        split |= {tensor: list(fold.apart) for tensor in fold.tensors if fold.apart}
        whole |= {tensor: list(fold.equations) for tensor in fold.tensors}
        owners |= {part: set(fold.tensors) for part in fold.inside}
        if not set(saved).isdisjoint(fold.tensors):
            apart.update(fold.tensors)  # as written, they are computed together

    def equations_of(name: str) -> Sequence[Equation]:
        if name in saved:
            return ()
        if name in whole and name not in apart:
            return whole[name]
        return counted[name] if name in counted else split.get(name, ())

    start = set(names)
    while True:
        wanted = closure(start, equations_of)
        more = {o for t in wanted for o in owners.get(t, ())}
        more = {tensor for o in more for tensor in together.get(o, (o,))} - apart
        for rule in op.rules:  # what is computed again has its rule, which reads all its results
            if wanted & {*rule.names[len(rule.params) :]} - {*saved}:
                start |= {*rule.names}
        if not more and start <= wanted:
            break
        apart |= more
    out: list[Equation] = []
    for tensor in dict.fromkeys((*split, *whole)):
        out += equations_of(tensor) if tensor in wanted else ()
        out += [eq for eq in ties.get(tensor, ()) if eq.tensor in wanted]
    return list(dict.fromkeys(out))


def _params(
    op: Op,
    normal: Normal,
    seeds: Mapping[str, str],
    equations: Sequence[Equation],
    shapes: Mapping[str, tuple[Expr, ...]],
    saved: Sequence[str],
) -> tuple[Param, ...]:
    """The parameters of `op` that are read or say a size that is used, then those of `saved` that
    are read, then the cotangents."""
    types, extents = normal.types, normal.shapes
    read = {a.tensor for eq in equations for a in reads(eq)}
    used = dict.fromkeys(sizes_of(_roots(equations, shapes)))
    names = [*(p.name for p in op.params), *(name for name in saved if name in read)]
    primal = [Param(name, annotation(types.get(name), extents[name])) for name in names]
    cotangents = [
        Param(seed, annotation(types.get(name), extents[name])) for name, seed in seeds.items()
    ]
    kept = {p.name for p in primal if p.name in read}
    bound = {size for p in (*primal, *cotangents) if p.name in kept or p in cotangents
             for size in _sizes(p)}  # fmt: skip
    for param in primal:
        missing = set(_sizes(param)) & set(used) - bound
        if missing:
            kept.add(param.name)
            bound |= set(_sizes(param))
    return (*(p for p in primal if p.name in kept), *cotangents)


def known_types(checked: Checked) -> dict[str, DType]:
    """The element types of tensors that the annotations say, by name."""
    params = checked.op.params
    types = {p.name: p.type.dtype for p in params if p.type.dtype is not None}
    return {**types, **infer(checked, types)} if len(types) == len(params) else types


def _sizes(param: Param) -> list[str]:
    return [dim for dim in param.type.dims or () if isinstance(dim, str)]


def _roots(equations: Sequence[Equation], shapes: Mapping[str, tuple[Expr, ...]]) -> list[Expr]:
    roots: list[Expr] = [e for dims in shapes.values() for e in dims]
    return roots + [root for eq in equations for root in eq.roots]


def _shapes(
    op: Op,
    normal: Normal,
    seeds: Mapping[str, str],
    cotangents: Sequence[Cotangent],
    equations: Sequence[Equation],
    saved: Sequence[str],
    counts: Mapping[str, str],
) -> dict[str, tuple[Expr, ...]]:
    """The extents that must be declared: of inputs, where they are formulas; of what is scattered
    into; and those that `op` declares, also for `counts` of what its tensors attain."""
    read = {a.tensor for eq in equations for a in reads(eq)}
    primal = (*(p.name for p in op.params), *saved)
    given = [*((name, name) for name in primal if name in read), *seeds.items()]
    formulas = {
        param: normal.shapes[name]
        for name, param in given
        if annotation(None, normal.shapes[name]).dims is None
    }
    by_data = {eq.tensor for eq in equations if any(map(accesses, eq.lhs))}
    known = {n: c.shape for c in cotangents for n in (c.name, *c.parts())}
    scattered = {n: extents for n, extents in known.items() if n in by_data}
    defined = {eq.tensor for eq in equations}
    alike = {n: op.shapes[tensor] for n, tensor in counts.items() if tensor in op.shapes}
    own = {n: normal.shapes[n] for n in normal.instead}
    inner = {n: s for n, s in {**op.shapes, **own, **alike, **scattered}.items() if n in defined}
    outer = {n: s for n, s in op.shapes.items() if n in read - defined}
    return {**outer, **formulas, **inner}


def _hints(cotangent: Cotangent, normal: Normal) -> list[list[str]]:
    """Names with which the tensor is read, for each dimension: first by what contributes."""
    by_dim: list[list[str]] = [[] for _ in cotangent.shape]
    for term in cotangent.terms:
        for dim, hint in enumerate(term.hints):
            by_dim[dim] += [hint] if hint else []
    for access in (a for s in normal.statements for a in accesses(s.body)):
        if access.tensor == cotangent.tensor and not cotangent.terms:
            for dim, e in enumerate(access.indices):
                by_dim[dim] += [e.name] if isinstance(e, Index) else []
    return by_dim
