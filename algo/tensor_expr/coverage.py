"""What equations write: shapes of tensors, and proofs that each element is written just once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .. import isl
from . import affine
from .affine import is_affine
from .build import add, const, maximum
from .domains import closure, domain, largest, relation, within
from .expr import Expr, Index, Range, indices_of
from .op import Equation
from .printer import print_expr
from .ranges import tightest
from .uses import depends_on_data

Fail = Callable[[int, str], Exception]


def shape(equations: Mapping[int, Equation], fail: Fail) -> tuple[Expr, ...]:
    """The extents that the left sides give: one more than the largest index written.

    `equations` are all that define a tensor, by number, with their ranges; `fail` makes the
    error for an equation and a message.
    """
    rank = len(next(iter(equations.values())).lhs)
    out: list[Expr] = []
    for dim in range(rank):
        ends = [_end(n, eq, dim, fail) for n, eq in equations.items()]
        out.append(tightest(ends, maximum))
    return tuple(out)


def _end(n: int, eq: Equation, dim: int, fail: Fail) -> Expr:
    index = eq.lhs[dim]
    ranges = {r.index: r for r in eq.ranges}
    if isinstance(index, Index) and not indices_of(ranges[index.name].hi):
        return ranges[index.name].hi
    if not indices_of(index) and not depends_on_data(index):
        return add(index, const(1))
    if depends_on_data(index):
        raise fail(
            n,
            f"where {print_expr(index)} lies depends on data, so {eq.tensor} needs declared "
            f"extents, as in a line `{eq.tensor}: [N]`",
        )
    top = largest(*_at(eq, [index]))
    if top is None:
        raise fail(
            n,
            f"the largest {print_expr(index)} is not one formula; declare the extents of "
            f"{eq.tensor}, as in a line `{eq.tensor}: [N]`",
        )
    return affine.normalize(add(top, const(1)))


def _at(eq: Equation, exprs: Sequence[Expr]) -> tuple[list[str], Expr, list[Expr]]:
    ranges = {r.index: r for r in eq.ranges}
    dims = closure([i for e in exprs for i in indices_of(e)], ranges)
    return dims, exprs[0], within(ranges[d] for d in dims)


def is_plain(eq: Equation, extents: Sequence[Expr]) -> bool:
    """Does the left side consist of distinct indices that each run over the whole extent?"""
    ranges = {r.index: r for r in eq.ranges}
    names = [e.name for e in eq.lhs if isinstance(e, Index)]
    return (
        eq.where is None
        and len(names) == len(eq.lhs) == len(set(names)) == len(ranges)
        and all(
            ranges[name].lo is const(0) and ranges[name].hi is extent
            for name, extent in zip(names, extents, strict=True)
        )
    )


def writes(eq: Equation) -> isl.raw.Map:
    """From the instances of an equation (its ranges in order) to the element each one writes."""
    dims = [r.index for r in eq.ranges]
    held = [*within(eq.ranges), *([] if eq.where is None else [eq.where])]
    return relation(dims, eq.lhs, held)


def check_writes(
    tensor: str, equations: Mapping[int, Equation], extents: Sequence[Expr], fail: Fail
) -> None:
    """Proves that every element of a tensor is written exactly once."""
    for n, eq in equations.items():
        for index in eq.lhs:
            if depends_on_data(index):
                raise fail(
                    n,
                    f"where {print_expr(index)} lies depends on data, so an element may be written "
                    f"twice or never; accumulate with +=, max= or min= instead",
                )
        if eq.where is not None and not is_affine(eq.where):
            raise fail(
                n,
                f"the condition {print_expr(eq.where)} on which elements are written is not "
                f"affine; put it on the right, as in where(condition, a, b)",
            )
    if len(equations) == 1 and is_plain(next(iter(equations.values())), extents):
        return
    try:
        with isl.quota():
            _prove_writes(tensor, equations, extents, fail)
    except isl.Exhausted:
        n = next(iter(equations))
        raise fail(
            n, f"could not prove that each element of {tensor} is written exactly once"
        ) from None


def _prove_writes(
    tensor: str, equations: Mapping[int, Equation], extents: Sequence[Expr], fail: Fail
) -> None:
    names = [f"d{d}" for d in range(len(extents))]
    box = within(Range(d, const(0), e) for d, e in zip(names, extents, strict=True))
    missing = domain(names, box)
    images: list[tuple[int, isl.raw.Set]] = []
    for n, eq in equations.items():
        written = writes(eq)
        twice = _written_twice(written)
        if twice is not None:
            raise fail(n, f"{_element(tensor, names, twice)} is written more than once")
        image = isl.named(written.range(), names)
        for m, other in images:
            shared = isl.first_point(image.intersect(other))
            if shared is not None:
                element = _element(tensor, names, shared)
                raise fail(n, f"{element} is written here and by equation {m + 1} too")
        images.append((n, image))
        missing = missing.subtract(image)
    hole = isl.first_point(missing)
    if hole is not None:
        raise fail(next(iter(equations)), f"{_element(tensor, names, hole)} is never written")


def _written_twice(written: isl.raw.Map) -> dict[str, int] | None:
    if written.is_injective():
        return None
    pairs = written.apply_range(written.reverse())
    clash = pairs.subtract(isl.raw.Map.identity(pairs.get_space())).domain().apply(written)
    return isl.first_point(isl.named(clash, [f"d{d}" for d in range(clash.n_dim())]))


def _element(tensor: str, names: Sequence[str], point: Mapping[str, int]) -> str:
    return f"{tensor}[{', '.join(str(point[n]) for n in names)}]{at_sizes(point, names)}"


def at_sizes(point: Mapping[str, int], dims: Sequence[str]) -> str:
    """The sizes of a witness, as ` at N=3, K=2`."""
    sizes = [f"{name}={value}" for name, value in point.items() if name not in dims]
    return f" at {', '.join(sizes)}" if sizes else ""
