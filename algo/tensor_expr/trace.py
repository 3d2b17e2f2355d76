"""Operators from plain Python functions: the function runs once and its equations are recorded.

    @dt.op
    def matmul(A: f32["M", "K"], B: f32["K", "N"]):
        C = dt.tensor("C")
        C[i, j] = sum(A[i, k] * B[k, j])
        return C

Parameters become tensors; one with a default value is an ordinary Python constant. Loops,
closures and helper functions run as Python. Nothing is cached by name.
"""

from __future__ import annotations

import contextvars
import difflib
import inspect
import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType, TensorType
from ..errors import OpError
from ..location import Loc, caller
from .boundary import KINDS
from .dynamic import Dynamic
from .expr import Access, Boundary, Const, Expr, Range, Size
from .functions import (
    abs,
    all,
    any,
    argmax,
    argmin,
    cast,
    cbrt,
    ceil,
    cos,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    log,
    log1p,
    log2,
    max,
    maximum,
    min,
    minimum,
    prod,
    rsqrt,
    sigmoid,
    sign,
    sin,
    softplus,
    sqrt,
    sum,
    tanh,
    where,
)
from .lexer import fail
from .op import Op, Param
from .reducers import REDUCERS
from .refusing import NoAttribute, error
from .surface import Draft, is_name, make_op
from .terms import Ranged, Term, Value, indices, size, to_expr, to_position
from .together import Together, misfit

__all__ = [
    "Tensor", "Term", "Total", "abs", "all", "any", "argmax", "argmin", "cast", "cbrt", "ceil",
    "cos", "erf", "exp", "exp2", "expm1", "floor", "indices", "log", "log1p", "log2", "max",
    "maximum", "min", "minimum", "prod", "rsqrt", "sigmoid", "sign", "sin", "size", "softplus",
    "sqrt", "sum", "tanh", "tensor", "trace", "where",
]  # fmt: skip


class _Recorder:
    """What one traced function has said so far."""

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.tensors: dict[str, Tensor] = {}
        self.shapes: dict[str, tuple[Expr, ...]] = {}

    def adopt(self, tensor: Tensor) -> None:
        """Makes a tensor known by its name; two tensors of one name are an error."""
        known = self.tensors.setdefault(tensor.name, tensor)
        if known is not tensor:
            raise error(f"two tensors are named {tensor.name}; give one another name")

    def fresh(self, name: str) -> str:
        """`name`, or with a number if a helper function has used it already."""
        count, found = 1, name
        while found in self.tensors:
            found, count = f"{name}_{count}", count + 1
        return found


_RECORDER: contextvars.ContextVar[_Recorder | None] = contextvars.ContextVar(
    "diptych_recorder", default=None
)


