"""Compiled operators: NumPy arrays in, NumPy arrays out.

`compile_op` glues the layers: check, types, schedule, nest, loop IR, machine code. A `Compiled`
is for given shapes and types; what strides, alignment and `out=` it meets it specialises for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..algo.dtypes import DType, bf16
from ..algo.errors import DTypeError, ShapeError, check_count, counted
from ..algo.forked import cached_property
from ..algo.tensor_expr.op import Op
from ..algo.tensor_expr.settle import settled
from .aliasing import may_write_over
from .dispatch import PLACES, Dispatch, Entry, signature_of
from .native import NativeKernel
from .recent import Recent
from .signature import Form, Signature
from .specialize import building, specialize

if TYPE_CHECKING:
    from ..sched.loop.schedule import Schedule

Array = np.ndarray[Any, Any]
Types = Sequence[tuple[DType, tuple[int, ...]]]


def compile_op(
    op: Op,
    types: Types,
    schedule: Schedule | None = None,
    *,
    strides: Sequence[tuple[int, ...]] | None = None,
    bfloat: np.dtype[Any] = bf16.numpy,
) -> Compiled:
    """`op` for inputs of these element types and shapes, under `schedule` or the default one.

    `strides` are the inputs' strides in bytes, dense where not given; `bfloat` is the NumPy type
    that results of type bf16 get. Raises what the layers raise: `ShapeError`, `DTypeError`,
    `ScheduleError` where the schedule does not fit.
    """
    compiled = Compiled(op, types, schedule, bfloat)
    compiled.prepare(strides)
    return compiled


class Compiled:
    """An operator at given shapes and types. Calls may come from several threads at once."""

    def __init__(
        self,
        op: Op,
        types: Types,
        schedule: Schedule | None,
        bfloat: np.dtype[Any] = bf16.numpy,
    ) -> None:
        if len(types) != len(op.params):
            raise ShapeError(
                f"{op.name} takes {counted(len(op.params), 'array')}, types of {len(types)} given"
            )
        op = settled(op, {p.name: s for p, (_, s) in zip(op.params, types, strict=True)})
        self.op, self.schedule, self.bfloat = op, schedule, bfloat
        self.signature = Signature(op, tuple((t, tuple(shape)) for t, shape in types))
        self._results = [
            (shape, bfloat if kind is bf16 else dtype)
            for (shape, dtype), kind in zip(
                self.signature.results, self.signature.returned, strict=True
            )
        ]
        self._kernels: dict[Form, NativeKernel] = {}
        self._entries: Recent[Any, Entry] = Recent(PLACES)
        self._made: NativeKernel | None = None
        self._over: dict[tuple[str, str], bool] = {}

    @cached_property
    def _dispatch(self) -> Dispatch[NativeKernel]:
        return Dispatch()

    def __reduce__(self) -> tuple[Any, ...]:
        # kernels are made again
        return Compiled, (self.op, self.signature.types, self.schedule, self.bfloat)

    def __repr__(self) -> str:
        types = (
            f"{p.name} {dtype}[{','.join(map(str, shape))}]"
            for p, (dtype, shape) in zip(self.op.params, self.signature.types, strict=True)
        )
        return f"<{self.op.name} compiled for {', '.join(types)}>"

    def prepare(self, strides: Sequence[tuple[int, ...]] | None = None) -> None:
        """Compiles for arrays of these strides in bytes, dense ones by default."""
        given: Sequence[Any] = strides or [None] * len(self.op.params)
        self._kernel(Form(self._unusual(given, [None] * len(self.op.returns))))

    def __call__(self, *arrays: Array, out: Any = None) -> Any:
        """The result, or a tuple of them; `out`, an array or a tuple of arrays, takes them.

        Raises `ShapeError` or `DTypeError` for arrays of other shapes or types, and for an `out`
        that does not fit, cannot be written, or overlaps an input.
        """
        outs = outputs(out)
        found = self._dispatch.call(arrays, outs, len(self.op.params))
        if found is None:
            entry = self.entry(arrays, outs)
            found = self._dispatch.admit(entry, entry.kernel, arrays, outs)
        return found if outs is None else out

    def entry(self, arrays: Sequence[Array], outs: Sequence[Array] | None) -> Entry:
        """What may be called on arrays like these, and on outputs like these if they are given."""
        self._check_inputs(arrays)
        given = outs is not None
        if outs is not None:
            self._check_outs(outs)
        same = self._overlaps(arrays, outs or ())
        strides: list[Any] = (
            [None] * len(self.op.returns) if outs is None else [o.strides for o in outs]
        )
        every = (*arrays, *(outs or ()))
        aligned = all(a.flags.aligned for a in every)
        form = Form(self._unusual([a.strides for a in arrays], strides), aligned, not same)
        kernel = self._kernel(form)
        key = (signature_of(every), given, aligned, same)
        entry = self._entries.get(key)
        if entry is None:
            entry = Entry(
                kernel, self.op, every, self._results, given=given, aligned=aligned, same=same
            )
            self._entries[key] = entry
        return entry

    def _kernel(self, form: Form) -> NativeKernel:
        kernel = self._kernels.get(form)
        if kernel is None:
            kernel = self._kernels[form] = specialize(self.signature, self.schedule, form)
        self._made = kernel
        return kernel

    def _unusual(self, given: Sequence[Any], results: Sequence[Any]) -> tuple[Any, ...]:
        """The strides that are not those of a dense array, by tensor."""
        found = []
        shapes = [(t.numpy.itemsize, shape) for t, shape in self.signature.types]
        shapes += [(dtype.itemsize, shape) for shape, dtype in self.signature.results]
        names = [*(p.name for p in self.op.params), *self.op.returns]
        for name, (size, shape), strides in zip(names, shapes, [*given, *results], strict=True):
            if strides is not None and 0 not in shape:
                plain = _dense(shape, size)
                kept = tuple(
                    p if n == 1 else s for n, s, p in zip(shape, strides, plain, strict=True)
                )
                if kept != plain:
                    found.append((name, kept))
        return tuple(found)

    def _check_inputs(self, arrays: Sequence[Any]) -> None:
        op = self.op
        check_count(op.name, [p.name for p in op.params], len(arrays))
        for param, array, (dtype, shape) in zip(
            op.params, arrays, self.signature.types, strict=True
        ):
            if not isinstance(array, np.ndarray) or not dtype.lies_in(array.dtype):
                came = f"an array of {array.dtype}" if hasattr(array, "dtype") else repr(array)
                raise DTypeError(f"{op.name}: {param.name} was compiled for {dtype}, {came} came")
            if array.shape != shape:
                raise ShapeError(
                    f"{op.name}: {param.name} was compiled for shape {shape}, {array.shape} came"
                )

    def _check_outs(self, outs: Sequence[Any]) -> None:
        op = self.op
        if len(outs) != len(op.returns):
            returned = counted(len(op.returns), "array")
            raise ShapeError(f"{op.name} returns {returned}, out= has {len(outs)}")
        for name, array, (shape, dtype), kind in zip(
            op.returns, outs, self._results, self.signature.returned, strict=True
        ):
            here = self._out(name)
            if not isinstance(array, np.ndarray) or not kind.lies_in(array.dtype):
                came = f"an array of {array.dtype}" if hasattr(array, "dtype") else repr(array)
                raise DTypeError(f"{here} must be an array of {dtype}, {came} came")
            if array.shape != shape:
                raise ShapeError(f"{here} must have shape {shape}, {array.shape} came")
            if not array.flags.writeable:
                raise ShapeError(f"{here} is read-only; pass a copy of it")
            if array.size and any(
                n > 1 and s == 0 for n, s in zip(shape, array.strides, strict=True)
            ):
                raise ShapeError(
                    f"{here} has stride 0, so several results would share an "
                    "element; pass an array of its own"
                )

    def _out(self, name: str) -> str:
        """The output that an error is about."""
        return f"{self.op.name}: out=" + (f" for {name}" if len(self.op.returns) > 1 else "")

    def _overlaps(
        self, arrays: Sequence[Array], outs: Sequence[Array]
    ) -> frozenset[tuple[int, int]]:
        """The pairs of a given output and an input, by number, that are the same memory and may
        be. Any other overlap is an error."""
        op, found = self.op, set()
        for n, (name, target) in enumerate(zip(op.returns, outs, strict=False)):
            for other, array in zip(op.returns[:n], outs, strict=False):
                if _overlap(array, target):
                    raise ShapeError(f"{op.name}: out= for {other} and for {name} overlap")
            for m, (param, array) in enumerate(zip(op.params, arrays, strict=True)):
                if not _overlap(array, target):
                    continue
                same = (
                    array.ctypes.data == target.ctypes.data
                    and array.strides == target.strides
                    and array.shape == target.shape
                    and array.dtype == target.dtype
                )
                if not same or not self._may_write_over(param.name, name):
                    raise ShapeError(
                        f"{self._out(name)} overlaps the input {param.name}, which would "
                        "be read after it is written; pass an array of its own"
                    )
                found.add((n, m))
        return frozenset(found)

    def _may_write_over(self, source: str, target: str) -> bool:
        key = source, target
        if key not in self._over:
            with building:
                nest = self.signature.nest(self.schedule)
            self._over[key] = may_write_over(nest, source, target)
        return self._over[key]

    # What was made

    @property
    def dense(self) -> NativeKernel:
        """The kernel for dense, aligned arrays, outputs apart from inputs. Its `run` checks none
        of that: it is for callers that own all arrays, such as the executor of plans."""
        return self._kernel(Form())

    @property
    def loop_ir(self) -> str:
        """The loop IR of the kernel used last."""
        from ..lower.ir_print import print_function

        return print_function(self._last.function)

    @property
    def llvm(self) -> str:
        """The optimised LLVM IR of the kernel used last."""
        return self._last.source.llvm

    @property
    def asm(self) -> str:
        """The assembly of the kernel used last."""
        return self._last.source.asm

    @property
    def last(self) -> NativeKernel | None:
        """The kernel used last, or else the one that was made last."""
        return self._dispatch.last or self._made

    @property
    def _last(self) -> NativeKernel:
        assert self.last is not None
        return self.last


def outputs(out: Any) -> tuple[Any, ...] | None:
    """What `out=` names, one by one; None where it is not given."""
    if out is None:
        return None
    return out if isinstance(out, tuple) else (out,)


def _dense(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides, step = [], itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _overlap(a: Array, b: Array) -> bool:
    """Do two arrays share a byte? Yes, where it would take long to tell."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=10_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
