"""How calls find their kernel: in compiled code, which CPython calls as a function of its own.

A call's arrays are compared with those that kernels were made for, by class, element type, shape,
strides, alignment and overlap, and the kernel is run, all without a step of Python. Where arrays
have no layout that compiled code can rely on (see `layout.py`), Python does the same, slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from ..algo.forked import TABLES
from ..algo.tensor_expr.op import Op
from .dispatch_words import ARRAY_SIZE, ARRAY_WORDS, ENTRY_WORDS, TABLE
from .fastcall import Words, code
from .fresh import fresh, is_large
from .layout import WRITEABLE, layout
from .native import NativeKernel

Array = np.ndarray[Any, Any]
T = TypeVar("T")
PLACES = 64
"""Entries of each kind in one dispatch; a call that fits none takes some microseconds longer."""


class Entry:
    """One kernel, and the arrays on which it may be called without further questions.

    Arrays like `arrays`, which were found to fit: inputs, then outputs if they are `given`. `same`
    holds the pairs of an output's number and an argument's that are the same memory; no output
    overlaps anything else. Called, it runs the kernel as Python can, and raises its complaints.
    """

    def __init__(
        self,
        kernel: NativeKernel,
        op: Op,
        arrays: Sequence[Array],
        results: Sequence[tuple[tuple[int, ...], np.dtype[Any]]],
        *,
        given: bool,
        aligned: bool,
        same: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        self.kernel, self.op, self.results = kernel, op, tuple(results)
        self.inputs, self.given, self.aligned, self.same = len(op.params), given, aligned, same
        self.key = signature_of(arrays)
        # An output that is an input spoils it, so such a call is not made again to hear complaints.
        self._direct = None if same and kernel.sites else kernel.words
        self._words = self._made() if layout() is not None else None

    def __call__(self, *arrays: Array) -> Any:
        """Runs the kernel: the new outputs, or True where they are given."""
        inputs, outs = arrays[: self.inputs], arrays[self.inputs :]
        if not self.given:
            for shape, dtype in self.results:
                outs = (*outs, fresh(shape, dtype, (*inputs, *outs)))
        told = inputs
        if self.same and self.kernel.sites:  # complaints are about inputs as they came
            spoilt = {m for _, m in self.same}
            told = tuple(a.copy() if m in spoilt else a for m, a in enumerate(inputs))
        status = self.kernel.run(inputs, outs)
        if status:
            raise self.kernel.error(status, self.op, told)
        if self.given:
            return True
        return outs[0] if len(outs) == 1 else outs

    def fits(self, arrays: Sequence[Array]) -> bool:
        """Are arrays of the right signature also aligned, to be written and apart?"""
        outs = arrays[self.inputs :]
        return (
            (not self.aligned or all(a.flags.aligned for a in arrays))
            and all(out.flags.writeable for out in outs)
            and all(
                out.ctypes.data == other.ctypes.data
                if (n, m) in self.same
                else not np.may_share_memory(out, other)
                for n, out in enumerate(outs)
                for m, other in enumerate(arrays[: self.inputs + n])
            )
        )

    @property
    def address(self) -> int:
        """Where compiled code finds it."""
        assert self._words is not None
        return int(self._words.ctypes.data)

    def _made(self) -> Words:
        """The entry in words; `_parts` keeps alive what they point to."""
        outs = len(self.results)
        arrays = np.zeros((len(self.key), ARRAY_SIZE), np.int64)
        parts: list[Any] = [arrays]
        for n, words in enumerate(arrays):
            kind, shape, strides, dtype = self.key[n]
            low, high = _span(shape, strides, dtype.itemsize)
            # How far apart elements are is no matter where there is no second one.
            free = [extent <= 1 or 0 in shape for extent in shape]
            extents = np.array(
                [(n, s, 0 if f else -1) for n, s, f in zip(shape, strides, free, strict=True)],
                np.int64,
            )
            parts.append(extents)
            values = {
                "type": id(kind), "dtype": id(dtype), "rank": len(shape), "low": low, "high": high,
                "align": dtype.itemsize - 1 if self.aligned else 0,
                "flags": WRITEABLE if n >= self.inputs else 0, "extents": extents.ctypes.data,
            }  # fmt: skip
            for name, at in ARRAY_WORDS.items():
                words[at] = values[name]
        same = np.zeros((outs, len(self.key)), np.int64)
        for pair in self.same:
            same[pair] = 1
        results = np.array([[id(shape), id(dtype)] for shape, dtype in self.results], np.int64)
        self._parts = [*parts, same, results]
        found, direct = np.zeros(len(ENTRY_WORDS), np.int64), self._direct
        if not self.given and any(is_large(shape, dtype) for shape, dtype in self.results):
            direct = None  # compiled code makes plain arrays
        values = {
            "object": id(self), "kernel": 0 if direct is None else direct.ctypes.data,
            "inputs": self.inputs, "outputs": outs, "given": self.given, "python": direct is None,
            "arrays": arrays.ctypes.data, "results": results.ctypes.data, "same": same.ctypes.data,
        }  # fmt: skip
        for name, at in ENTRY_WORDS.items():
            found[at] = values[name]
        return found


def signature_of(arrays: Sequence[Array]) -> tuple[Any, ...]:
    """What arrays that are called alike have in common. The class is in it: only what is an array
    has the layout on which kernels rely. Raises `AttributeError` for what is like no array."""
    return tuple([(a.__class__, a.shape, a.strides, a.dtype) for a in arrays])


def _span(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """The bytes that an array covers, counted from its first element."""
    if 0 in shape:
        return 0, 0
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + itemsize


class Dispatch(Generic[T]):
    """Entries, each with a thing of the owner's. `new(*inputs)` and `into(*inputs, *outputs)` call
    the one that fits; `call` is either.

    They return what the entry returns, and None where no entry fits or where the kernel complains;
    the owner then does what is to be done.
    """

    def __init__(self) -> None:
        self._things: dict[int, tuple[Entry, T]] = {}
        self._last = np.zeros(1, np.int64)
        self._tables: tuple[Words, ...] = ()
        if (lay := layout()) is None:
            self.new: Callable[..., Any] = partial(self._enter, False)
            self.into: Callable[..., Any] = partial(self._enter, True)
        else:
            compiled = code(lay)
            self._tables = tuple(np.zeros(TABLE["entries"] + PLACES, np.int64) for _ in range(2))
            for table in self._tables:
                table[TABLE["api"]] = compiled.api.ctypes.data
                table[TABLE["last"]] = self._last.ctypes.data
            self.new, self.into = (compiled.function("dispatch", table) for table in self._tables)

    def call(self, arrays: Sequence[Any], outs: Sequence[Any] | None, inputs: int) -> Any:
        """Calls what fits the arguments of an operator of so many `inputs`; None where nothing
        does."""
        if outs is None:
            return self.new(*arrays)
        return self.into(*arrays, *outs) if len(arrays) == inputs else None

    def admit(
        self, entry: Entry, thing: T, arrays: Sequence[Array], outs: Sequence[Array] | None
    ) -> Any:
        """Takes up an entry that was found to fit, and calls it."""
        self.add(entry, thing)
        self.used(entry)
        return entry(*arrays, *(outs or ()))

    def add(self, entry: Entry, thing: T) -> None:
        """Takes up an entry, the last one of its kind going for it where there are too many."""
        gone: list[Any] = []  # what dies does so when the lock is free again
        with TABLES:
            if id(entry) in self._things:
                return
            if self._tables:
                table, first = self._tables[entry.given], TABLE["entries"]
                count = min(int(table[TABLE["count"]]), PLACES - 1)
                old = int(table[first + count])
                table[first + count] = entry.address
                table[TABLE["count"]] = count + 1
                gone = self._forget(lambda other: other.address == old)
            elif len(self._things) >= PLACES:
                oldest = next(iter(self._things))
                gone = self._forget(lambda other: id(other) == oldest)
            self._things[id(entry)] = entry, thing
        del gone

    def _forget(self, which: Callable[[Entry], bool]) -> list[Any]:
        things = list(self._things.items())  # a signal handler may add one meanwhile
        return [self._things.pop(n, None) for n, (entry, _) in things if which(entry)]

    def used(self, entry: Entry | None) -> None:
        """The entry, or none at all, is called by other ways than this."""
        self._last[0] = 0 if entry is None else id(entry)

    @property
    def last(self) -> T | None:
        """The thing of the entry used last, None if it is not among these."""
        found = self._things.get(int(self._last[0]))
        return None if found is None else found[1]

    def _enter(self, given: bool, *arrays: Any) -> Any:
        """Without compiled code."""
        try:
            key = signature_of(arrays)
        except AttributeError:
            return None
        for entry, _ in list(self._things.values()):
            if entry.given is given and entry.key == key and entry.fits(arrays):
                self.used(entry)
                return entry(*arrays)
        return None
