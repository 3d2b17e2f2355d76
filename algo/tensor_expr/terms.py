"""The operands of traced code: expressions with Python's operators.

A `Term` wraps an `Expr`, so that expression nodes stay pure values that compare by identity. The
subclasses are siblings: were one the subclass of another, Python would try its reflected
comparison first and `a < i` would become `i > a`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import BY_NAME, DType, bool_, from_numpy
from ..errors import DTypeError
from .expr import Access, Call, Cast, Const, Expr, Index, Range, Size
from .operations import FUNCTIONS, numpy_call, of_numpy
from .refusing import Refusing, error
from .surface import compare, is_name, not_a_condition, typed


class Term(Refusing):
    """A scalar expression in traced code. Comparisons give expressions, not truth."""

    __slots__ = ("expr", "update")

    def __init__(self, expr: Expr, update: Update | None = None) -> None:
        self.expr = expr
        self.update = update

    def __repr__(self) -> str:
        from .printer import print_expr

        return print_expr(self.expr)

    def __hash__(self) -> int:
        return hash(self.expr)

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Term:
        """What NumPy's functions do, and operators with NumPy's scalars on their left."""
        operation = of_numpy(ufunc, method, options)
        if operation is None:
            raise error(
                f"{numpy_call(ufunc, method, options)} has no meaning for {self!r}; there are "
                f"{', '.join(f'dt.{name}' for name in FUNCTIONS)}, and reductions such as dt.sum"
            )
        # NumPy makes arrays of the scalars that it compares with.
        operands = tuple(o[()] if isinstance(o, np.ndarray) and not o.ndim else o for o in operands)
        if len(operands) == 1:
            return Value(Call(operation, (self.expr,)))
        compared = operation in ("lt", "le", "gt", "ge", "eq", "ne")
        return (comparison if compared else binary)(operation, *operands)

    def __cast__(self, dtype: DType) -> Term:
        return Value(Cast(dtype, self.expr))

    # Arithmetic

    def __add__(self, other: Any) -> Term:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Term:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Term:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> Term:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> Term:
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> Term:
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> Term:
        return binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Term:
        return binary("div", other, self)

    def __floordiv__(self, other: Any) -> Term:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Term:
        return binary("floordiv", other, self)

    def __mod__(self, other: Any) -> Term:
        return binary("mod", self, other)

    def __rmod__(self, other: Any) -> Term:
        return binary("mod", other, self)

    def __pow__(self, other: Any) -> Term:
        return binary("pow", self, other)

    def __rpow__(self, other: Any) -> Term:
        return binary("pow", other, self)

    def __and__(self, other: Any) -> Term:
        return binary("and", self, other)

    def __rand__(self, other: Any) -> Term:
        return binary("and", other, self)

    def __or__(self, other: Any) -> Term:
        return binary("or", self, other)

    def __ror__(self, other: Any) -> Term:
        return binary("or", other, self)

    def __neg__(self) -> Term:
        return Value(Call("neg", (self.expr,)))

    def __pos__(self) -> Term:
        return self

    def __invert__(self) -> Term:
        return Value(Call("not", (self.expr,)))

    def __abs__(self) -> Term:
        return Value(Call("abs", (self.expr,)))

    # `T[i] += e` reads T[i], updates it and stores it again; the store recognises the update.

    def __iadd__(self, other: Any) -> Term:
        return binary("add", self, other, update="sum")

    def __imul__(self, other: Any) -> Term:
        return binary("mul", self, other, update="prod")

    # Comparisons

    def __lt__(self, other: Any) -> Term:
        return comparison("lt", self, other)

    def __le__(self, other: Any) -> Term:
        return comparison("le", self, other)

    def __gt__(self, other: Any) -> Term:
        return comparison("gt", self, other)

    def __ge__(self, other: Any) -> Term:
        return comparison("ge", self, other)

    def __eq__(self, other: object) -> Term:  # type: ignore[override]
        return comparison("eq", self, other)

    def __ne__(self, other: object) -> Term:  # type: ignore[override]
        return comparison("ne", self, other)


@dataclass(frozen=True, slots=True)
class Update:
    """How a term came from an access: `access` combined with `value` by `reducer`."""

    access: Expr
    reducer: str
    value: Expr


class Value(Term):
    """The result of an operation or an access; also a size."""

    __slots__ = ()

    def __getitem__(self, position: Any) -> Term:
        read = isinstance(self.expr, Access) and self.expr.indices
        more = "; write all indices together, as in x[i, j]" if read else ""
        raise error(f"{self} is one number and has no elements{more}")


class IndexTerm(Term):
    """An index."""

    __slots__ = ()

    def within(self, lo: Any, hi: Any = None) -> Ranged:
        """This index with the range lo:hi (hi exclusive), or 0:lo; sizes may be given by name."""
        if hi is None:
            lo, hi = 0, lo
        assert isinstance(self.expr, Index)
        return Ranged(Range(self.expr.name, _bound(lo), _bound(hi)))


@dataclass(frozen=True, slots=True)
class Ranged:
    """An index with its range, for a left side, `over=` and `tensor.where(...)`."""

    range: Range

    def __repr__(self) -> str:
        from .printer import print_expr

        return print_expr(self.range)


def indices(names: str) -> Any:
    """`indices("i j k")`: one index term a name, separated by spaces or commas."""
    if not isinstance(names, str):
        raise error(f'expected names of indices, as in dt.indices("i j k"), got {names!r}')
    found = names.replace(",", " ").split()
    for name in found:
        if not is_name(name):
            raise error(f"{name!r} cannot name an index; expected a name such as i")
    if not found:
        raise error('no index is named; expected dt.indices("i j k")')
    terms = tuple(IndexTerm(Index(name)) for name in found)
    return terms if len(terms) > 1 else terms[0]


def size(name: str) -> Term:
    """The size symbol `name`, as in `x[size("N") - 1 - i]`."""
    if not is_name(name):
        raise error(f"{name!r} cannot name a size; expected a name such as N")
    return Value(Size(name))


def binary(op: str, a: Any, b: Any, update: str | None = None) -> Term:
    """`a op b`; with `update`, remembers that `a` was updated in place."""
    left, right = to_expr(a), to_expr(b)
    wrong = not_a_condition(op, left, right)
    if wrong is not None:
        raise error(wrong)
    isaccess = update is not None and isinstance(left, Access)
    return Value(
        Call(op, (left, right)), Update(left, update, right) if update and isaccess else None
    )


def comparison(op: str, a: Any, b: Any) -> Term:
    """`a op b` for lt, le, gt, ge, eq, ne."""
    return Value(compare(op, to_expr(a), to_expr(b)))


def to_expr(value: Any) -> Expr:
    """The expression of a term or number. A NumPy scalar is a literal of its own type."""
    if isinstance(value, Term):
        return value.expr
    if isinstance(value, np.generic):
        return number(value.item(), from_numpy(value.dtype), value)
    if isinstance(value, bool | int | float):
        return Const(value)
    if isinstance(value, Ranged):
        raise error(
            f"the range {value!r} stands inside an expression; "
            f"give it on the left side or in over=, and use the index itself here"
        )
    if isinstance(value, np.ndarray):
        raise error(
            f"an array of shape {value.shape} stands inside an expression; "
            f"make it a parameter of the function and read it as A[i]"
        )
    raise error(f"expected an expression or a number, got {value!r} ({type(value).__name__})")


def number(value: bool | int | float, dtype: DType, exact: Any = None) -> Expr:
    """A literal of type `dtype`, written as short as that type allows."""
    if isinstance(value, float) and exact is not None and dtype.bits < 64:
        short = float(str(exact))
        value = short if dtype.numpy.type(short) == exact else value
    return Const(value, dtype) if typed(value, dtype) else Cast(dtype, Const(value))


def to_dtype(value: Any) -> DType:
    """One of our element types, from itself, its name or NumPy's or Python's."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in BY_NAME:
        return BY_NAME[value]
    if value is bool:
        return bool_
    try:
        return from_numpy(value)
    except (TypeError, DTypeError):
        known = ", ".join(BY_NAME)
        raise error(f"{value!r} is no element type; expected one of {known}") from None


def to_position(value: Any) -> Expr:
    """What stands in one index position."""
    if isinstance(value, slice):
        raise error("slices are not part of the language; write an index for each dimension")
    if isinstance(value, np.integer):
        return Const(int(value))
    if isinstance(value, bool) or not isinstance(value, Term | int | Ranged):
        shown = " ".join(repr(value).split())
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        advice = "write an index for each dimension"
        if isinstance(value, list | np.ndarray):
            advice = "to choose elements by data, pass the indices as a tensor, as in x[at[n], j]"
        raise error(f"expected an index expression or a whole number, got {shown}; {advice}")
    return to_expr(value)


def _bound(value: Any) -> Expr:
    return size(value).expr if isinstance(value, str) else to_position(value)
