"""From cotangents to an operator: what it computes again, its parameters, its names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ..algo.dtypes import DType, TensorType
from ..algo.tensor_expr.check import check
from ..algo.tensor_expr.expr import (
    Access,
    Const,
    Expr,
    Reduce,
    Size,
    sizes_of,
    substitute,
    transform,
    walk,
)  # fmt: skip
from ..algo.tensor_expr.op import Checked, Equation, Op, Param
from ..algo.tensor_expr.simplify import simplify
from ..algo.tensor_expr.types import infer
from .cotangent import Cotangent
from .elide import elide
from .gather import own
from .naming import named, rename_indices
from .statements import Normal, is_recurrence, reads


def assemble(
    op: Op,
    normal: Normal,
    seeds: Mapping[str, str],
    found: Sequence[Cotangent],
    results: Sequence[Cotangent],
    extra: Mapping[str, Equation],
    saved: Sequence[str],
) -> Op:
    """The gradient operator: `found` are the cotangents of tensors in an order in which each reads
    earlier ones only (a recurrence and the temporaries that are part of it excepted), `results`
    those of parameters, `extra` further equations that read what the forward computation defines,
    `saved` tensors that are given instead of being computed again.
    """
    checked = check(op)
    given = {c.name: c.seed.tensor for c in found if c.is_given and c.seed is not None}
    made = [c for c in found if not c.is_given]
    _untangle(made, normal)
    every = [*made, *results]
    returns = [c.name for c in results]
    extents = {c.name: c.shape for c in every}
    floats = {c.name for c in every} | set(seeds.values())
    backward = [
        _renamed(_map(eq, lambda e: simplify(e, floats)), given)
        for c in every
        for eq in c.equations()
    ]
    backward = _needed(_without_copies(backward, returns, extents), returns)
    equations = [*_forward(checked, normal, backward, extra, saved), *backward]
    shapes = _shapes(op, checked, seeds, every, equations, saved)
    params = _params(op, checked, seeds, equations, shapes, saved)
    taken = {p.name for p in params} | {eq.tensor for eq in equations} | set(checked.sizes)
    hints = {c.name: _hints(c) for c in every}
    equations = [named(eq, hints.get(eq.tensor, ()), taken) for eq in equations]
    name = "_".join((op.name, *returns))
    return elide(Op(name, params, tuple(equations), tuple(returns), shapes))


def _map(eq: Equation, change: Callable[[Expr], Expr]) -> Equation:
    where = None if eq.where is None else change(eq.where)
    return Equation(
        eq.tensor, tuple(map(change, eq.lhs)), change(eq.rhs), eq.ranges, where, eq.reducer
    )


def _renamed(eq: Equation, names: Mapping[str, str], tensor: str | None = None) -> Equation:
    """The equation with tensors renamed where they are read, and its own tensor to `tensor`."""

    def rule(item: Expr) -> Expr:
        if isinstance(item, Access) and item.tensor in names:
            return Access(names[item.tensor], item.indices)
        return item

    fresh = _map(eq, lambda e: transform(e, rule))
    own_name = tensor or eq.tensor
    return Equation(own_name, fresh.lhs, fresh.rhs, fresh.ranges, fresh.where, fresh.reducer)


def _untangle(cotangents: Sequence[Cotangent], normal: Normal) -> None:
    """Puts the cotangents of temporaries of a recurrence into that of the recurrence.

    Each of them needs the other at a later step, and an operator's tensors are computed one after
    the other; alone the recurrence reads only itself.
    """
    by_name = {c.name: c for c in cotangents}
    owners = {c.name: normal.temporaries.get(c.tensor) for c in cotangents}
    for c in cotangents:
        while True:
            later = [
                by_name[a.tensor]
                for term in c.terms
                for a in _accesses(term.value)
                if owners.get(a.tensor) == c.tensor and a.tensor != c.name
            ]
            circular = [t for t in later if _reaches(t, c, by_name)]
            if not circular:
                break
            inner = circular[0]
            c.terms = [replace(term, value=_inlined(term.value, inner)) for term in c.terms]


def _reaches(start: Cotangent, goal: Cotangent, by_name: Mapping[str, Cotangent]) -> bool:
    stack, seen = [start], set()
    while stack:
        c = stack.pop()
        if c is goal:
            return True
        if c.name not in seen:
            seen.add(c.name)
            names = {a.tensor for term in c.terms for a in _accesses(term.value)}
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


def _accesses(expr: Expr) -> list[Access]:
    return [item for item in walk(expr) if isinstance(item, Access)]


def _without_copies(
    equations: list[Equation], returns: Sequence[str], shapes: Mapping[str, tuple[Expr, ...]]
) -> list[Equation]:
    """Drops `T[i] = U[i]`: readers of T read U; if T is returned, U is computed under its name."""
    for eq in equations:
        source = eq.rhs
        if (
            eq.reducer is not None
            or not isinstance(source, Access)
            or source.indices != eq.lhs
            or source.tensor == eq.tensor
            or sum(e.tensor == eq.tensor for e in equations) > 1
            or shapes.get(source.tensor) != shapes[eq.tensor]
        ):
            continue
        old, new = eq.tensor, source.tensor
        if old in returns:
            old, new = new, old
            if old in returns or not any(e.tensor == old for e in equations):
                continue
        rest = [_renamed(e, {old: new}, new if e.tensor == old else e.tensor)
                for e in equations if e is not eq]  # fmt: skip
        return _without_copies(rest, returns, shapes)
    return equations


def _needed(equations: Iterable[Equation], returns: Sequence[str]) -> list[Equation]:
    """The equations that the returned tensors depend on, in order."""
    by_tensor: dict[str, list[Equation]] = {}
    for eq in equations:
        by_tensor.setdefault(eq.tensor, []).append(eq)
    found = _closure(returns, lambda name: by_tensor.get(name, ()))
    return [eq for name, group in by_tensor.items() if name in found for eq in group]


def _closure(start: Iterable[str], equations_of: Callable[[str], Iterable[Equation]]) -> set[str]:
    found: set[str] = set()
    stack = list(start)
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack += [a.tensor for eq in equations_of(name) for a in reads(eq)]
    return found


def _forward(
    checked: Checked,
    normal: Normal,
    backward: Sequence[Equation],
    extra: Mapping[str, Equation],
    saved: Sequence[str],
) -> list[Equation]:
    """What has to be computed again: an equation as it was, unless a reduction inside it is
    needed for itself."""
    plain: dict[str, list[Equation]] = {}
    for eq in checked.equations:
        plain.setdefault(eq.tensor, []).append(eq)
    split: dict[str, list[Equation]] = {}
    for s in normal.statements:
        split.setdefault(s.tensor, []).append(s.equation)

    def equations_of(name: str) -> Iterable[Equation]:
        if name in extra:
            return (extra[name],)
        if name in saved:
            return ()
        return plain[name] if name in plain else split.get(name, [])

    needed = _closure({a.tensor for eq in backward for a in reads(eq)}, equations_of)
    out: list[Equation] = []
    for tensor, equations in plain.items():
        own_parts = [t for t, owner in normal.temporaries.items() if owner == tensor]
        parts = [eq for t in own_parts if t in needed for eq in split[t]]
        wanted = tensor in needed and tensor not in saved
        if parts and wanted and not is_recurrence(equations):
            parts = [eq for t in own_parts for eq in split[t]]
            out += parts + split[tensor]
        else:
            out += (equations if wanted else []) + parts
        out += [eq for name, eq in extra.items() if name in needed and _of(eq, tensor, own_parts)]
    return out


def _of(tie: Equation, tensor: str, parts: Sequence[str]) -> bool:
    """Is it a companion of `tensor` or of one of its temporaries?"""
    return tie.tensor.rsplit("_ties", 1)[0] in (tensor, *parts)


def _params(
    op: Op,
    checked: Checked,
    seeds: Mapping[str, str],
    equations: Sequence[Equation],
    shapes: Mapping[str, tuple[Expr, ...]],
    saved: Sequence[str],
) -> tuple[Param, ...]:
    """The parameters of `op` that are read or say a size that is used, then those of `saved` that
    are read, then the cotangents."""
    types = {p.name: p.type.dtype for p in op.params}
    if all(types.values()):
        known = {name: dtype for name, dtype in types.items() if dtype is not None}
        types |= infer(checked, known)
    read = {a.tensor for eq in equations for a in reads(eq)}
    used = dict.fromkeys(sizes_of(_roots(equations, shapes)))
    names = [*(p.name for p in op.params), *(name for name in saved if name in read)]
    primal = [Param(name, _type(types.get(name), checked.shapes[name])) for name in names]
    cotangents = [
        Param(seed, _type(types.get(name), checked.shapes[name])) for name, seed in seeds.items()
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


def _type(dtype: DType | None, extents: Sequence[Expr]) -> TensorType:
    """The annotation of a parameter; its sizes only where each is a symbol or a number."""
    dims: list[str | int] = []
    for extent in extents:
        if isinstance(extent, Size):
            dims.append(extent.name)
        elif isinstance(extent, Const) and type(extent.value) is int:
            dims.append(extent.value)
        else:
            return TensorType(dtype, None)
    return TensorType(dtype, tuple(dims))


def _sizes(param: Param) -> list[str]:
    return [dim for dim in param.type.dims or () if isinstance(dim, str)]


def _roots(equations: Sequence[Equation], shapes: Mapping[str, tuple[Expr, ...]]) -> list[Expr]:
    roots: list[Expr] = [e for dims in shapes.values() for e in dims]
    for eq in equations:
        roots += [*eq.lhs, eq.rhs, *eq.ranges, *([] if eq.where is None else [eq.where])]
    return roots


def _shapes(
    op: Op,
    checked: Checked,
    seeds: Mapping[str, str],
    cotangents: Sequence[Cotangent],
    equations: Sequence[Equation],
    saved: Sequence[str],
) -> dict[str, tuple[Expr, ...]]:
    """The extents that must be declared: of inputs, where they are formulas; of what is scattered
    into; and those that `op` declares."""
    read = {a.tensor for eq in equations for a in reads(eq)}
    given = {**{name: name for name in saved if name in read}, **seeds}
    formulas = {
        param: checked.shapes[name]
        for name, param in given.items()
        if _type(None, checked.shapes[name]).dims is None
    }
    scattered = {n: c.shape for c in cotangents for n in c.parts()}
    defined = {eq.tensor for eq in equations}
    inner = {n: s for n, s in {**op.shapes, **scattered}.items() if n in defined}
    outer = {n: s for n, s in op.shapes.items() if n in read - defined}
    return {**outer, **formulas, **inner}


def _hints(cotangent: Cotangent) -> list[list[str]]:
    """Names with which the tensor is read, for each dimension."""
    by_dim: list[list[str]] = [[] for _ in cotangent.shape]
    for term in cotangent.terms:
        for dim, hint in enumerate(term.hints):
            by_dim[dim] += [hint] if hint else []
    return by_dim
