"""From what a user wrote, in text or in Python, to an `Op`: the rules that both forms share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import OpError
from ..location import Loc
from .binding import BindingError, bind
from .components import cycles_of
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
    walk,
)
from .folds import groups
from .joint import unified
from .lexer import fail
from .op import Equation, Op, Param
from .operations import OPERATIONS
from .reducers import EXTREMES


@dataclass(slots=True)
class Draft:
    """An equation as written: open reductions, and its ranges and conditions undistributed.

    `spots` says where a name stands, for the caret; without an entry the error is at `loc`.
    """

    tensor: str
    lhs: tuple[Expr, ...]
    rhs: Expr
    ranges: tuple[Range, ...]
    conditions: tuple[Expr, ...]
    reducer: str | None
    loc: Loc
    spots: Mapping[str, Loc] = field(default_factory=dict)

    def error(self, message: str, name: str = "") -> OpError:
        """An error at the place of `name` in this equation."""
        return fail(message, self.spots.get(name, self.loc), OpError)


def make_op(
    name: str | None,
    drafts: Sequence[Draft],
    params: Sequence[Param] | None,
    returns: Sequence[str] | None,
    shapes: Mapping[str, tuple[Expr, ...]],
    loc: Loc,
    maxima: Mapping[str, int] | None = None,
) -> Op:
    """The op of these equations. Without `params`: the tensors read and never defined, in order
    of first appearance; without `returns`: those defined and not read, or else the last.

    Raises `OpError` for whatever no later stage could make sense of: an index that nothing binds,
    a tensor defined twice or read before it is defined or with two ranks.
    """
    if not drafts:
        raise fail("an operator has at least one equation: T[i] = ...", loc, OpError)
    drafts = unified(drafts)
    _check_targets(drafts, {p.name for p in params or ()})
    equations = tuple(map(_equation, drafts))
    _ranks(drafts, params or ())
    inputs = tuple(params) if params is not None else _inputs([_draft(eq) for eq in equations])
    _single_assignment(drafts, {p.name for p in inputs})
    _names(drafts, inputs, shapes)
    out = _returns(drafts, returns, loc)
    formulas = {p.name for p in inputs if p.type.dims is None}  # extents a header cannot say
    for tensor in shapes:
        if tensor not in {d.tensor for d in drafts} | formulas:
            raise fail(
                f"a shape is declared for {tensor}, which no equation defines; "
                f"an input's shape belongs to the header",
                loc,
                OpError,
            )
    locations = tuple(d.loc for d in drafts)
    return Op(name or out[0], inputs, equations, out, dict(shapes), locations, dict(maxima or {}))


def _equation(draft: Draft) -> Equation:
    """The draft with its reductions closed and its conditions where they belong."""
    left = [name for expr in draft.lhs for name in indices_of(expr)]
    seen: set[str] = set()
    for r in draft.ranges:
        if r.index in seen:
            raise draft.error(f"index {r.index} has two ranges", r.index)
        seen.add(r.index)
    if draft.reducer is None:
        _check_left(draft)
    try:
        bound = bind(draft.rhs, left, draft.ranges, draft.conditions, draft.reducer is not None)
    except BindingError as problem:
        raise draft.error(str(problem), problem.name) from None
    for item in walk(bound.rhs):
        if isinstance(item, Reduce) and item.reducer in EXTREMES:
            _check_extreme(draft, item)
    where: Expr | None = None
    for condition in bound.conditions:
        where = condition if where is None else Call("and", (where, condition))
    return Equation(draft.tensor, draft.lhs, bound.rhs, bound.ranges, where, draft.reducer)


def _check_extreme(draft: Draft, item: Reduce) -> None:
    if len(item.indices) != 1:
        raise draft.error(
            f"{item.reducer} gives one index and reduces over {', '.join(item.indices)}; "
            f"name the one with over=, and reduce over the others inside",
            str(item.reducer),
        )
    if item.dtype is not None:
        raise draft.error(
            f"{item.reducer} gives an index, an i64; to have another type cast it: "
            f"{item.dtype}({item.reducer}(...))",
            str(item.reducer),
        )


def _check_targets(drafts: Sequence[Draft], inputs: set[str]) -> None:
    for draft in drafts:
        if (name := draft.tensor) in inputs:
            raise draft.error(f"{name} is an input and cannot be assigned; use a new name", name)


def _check_left(draft: Draft) -> None:
    """A plain equation writes each element once: its left side must not depend on data."""
    for expr in draft.lhs:
        for item in walk(expr):
            if isinstance(item, Access):
                raise draft.error(
                    f"the left side of an equation with = depends on data ({item.tensor}); "
                    f"several instances may write one element: use +=",
                    item.tensor,
                )
    for item in walk(draft.rhs):
        if isinstance(item, Access) and item.tensor == draft.tensor and item.indices == draft.lhs:
            raise draft.error(
                f"{draft.tensor} reads the element that it defines; to accumulate write +=",
                draft.tensor,
            )


def _reads(draft: Draft) -> list[Access]:
    """Every access of the equation, in order of appearance, its conditions and ranges included."""
    roots = [*draft.lhs, draft.rhs, *draft.ranges, *draft.conditions]
    return [item for root in roots for item in _in_order(root) if isinstance(item, Access)]


def _in_order(expr: Expr) -> list[Expr]:
    out: dict[Expr, None] = {}
    stack = [expr]
    while stack:
        item = stack.pop()
        if item not in out:
            out.setdefault(item)
            stack.extend(reversed(children(item)))
    return list(out)


def _inputs(drafts: Sequence[Draft]) -> tuple[Param, ...]:
    defined = {draft.tensor for draft in drafts}
    names = dict.fromkeys(a.tensor for draft in drafts for a in _reads(draft))
    return tuple(Param(name) for name in names if name not in defined)


def _ranks(drafts: Sequence[Draft], params: Sequence[Param]) -> None:
    ranks = {p.name: len(p.type.dims) for p in params if p.type.dims is not None}
    for draft in drafts:
        uses = [(draft.tensor, len(draft.lhs))]
        uses += [(access.tensor, len(access.indices)) for access in _reads(draft)]
        for tensor, rank in uses:
            known = ranks.setdefault(tensor, rank)
            if known != rank:
                raise draft.error(
                    f"{tensor} has {_indices(rank)} here and {_indices(known)} elsewhere",
                    f"{tensor}[{rank}]",
                )


def _indices(count: int) -> str:
    return "1 index" if count == 1 else f"{count} indices"


def _single_assignment(drafts: Sequence[Draft], inputs: set[str]) -> None:
    """Inputs are not assigned, equations of one tensor stand together, reads follow definitions.

    Those that need each other, or are defined together, may be defined in any order.
    """
    last: str | None = None
    done: set[str] = set()
    together = [group for group in groups(drafts) if len(group) > 1]
    reads = [(d.tensor, {access.tensor for access in _reads(d)}) for d in drafts]
    cycles = cycles_of(reads, together)
    circles = Counter(cycles.values())
    apart = {drafts[n].tensor for group in together for n in group}
    for draft in drafts:
        name = draft.tensor
        circle = cycles.get(name, -1)
        if name != last and name in done and circles[circle] < 2 and name not in apart:
            raise draft.error(
                f"{name} is defined twice; the equations of one tensor stand together", name
            )
        if name in done and draft.reducer is not None:
            raise draft.error(f"{name} is defined twice; its first equation is already final", name)
        for access in _reads(draft):
            tensor = access.tensor
            if tensor == name and draft.reducer is not None:
                raise draft.error(
                    f"{name} is read while it is accumulated; accumulate into a new tensor", name
                )
            ready = tensor in done or tensor == name or cycles.get(tensor) == circle
            if tensor not in inputs and not ready:
                raise draft.error(
                    f"{tensor} is read here but defined by no equation above and is no input",
                    tensor,
                )
        done.add(name)
        last = name


def _names(
    drafts: Sequence[Draft], inputs: Sequence[Param], shapes: Mapping[str, tuple[Expr, ...]]
) -> None:
    """One name is one thing: a tensor, a size or an index."""
    tensors = {p.name for p in inputs} | {draft.tensor for draft in drafts}
    sizes = {d for p in inputs for d in p.type.dims or () if isinstance(d, str)}
    roots = [e for d in drafts for e in (d.rhs, *d.lhs, *d.ranges, *d.conditions)]
    roots += [e for dims in shapes.values() for e in dims]
    sizes |= {item.name for root in roots for item in walk(root) if isinstance(item, Size)}
    for draft in drafts:
        for root in (*draft.lhs, draft.rhs):
            for item in walk(root):
                name = item.name if isinstance(item, Index) else None
                if name in tensors:
                    raise draft.error(f"{name} is both an index and a tensor; rename one", name)
                if name in sizes:
                    raise draft.error(f"{name} is both an index and a size; rename one", name)
    for draft in drafts:
        for name in sorted(tensors & sizes):
            raise draft.error(f"{name} is both a tensor and a size; rename one", name)


def _returns(drafts: Sequence[Draft], asked: Sequence[str] | None, loc: Loc) -> tuple[str, ...]:
    defined = list(dict.fromkeys(draft.tensor for draft in drafts))
    if asked is None:
        read = {a.tensor for d in drafts for a in _reads(d) if a.tensor != d.tensor}
        unread = [name for name in defined if name not in read]
        return tuple(unread or defined[-1:])
    if not asked:
        raise fail("an operator returns at least one tensor", loc, OpError)
    for name in asked:
        if name not in defined:
            raise fail(
                f"{name} is returned but not defined; defined are {', '.join(defined)}",
                loc,
                OpError,
            )
    if len(set(asked)) != len(asked):
        raise fail("a tensor is returned twice", loc, OpError)
    return tuple(asked)


def default_params(op: Op) -> tuple[Param, ...]:
    """The parameters that text without a header would have."""
    return _inputs([_draft(eq) for eq in op.equations])


def default_returns(op: Op) -> tuple[str, ...]:
    """What text without a header would return."""
    return _returns([_draft(eq) for eq in op.equations], None, Loc("", 0))


def _draft(eq: Equation) -> Draft:
    where = () if eq.where is None else (eq.where,)
    return Draft(eq.tensor, eq.lhs, eq.rhs, eq.ranges, where, eq.reducer, Loc("", 0))


def typed(value: bool | int | float, dtype: object) -> bool:
    """Is `dtype(value)` a literal of that type, rather than a conversion?"""
    from ..dtypes import DType

    assert isinstance(dtype, DType)
    if isinstance(value, bool):
        return dtype.kind == "b"
    if isinstance(value, float):
        return dtype.is_float
    if dtype.is_int:
        low = 0 if dtype.kind == "u" else -(1 << (dtype.bits - 1))
        return low <= value < low + (1 << dtype.bits)
    return dtype.is_float


FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def compare(op: str, a: Expr, b: Expr) -> Expr:
    """A comparison with its literal on the right: Python asks `i >= 0` for `0 <= i`."""
    if isinstance(a, Const) and not isinstance(b, Const):
        return Call(FLIPPED[op], (b, a))
    return Call(op, (a, b))


def not_a_condition(op: str, a: Expr, b: Expr) -> str | None:
    """What is wrong with `a & b` or `a | b` where one of them is certainly a number."""
    if op not in ("and", "or"):
        return None
    number = next((e for e in (a, b) if _is_number(e)), None)
    if number is None:
        return None
    from .printer import print_expr  # which needs this file

    symbol = OPERATIONS[op].symbol
    return (
        f"{symbol} joins conditions, and {print_expr(number)} is a number; {symbol} binds tighter "
        f"than comparisons, so write (a < b) {symbol} (c < d)"
    )


def _is_number(expr: Expr) -> bool:
    if isinstance(expr, Const):
        return not isinstance(expr.value, bool)
    return isinstance(expr, (Index, Size)) or (
        isinstance(expr, Call) and expr.symbol in ("+", "-", "/", "//", "%", "**")
    )


RESERVED = frozenset(("True", "False", "inf", "nan", "where", "in", "and", "or", "not"))


def is_name(text: str) -> bool:
    """Can this name a tensor, an index or a size?"""
    return isinstance(text, str) and text.isidentifier() and text not in RESERVED