class Tensor(Term):
    """A tensor of a traced operator; read as `T[i, j]`, defined by `T[i, j] = e` or `+=`, `*=`.

    Alone in an expression it is read as a tensor of rank 0.
    """

    __slots__ = ("conditions", "name", "ranges", "reducer", "root")

    def __init__(self, name: str) -> None:
        super().__init__(Access(name, ()))
        self.name = name
        self.root = self
        self.ranges: tuple[Range, ...] = ()
        self.conditions: tuple[Expr, ...] = ()
        self.reducer: str | None = None

    def __repr__(self) -> str:
        return self.name

    __hash__ = Term.__hash__

    def where(self, *clauses: Any) -> Tensor:
        """This tensor, defined only where the conditions hold and in the ranges given:
        `c.where(i < j, k.within(0, 3))[i, j] = e`."""
        fresh = self._view()
        fresh.ranges += tuple(c.range for c in clauses if isinstance(c, Ranged))
        fresh.conditions += tuple(to_expr(c) for c in clauses if not isinstance(c, Ranged))
        return fresh

    def accumulate(self, reducer: str) -> Tensor:
        """This tensor, accumulated by a reducer: `m.accumulate("max")[i] = x[i, j]`."""
        if reducer not in REDUCERS:
            raise error(f"unknown reducer {reducer!r}; expected one of {', '.join(REDUCERS)}")
        fresh = self._view()
        fresh.reducer = reducer
        return fresh

    def _view(self) -> Tensor:
        fresh = Tensor(self.name)
        fresh.root = self.root
        fresh.ranges, fresh.conditions, fresh.reducer = self.ranges, self.conditions, self.reducer
        return fresh

    @property
    def edge(self) -> Total:
        """Reads that give the nearest element beyond the ends: `x.edge[i - 1]`."""
        return Total(self.name, Boundary("edge"))

    @property
    def zero(self) -> Total:
        """Reads that give 0 beyond the ends: `x.zero[i - 1]`."""
        return Total(self.name, Boundary("zero"))

    @property
    def reflect(self) -> Total:
        """Reads that mirror once about the end element, then give the nearest element."""
        return Total(self.name, Boundary("reflect"))

    @property
    def wrap(self) -> Total:
        """Reads that start again at the other end; the extents must be numbers."""
        return Total(self.name, Boundary("wrap"))

    def fill(self, value: Any) -> Total:
        """Reads that give a number beyond the ends: `x.fill(1.5)[i - 1]`."""
        number = to_expr(value)
        if not isinstance(number, Const):
            raise error(f"fill takes a number, got {value!r}; choose by dt.where(c, a, b)")
        return Total(self.name, Boundary("fill", number))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise fail(f"tensor {self.name} has no {name}{_instead(name)}", caller(), NoAttribute)

    def __getitem__(self, position: Any) -> Term:
        items = position if isinstance(position, tuple) else (position,)
        return Value(Access(self.name, _positions(items)))

    def __setitem__(self, position: Any, value: Any) -> None:
        recorder = _RECORDER.get()
        if recorder is None:
            raise error(
                f"{self.name}[...] is assigned outside a traced function; write it in a function "
                f"decorated with @dt.op"
            )
        if isinstance(value, Together):
            raise value.refusal()
        recorder.adopt(self.root)
        items = position if isinstance(position, tuple) else (position,)
        lhs = _positions(items)
        ranges = tuple(item.range for item in items if isinstance(item, Ranged)) + self.ranges
        rhs, reducer = to_expr(value), self.reducer
        update = value.update if isinstance(value, Term) else None
        if update is not None and update.access is Access(self.name, lhs):
            if reducer is not None:
                raise error(f"accumulate({reducer!r}) already says how to combine; write =")
            rhs, reducer = update.value, update.reducer
        recorder.drafts.append(
            Draft(self.name, lhs, rhs, ranges, self.conditions, reducer, caller())
        )


def _instead(name: str) -> str:
    """What may have been meant by an attribute of a tensor."""
    near = difflib.get_close_matches(name, KINDS, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]}?"
    if name == "T":
        return "; write the indices in the other order, as in x[j, i]"
    if name in ("shape", "size", "ndim"):
        return "; name its sizes, as in f(x: f32['N']), and use dt.size('N')"
    return "; it is read by indices, as in x[i, j], and functions are called as in dt.sum(x[i, j])"


@dataclass(frozen=True, slots=True)
class Total:
    """A tensor with a boundary, to be read by index: `x.edge[i - 1]`."""

    name: str
    boundary: Boundary

    def __getitem__(self, position: Any) -> Term:
        items = position if isinstance(position, tuple) else (position,)
        return Value(Access(self.name, _positions(items), self.boundary))


def _positions(items: Sequence[Any]) -> tuple[Expr, ...]:
    return tuple(
        to_expr_of_range(item) if isinstance(item, Ranged) else to_position(item) for item in items
    )


def to_expr_of_range(item: Ranged) -> Expr:
    """The index of `i.within(0, N)`."""
    from .expr import Index

    return Index(item.range.index)


def tensor(name: str, shape: Any = None) -> Tensor:
    """A tensor to be defined. `shape` declares its extents (sizes by name, whole numbers), needed
    where the left side depends on data. A name that is taken gets a number: `h`, `h_1`."""
    if not isinstance(name, str) or not is_name(name):
        raise error(f"{name!r} cannot name a tensor; expected a name such as C")
    recorder = _RECORDER.get()
    if recorder is None:
        if shape is not None:
            raise error(
                f"the shape of {name} is declared outside a traced function; write it in a "
                f"function decorated with @dt.op"
            )
        return Tensor(name)
    made = Tensor(recorder.fresh(name))
    recorder.adopt(made)
    if shape is not None:
        items = shape if isinstance(shape, tuple | list) else (shape,)
        recorder.shapes[made.name] = tuple(
            Size(d) if isinstance(d, str) else to_position(d) for d in items
        )
    return made


