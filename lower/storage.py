"""Where the elements of each buffer lie: the window that is stored, its layout, its extents.

A buffer under loop `at` holds what one iteration of that loop touches. For each dimension isl
gives the least coordinate as a function of the loops around; that is the window's origin, and the
largest distance from it, a constant (of all values of dynamic sizes), the extent. A register or
local buffer that lies around loops over GPU threads becomes each thread's own later
(`passes/private.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ..algo.errors import InternalError, UnsupportedError
from ..algo.isl import raw
from ..algo.tensor_expr import build
from ..algo.tensor_expr.affine import bounds, to_isl
from ..algo.tensor_expr.expr import Access, Call, Const, Expr, Index, substitute, walk
from ..sched.loop.nest import Buffer, Nest, Stmt
from ..sched.loop.regions import function_of
from ..sched.loop.storage import cells, touching
from ..sched.loop.tree import loops_to
from . import ir
from .context import Context, Lengths
from .merged import merged

Ranges = dict[str, tuple[int | None, int | None]]

ALIGNMENT = 64
"""Bytes to which memory that we allocate is aligned: a cache line, the widest vector."""


@dataclass(frozen=True, slots=True)
class Window:
    """A buffer's storage. `origin[d]` is over `around`, the loops by name.

    `stored` is the loop IR buffer. `around` gives, for each loop that the origin may name, its
    value for each statement. `folds` are dimensions whose coordinates are kept modulo a number.
    `forms`, over d0, d1, ..., are what is stored by in place of the coordinates themselves.
    """

    stored: ir.Buffer
    origin: tuple[Expr, ...]
    around: Mapping[str, Mapping[str, Expr]]
    layout: tuple[Expr, ...] | None
    folds: Mapping[int, int] = field(default_factory=dict)
    forms: tuple[Expr, ...] | None = None

    def cell(self, stmt: Stmt, coordinates: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The storage index of a tensor's coordinates, both over the dims of `stmt`."""
        loops: dict[Expr, Expr] = {
            Index(name): values[stmt.name]
            for name, values in self.around.items()
            if stmt.name in values
        }
        relative = tuple(
            build.sub(at, substitute(origin, loops))
            for at, origin in zip(_by(self.forms, coordinates), self.origin, strict=True)
        )
        relative = tuple(
            build.mod(at, Const(self.folds[n])) if n in self.folds else at
            for n, at in enumerate(relative)
        )
        if self.layout is None:
            return relative
        names: dict[Expr, Expr] = {Index(f"d{n}"): at for n, at in enumerate(relative)}
        return tuple(substitute(axis, names) for axis in self.layout)


def windows(
    nest: Nest,
    context: Context,
    lengths: Lengths,
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, Window]:
    """The storage of every buffer that a nest uses, its sizes bound or in the context.

    `strides` gives parameters that are not dense (in elements), by name. Call it inside a quota.
    """
    users = touching(nest)
    return {
        name: _param(nest, buffer, lengths, (strides or {}).get(name))
        if buffer.scope == "param"
        else _window(nest, buffer, [nest.stmts[user] for user in users[name]], context, lengths)
        for name, buffer in nest.buffers.items()
        if buffer.scope == "param" or users[name]
    }


def _lengths(nest: Nest, buffer: Buffer, lengths: Lengths) -> list[Expr]:
    return [lengths.length(extent) for extent in nest.kernel.tensors[buffer.tensor].shape]


def _param(nest: Nest, buffer: Buffer, lengths: Lengths, strides: tuple[int, ...] | None) -> Window:
    if buffer.layout is not None:
        raise UnsupportedError(
            f"{buffer.name} is an argument, whose layout is the caller's; stage a copy of it with "
            f"layout= instead"
        )
    extents = _lengths(nest, buffer, lengths)
    shape = tuple(map(lengths.most, extents))
    steps: tuple[int | str, ...] = strides or ir.contiguous(shape)
    named: tuple[int | str, ...] = ()
    if not all(isinstance(extent, Const) for extent in extents):
        named = tuple(map(lengths.name, extents))
        steps = strides or tuple(map(lengths.name, lengths.strides(extents)))
    stored = ir.Buffer(
        buffer.name, buffer.dtype, shape, steps, "param", buffer.dtype.itemsize,
        stream=buffer.stream, extents=named,
    )  # fmt: skip
    return Window(stored, (Const(0),) * buffer.rank, {}, None)


