"""Sizes: from the shapes of arrays to the values of size symbols, and formulas evaluated."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..errors import ShapeError
from .affine import normalize
from .bounds import claims_of
from .build import conjuncts, const
from .domains import counterexample, within
from .expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    Size,
    children,
    indices_of,
    sizes_of,
    substitute,
    walk,
)
from .located import located
from .op import Checked, SizeRule
from .printer import print_expr
from .uses import map_exprs, uses

Shapes = Mapping[str, Sequence[int]]

MOST = 1 << 59
"""Elements, which may have 8 bytes and a border."""


def bind_sizes(checked: Checked, shapes: Shapes) -> dict[str, int]:
    """The value of every size symbol, from the shape of every input.

    Raises `ShapeError` for an unknown or missing input, a wrong rank, extents that disagree, as
    `index k: 8192 from F dim 1, 12 from W dim 0`, an extreme value of nothing, and a tensor that no
    memory holds.
    """
    _check_ranks(checked, shapes)
    sizes: dict[str, int] = {}
    source: dict[str, SizeRule] = {}
    for rule in checked.rules:
        if isinstance(rule.extent, Size) and rule.extent.name not in sizes:
            sizes[rule.extent.name] = int(shapes[rule.param][rule.dim])
            source[rule.extent.name] = rule
    for rule in checked.rules:
        wanted, came = evaluate(rule.extent, sizes), int(shapes[rule.param][rule.dim])
        if max(wanted, 0) != came:
            raise ShapeError(_mismatch(checked, rule, wanted, came, source))
    for name, most in checked.op.maxima.items():
        if sizes[name] > most:
            rule = source[name]
            raise ShapeError(
                f"size {name}: {sizes[name]} from {rule.param} dim {rule.dim}, but {name} is "
                f"declared dynamic with at most {most}{_used(checked, rule.param, rule.index)}"
            )
    if any(0 in shapes[rule.param] for rule in checked.rules):
        _check_bounds(checked, sizes)  # what was proved holds for sizes of at least 1
    _check_extremes(checked, sizes)
    _check_addresses(checked, sizes)
    return sizes


def evaluate(expr: Expr, sizes: Mapping[str, int]) -> int:
    """The value of a formula over sizes; not clamped."""
    found: dict[Expr, int] = {}
    for item in walk(expr):
        match item:
            case Const(value, _):
                found[item] = int(value)
            case Size(name):
                found[item] = sizes[name]
            case Call(op, args) if op in _MEANING:
                found[item] = _MEANING[op](*(found[arg] for arg in args))
            case _:
                raise TypeError(f"no formula over sizes: {expr!r}")
    return found[expr]


def shape_of(checked: Checked, tensor: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a tensor, formulas clamped at 0."""
    return tuple(max(0, evaluate(e, sizes)) for e in checked.shapes[tensor])


_MEANING: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "neg": operator.neg,
    "mul": operator.mul,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
}


def _check_ranks(checked: Checked, shapes: Shapes) -> None:
    names = [p.name for p in checked.op.params]
    for name in shapes:
        if name not in names:
            raise ShapeError(
                f"{checked.op.name} has no input {name}; its inputs are {', '.join(names)}"
            )
    for name in names:
        if name not in checked.shapes:
            continue  # never read and never declared: any array will do
        rank = len(checked.shapes[name])
        if name not in shapes:
            raise ShapeError(f"{checked.op.name} needs the shape of its input {name}")
        if len(shapes[name]) != rank:
            raise ShapeError(
                f"{name} has {_dimensions(len(shapes[name]))} {tuple(shapes[name])}, "
                f"but {_dimensions(rank)} expected{_used(checked, name, None)}"
            )


def _dimensions(rank: int) -> str:
    return f"{rank} dimension" if rank == 1 else f"{rank} dimensions"


def _mismatch(
    checked: Checked, rule: SizeRule, wanted: int, came: int, source: Mapping[str, SizeRule]
) -> str:
    here = f"{rule.param} dim {rule.dim}"
    if isinstance(rule.extent, Size):
        first = source[rule.extent.name]
        index = rule.index or first.index
        what = f"index {index}" if index else f"size {rule.extent.name}"
        text = f"{what}: {wanted} from {first.param} dim {first.dim}, {came} from {here}"
    else:
        formula = print_expr(rule.extent)
        shown = "" if formula == str(wanted) else f" = {formula}"
        what = f"index {rule.index}: {came} from {here}" if rule.index else f"{here} is {came}"
        text = f"{what}, but {wanted}{shown} expected"
    return text + _used(checked, rule.param, rule.index)


def _used(checked: Checked, param: str, index: str | None) -> str:
    """The first equation that reads the input, by the index if there is one."""
    for n, eq in enumerate(checked.op.equations):
        reads = [e for e in walk(eq.rhs) if isinstance(e, Access) and e.tensor == param]
        if index is not None:
            reads = [a for a in reads if Index(index) in a.indices]
        if reads:
            return located(checked.op, n)
    return ""


