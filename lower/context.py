"""What a kernel's code may take for granted of the sizes that are still symbols in it.

Those are dynamic sizes, each from 1 to its maximum, and in a version for some of them
(`sched/loop/specialize.py`) the conditions of that version. In loop IR such a size is a variable of
its own name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..algo import isl
from ..algo.dtypes import i64
from ..algo.errors import InternalError
from ..algo.forked import cached_property
from ..algo.isl import raw
from ..algo.tensor_expr.affine import Interval, bounds, normalize, to_isl
from ..algo.tensor_expr.build import const, maximum, minimum, mul
from ..algo.tensor_expr.expr import Access, Const, Expr, Index, Size, substitute
from ..sched.loop.nest import Nest
from . import ir


@dataclass(frozen=True)
class Context:
    """The symbols with their maxima, and conditions on them."""

    maxima: Mapping[str, int]
    given: tuple[Expr, ...] = ()

    def given_too(self, condition: Expr) -> Context:
        """The context in which a condition holds as well."""
        return replace(self, given=(*self.given, condition))

    @cached_property
    def params(self) -> raw.Set:
        """The values that the symbols can have, as a set of parameters alone."""
        conditions = [f"1 <= {isl.ident(name)} <= {most}" for name, most in self.maxima.items()]
        conditions += map(to_isl, self.given)
        text = f" {' and '.join(conditions)}" if conditions else ""
        return isl.parse_set(f"{self.prefix}{{ :{text} }}")

    def is_empty(self) -> bool:
        """Can the symbols have no value at all?"""
        return isl.is_empty(self.params) is isl.Answer.YES

    @property
    def prefix(self) -> str:
        """`[B, N] -> `, with which isl's text about the symbols begins."""
        return isl.prefix(list(self.maxima))

    @property
    def values(self) -> dict[Expr, Expr]:
        """The variables of loop IR that stand for the symbols."""
        return {Size(name): Index(name) for name in self.maxima}

    @property
    def ranges(self) -> dict[str, Interval]:
        """The bounds of those variables."""
        return {name: (1, most) for name, most in self.maxima.items()}

    def set(self, dims: Sequence[str], conditions: Sequence[str]) -> raw.Set:
        """`{ [dims] : conditions }` for the values that the symbols can have."""
        return isl.make_set(dims, conditions, list(self.maxima)).intersect_params(self.params)

    def map(
        self, dims: Sequence[str], images: Sequence[str], conditions: Sequence[str] = ()
    ) -> raw.Map:
        """`{ [dims] -> [images] : conditions }` for the values that the symbols can have."""
        made = isl.make_map(dims, images, conditions, list(self.maxima))
        return made.intersect_params(self.params)


NOTHING = Context({})
"""All sizes are numbers."""


def context_of(nest: Nest) -> Context:
    """The context of a nest whose other sizes are bound."""
    checked, sizes = nest.kernel.checked, nest.kernel.sizes
    free = [name for name in checked.sizes if name not in sizes]
    for name in free:
        if name not in checked.op.maxima:
            raise InternalError(f"size {name} of {checked.op.name} is not bound")
    return Context({name: checked.op.maxima[name] for name in free})


class Lengths:
    """The names for extents and strides that depend on symbols, and what they stand for."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.names: dict[Expr, str] = {Index(name): name for name in context.maxima}

    def length(self, value: Expr) -> Expr:
        """A formula for a length over variables; it is no less than 0."""
        value = normalize(substitute(value, self.context.values))
        low = bounds(value, self.context.ranges)[0]
        return value if low is not None and low >= 0 else normalize(maximum(value, const(0)))

    def most(self, length: Expr) -> int:
        """The most that a length can be."""
        most = bounds(length, self.context.ranges)[1]
        if most is None:
            raise InternalError(f"an extent is not bounded: {length!r}")
        return most

    def strides(self, lengths: Sequence[Expr]) -> list[Expr]:
        """The strides of a dense array of these extents."""
        found: list[Expr] = []
        step: Expr = const(1)
        for length in reversed(lengths):
            found.insert(0, step)
            step = normalize(mul(step, length))
        return found

    def name(self, value: Expr) -> int | str:
        """A length as buffers of loop IR have it."""
        if isinstance(value, Const):
            return int(value.value)
        return self.names.setdefault(value, f"length.{len(self.names)}")


def parameters(context: Context) -> Iterator[ir.Buffer]:
    """The parameters of a function by which it gets the values of its symbols."""
    for name in context.maxima:
        yield ir.Buffer(parameter(name), i64, (), (), "param", i64.itemsize)


def parameter(size: str) -> str:
    """The name of the parameter that holds a size."""
    return f"{size}.size"


def bound(context: Context, lengths: Lengths, body: ir.Stmt) -> ir.Stmt:
    """`body`, within which the symbols and the lengths have their names."""
    for value, name in reversed(list(lengths.names.items())):
        if name not in context.maxima:
            body = ir.Let(name, value, body)
    for name, most in reversed(list(context.maxima.items())):
        # That it is in range was checked; said here, everything after knows.
        value = minimum(maximum(Access(parameter(name), ()), const(1)), const(most))
        body = ir.Let(name, value, body)
    return body