def trace(fn: Callable[..., Any], name: str | None = None) -> Op:
    """The operator that `fn` describes, called `name` or like the function.

    Raises `OpError` at the line of the equation that is wrong, or at the function.
    """
    where = _definition(fn)
    recorder = _Recorder()
    params: list[Param] = []
    args: dict[str, Any] = {}
    maxima: dict[str, int] = {}
    for p in _parameters(fn, where):
        params.append(Param(p.name, _annotation(p, fn, where, maxima)))
        args[p.name] = Tensor(p.name)
        recorder.adopt(args[p.name])
    token = _RECORDER.set(recorder)
    try:
        result = fn(**args)
    except ValueError as err:
        if (told := misfit(err)) is None:
            raise
        raise told from None
    finally:
        _RECORDER.reset(token)
    if not recorder.drafts:
        raise fail(
            f"{fn.__name__} defines no tensor; expected an equation such as C[i, j] = ...",
            where,
            OpError,
        )
    title = name or (fn.__name__ if is_name(fn.__name__) else None)
    returns = _returned(result, fn.__name__, where)
    return make_op(title, recorder.drafts, params, returns, recorder.shapes, where, maxima)


def _definition(fn: Callable[..., Any]) -> Loc:
    code = getattr(fn, "__code__", None)
    if code is None:
        raise error(f"expected a function written in Python or the text of an operator, got {fn!r}")
    line = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    return Loc(code.co_filename, code.co_firstlineno, None, line or None)


def _parameters(fn: Callable[..., Any], where: Loc) -> list[inspect.Parameter]:
    """The parameters that are tensors: those without a default."""
    out: list[inspect.Parameter] = []
    for p in inspect.signature(fn).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise fail(
                f"parameter *{p.name} of {fn.__name__} has no fixed number of tensors; "
                f"name each one",
                where,
                OpError,
            )
        if p.kind is p.POSITIONAL_ONLY:
            raise fail(
                f"parameter {p.name} of {fn.__name__} is positional only; tensors are called by "
                f"name, remove the /",
                where,
                OpError,
            )
        if p.default is p.empty:
            out.append(p)
    return out


def _annotation(
    p: inspect.Parameter, fn: Callable[..., Any], where: Loc, maxima: dict[str, int]
) -> TensorType:
    """The tensor type in an annotation; annotations of other kinds say nothing to us.

    What it says of dynamic sizes goes into `maxima`.
    """
    said = p.annotation
    if isinstance(said, str):
        scope = {**vars(dtypes), **dtypes.BY_NAME, **fn.__globals__, **_closure(fn)}
        try:
            said = eval(said, scope)
        except Exception as problem:
            raise fail(
                f"the annotation of {p.name} does not evaluate ({problem}); expected a type such "
                f'as f32["M", "K"], or none',
                where,
                OpError,
            ) from None
    if isinstance(said, DType):
        return TensorType(said, None)
    if not isinstance(said, TensorType):
        return TensorType(None, None)
    if said.dims is None:
        return said
    return TensorType(said.dtype, tuple(_dim(d, p.name, maxima) for d in said.dims))


def _dim(value: Any, param: str, maxima: dict[str, int]) -> str | int:
    if isinstance(value, Dynamic):
        most = maxima.setdefault(value.name, value.max)
        if most != value.max:
            raise error(
                f"size {value.name} is declared dynamic with at most {most}, and for {param} with "
                f"at most {value.max}"
            )
        return value.name
    if isinstance(value, Term) and isinstance(value.expr, Size):
        return value.expr.name
    if isinstance(value, str) and is_name(value):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 0:
        return int(value)
    raise error(f"{value!r} is no size of {param}; expected a name or a whole number")


def _closure(fn: Callable[..., Any]) -> dict[str, Any]:
    found = inspect.getclosurevars(fn) if inspect.isfunction(fn) else None
    return dict(found.nonlocals) if found else {}


def _returned(result: Any, name: str, where: Loc) -> list[str]:
    items = result if isinstance(result, tuple | list) else (result,)
    for item in items:
        if isinstance(item, Tensor):
            continue
        if isinstance(item, Term):
            what = f"the expression {item!r}"
        else:
            what = "nothing" if item is None else repr(item)
        raise fail(
            f"{name} returns {what}; expected a tensor: C = dt.tensor('C'), C[i] = ..., return C",
            where,
            OpError,
        )
    return [item.name for item in items]