def _check_bounds(checked: Checked, sizes: Mapping[str, int]) -> None:
    """Proves every access in bounds at given sizes."""
    values: dict[Expr, Expr] = {Size(n): const(v) for n, v in sizes.items()}
    for n, eq in enumerate(checked.equations):
        here = map_exprs(eq, lambda e: substitute(e, values))
        inner = [r for item in walk(here.rhs) if isinstance(item, Reduce) for r in item.ranges]
        ranges: dict[str, Range] = {r.index: r for r in (*here.ranges, *inner)}
        for use in uses(here):
            dims = [r.index for r in here.ranges] + list(use.scope)
            end = shape_of(checked, use.tensor, sizes)[use.dim]
            given = [*within(ranges[d] for d in dims), *use.guards]
            if counterexample(dims, given, claims_of(use, const(end))) is not None:
                empty = ", ".join(f"{name}=0" for name, value in sizes.items() if value == 0)
                written = _with_boundary(checked.op.equations[n].rhs, use.tensor)
                if end == 0 and written is not None:
                    raise ShapeError(
                        f"at {empty}, {print_expr(written)} has no element to give: dim {use.dim} "
                        f"of {use.tensor} has extent 0{located(checked.op, n)}"
                    )
                raise ShapeError(
                    f"at {empty}, {print_expr(use.access)} lies outside {use.tensor}, whose "
                    f"dim {use.dim} has extent {end}{located(checked.op, n)}"
                )


def _with_boundary(rhs: Expr, tensor: str) -> Access | None:
    """The first read of a tensor, as written, that goes on beyond its ends."""
    found = (e for e in walk(rhs) if isinstance(e, Access) and e.tensor == tensor)
    return next((e for e in found if e.boundary is not None), None)


_STARTS = {
    "max": "the least value there is",
    "min": "the greatest value there is",
    "argmax": None,
    "argmin": None,
}
"""Where accumulating equations start from, which take the extreme value of nothing too."""


def _check_addresses(checked: Checked, sizes: Mapping[str, int]) -> None:
    """Refuses a tensor whose elements have no addresses of 64 bits."""
    for n, eq in enumerate(checked.equations):
        shape = shape_of(checked, eq.tensor, sizes)
        if math.prod(shape) >= MOST:
            raise ShapeError(
                f"{checked.op.name}: {eq.tensor} would have shape {shape}, more elements than any "
                f"memory has" + located(checked.op, n)
            )


def _check_extremes(checked: Checked, sizes: Mapping[str, int]) -> None:
    """Refuses elements that are a max or min over a range that these sizes empty.

    A range that depends on other indices may be empty for some of them: they get the identity.
    """
    for n, eq in enumerate(checked.equations):
        for item in walk(eq.rhs):
            if not isinstance(item, Reduce) or item.reducer not in _STARTS:
                continue
            empty = _empty(item.ranges, sizes)
            if empty is None or _empty(eq.ranges, sizes) or item not in _taken(eq.rhs, sizes):
                continue
            if any(_decided(c, sizes) is False for c in conjuncts(item.where)):
                continue  # it is the identity where nothing is chosen
            at = ", ".join(f"{name}={sizes[name]}" for name in sizes_of((empty.lo, empty.hi)))
            start, left = _STARTS[item.reducer], print_expr(Access(eq.tensor, eq.lhs))
            accumulated = f"; {left} {item.reducer}= {print_expr(item.body)} starts from {start}"
            raise ShapeError(
                f"{checked.op.name}: {print_expr(item)} has no value{f' at {at}' if at else ''}: "
                f"index {empty.index} runs over nothing"
                + (accumulated if start and item is eq.rhs else "")
                + located(checked.op, n)
            )


def _taken(expr: Expr, sizes: Mapping[str, int]) -> set[Expr]:
    """What of an expression is in no branch that these sizes rule out."""
    found: set[Expr] = set()
    stack = [expr]
    while stack:
        item = stack.pop()
        if item in found:
            continue
        found.add(item)
        match item:
            case Call("where", (condition, yes, no)):
                holds = _decided(condition, sizes)
                branches = ((yes, holds is not False), (no, holds is not True))
                stack += [condition, *(branch for branch, taken in branches if taken)]
            case _:
                stack += children(item)
    return found


def _decided(condition: Expr, sizes: Mapping[str, int]) -> bool | None:
    """Whether a condition holds at these sizes, None if that depends."""
    found = normalize(substitute(condition, {Size(n): const(v) for n, v in sizes.items()}))
    return bool(found.value) if isinstance(found, Const) else None


def _empty(ranges: Iterable[Range], sizes: Mapping[str, int]) -> Range | None:
    """The first range that is empty at these sizes, whatever the other indices are."""
    for r in ranges:
        fixed = not indices_of(r.lo) and not indices_of(r.hi)
        if fixed and evaluate(r.hi, sizes) <= evaluate(r.lo, sizes):
            return r
    return None