def _window(
    nest: Nest, buffer: Buffer, stmts: Sequence[Stmt], context: Context, lengths: Lengths
) -> Window:
    """The storage of a buffer that these statements use."""
    around = _around(nest, buffer)
    tensor: Ranges | None = None
    if buffer.tensor in nest.kernel.tensors:
        shape = map(lengths.most, _lengths(nest, buffer, lengths))
        tensor = {f"d{n}": (0, extent - 1) for n, extent in enumerate(shape)}
    forms = None
    origins, extents = _placed(stmts, buffer, forms, around, context, tensor)
    if tensor and not (buffer.layout or buffer.fold or buffer.pad or buffer.border):
        for forms_too in merged(nest, stmts, buffer, _lengths(nest, buffer, lengths)):
            found = _placed(stmts, buffer, forms_too, around, context, tensor)
            if prod(found[1]) < prod(extents):
                forms, (origins, extents) = forms_too, found
    folds = {dim: n for dim, n in buffer.fold if n < extents[dim]}
    extents = [folds.get(dim, extent) for dim, extent in enumerate(extents)]
    for dim, multiple in enumerate(buffer.pad):
        extents[dim] = -(-extents[dim] // multiple) * multiple
    stored_shape = tuple(extents)
    if buffer.layout is not None:
        _whole_lines(buffer, extents)
        known: Ranges = {f"d{n}": (0, max(extent - 1, 0)) for n, extent in enumerate(extents)}
        stored_shape = tuple(_axis(buffer, axis, known) for axis in buffer.layout)
    strides = ir.contiguous(stored_shape)
    align = max(ALIGNMENT, buffer.align)
    stored = ir.Buffer(
        buffer.name, buffer.dtype, stored_shape, strides, buffer.scope, align, stream=buffer.stream
    )
    return Window(stored, tuple(origins), around, buffer.layout, folds, forms)


def _whole_lines(buffer: Buffer, extents: list[int]) -> None:
    """Rows of panels that may be whole cache lines are, so that vectors in them are aligned."""
    line = ALIGNMENT // buffer.dtype.itemsize
    match buffer.layout:
        case (*_, Call("mod", (Index(name), Const(size)))) if int(size) % line == 0:
            dim = int(name.removeprefix("d"))
            extents[dim] = -(-extents[dim] // line) * line


def _placed(
    stmts: Sequence[Stmt],
    buffer: Buffer,
    forms: tuple[Expr, ...] | None,
    around: Mapping[str, Mapping[str, Expr]],
    context: Context,
    tensor: Ranges | None,
) -> tuple[list[Expr], list[int]]:
    """The origin and the extents of what is stored: all of the tensor where data say what."""
    origins: list[Expr] = []
    extents: list[int] = []
    for dim in range(buffer.rank if forms is None else len(forms)):
        touched = _touched(stmts, buffer, forms, dim, around, context)
        if touched is None:
            if tensor is None:
                raise InternalError(f"{buffer.name} has no shape for accesses that depend on data")
            low, high = bounds(Index(f"d{dim}") if forms is None else forms[dim], tensor)
            assert low is not None and high is not None  # so are the tensor's coordinates
            origins.append(Const(low))
            extents.append(high - low + 1)
        else:
            origin, extent = _hull(touched, list(around))
            origins.append(origin)
            extents.append(extent)
    return origins, extents


def _by(forms: tuple[Expr, ...] | None, coordinates: tuple[Expr, ...]) -> tuple[Expr, ...]:
    if forms is None:
        return coordinates
    names: dict[Expr, Expr] = {Index(f"d{n}"): at for n, at in enumerate(coordinates)}
    return tuple(substitute(form, names) for form in forms)


def _axis(buffer: Buffer, axis: Expr, known: Ranges) -> int:
    low, high = bounds(axis, known)
    if low is None or low < 0 or high is None:
        raise UnsupportedError(f"layout of {buffer.name}: an axis must be bounded and start at 0")
    return high + 1


def _around(nest: Nest, buffer: Buffer) -> dict[str, Mapping[str, Expr]]:
    """The loops whose values the window fixes, outermost first: those down to `at`."""
    return {loop.name: loop.values for loop in loops_to(nest.tree, buffer.at)}


def _touched(
    stmts: Sequence[Stmt],
    buffer: Buffer,
    forms: tuple[Expr, ...] | None,
    dim: int,
    around: Mapping[str, Mapping[str, Expr]],
    context: Context,
) -> raw.Map | None:
    """{ [loops around] -> [coordinate] } of all accesses, or None where one depends on data."""
    total: raw.Map | None = None
    for stmt in stmts:
        for cell in dict.fromkeys(cells(stmt, buffer.name)):
            at = _by(forms, cell)[dim]
            if any(isinstance(item, Access) for item in walk(at)):
                return None
            conditions = [to_isl(cond) for cond in stmt.domain]
            outer = [to_isl(values[stmt.name]) for values in around.values()]
            loops = context.map(stmt.dims, outer, conditions)
            touched = loops.reverse().apply_range(context.map(stmt.dims, [to_isl(at)]))
            total = touched if total is None else total.union(touched)
    if total is None:
        raise InternalError(f"buffer {buffer.name} is never accessed")
    return total.coalesce()


def _hull(touched: raw.Map, loops: list[str]) -> tuple[Expr, int]:
    """The origin over the loops around, and the constant extent."""
    if touched.is_empty():
        return Const(0), 0
    lowest = touched.dim_min(0)
    candidates = [raw.PwAff.from_aff(aff) for _, aff in lowest.get_pieces()]
    least = touched.range().dim_min_val(0).to_python()
    candidates.append(raw.PwAff.from_aff(candidates[0].get_pieces()[0][1] * 0 + least))
    best: tuple[int, raw.PwAff] | None = None
    for origin in candidates:
        distance = touched.sum(raw.Map.from_pw_aff(origin.neg())).range()
        if distance.dim_min_val(0).to_python() < 0:
            continue
        extent = distance.dim_max_val(0).to_python() + 1
        if best is None or extent < best[0]:
            best = (extent, origin)
    assert best is not None  # the constant is below everything
    return function_of(best[1], loops, Index), best[0]
