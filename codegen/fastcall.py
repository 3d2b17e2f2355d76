"""Compiled code that CPython calls as a function of its own, which costs a tenth of a foreign call.

A method definition and an object to be its `self` make such a function (CPython's stable interface,
the same since 3.10). Where arrays have no layout that compiled code can rely on, kernels are called
by `ctypes`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from functools import cache
from typing import Any

import numpy as np

from . import jit
from .dispatch_words import API, KERNEL_WORDS
from .kept import kept_object
from .layout import Layout, layout

Array = np.ndarray[Any, Any]
Words = np.ndarray[Any, np.dtype[np.int64]]


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL = 0x0080  # METH_FASTCALL


class Code:
    """The compiled half, once a process. It stays to the end, when modules are gone too."""

    def __init__(self, layout: Layout) -> None:
        def text() -> str:
            from .dispatch_code import dispatch_module

            return dispatch_module(jit.triple(), layout)

        self.loaded = jit.Loaded(kept_object("dispatch", text, astuple(layout)))
        objects: Mapping[str, Any] = {"empty": np.empty, "none": None, "true": True}
        self.api = np.array(
            [id(objects[n]) if n in objects else _address(n) for n in API], np.int64
        )
        self.methods = {
            name: _Method(name.encode(), self.loaded.address(name), _FASTCALL, None)
            for name in ("dispatch", "invoke")
        }
        kind = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p
        )
        self._new = kind(("PyCFunction_NewEx", ctypes.pythonapi))
        ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))(self)

    def function(self, name: str, words: Words) -> Callable[..., Any]:
        """`dispatch` or `invoke` on these words, which it keeps alive."""
        found: Callable[..., Any] = self._new(ctypes.byref(self.methods[name]), words, None)
        return found


def _address(name: str) -> int | None:
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value


@cache
def code(layout: Layout) -> Code:
    """The compiled half of this process."""
    return Code(layout)


def kernel_words(
    entry: int, params: Sequence[int], sizes: Sequence[Array], release: bool
) -> Words | None:
    """A kernel as compiled code knows it, None where compiled code knows no arrays.

    `entry` is the address of its entry, `params` the positions of the arguments that it takes;
    those of `sizes` follow. With `release` it runs without the interpreter lock.
    """
    if (lay := layout()) is None:
        return None
    pairs = [(position, 0) for position in params]
    pairs += [(-1, int(size.ctypes.data)) for size in sizes]
    words = np.zeros(KERNEL_WORDS["params"] + 2 * len(pairs), np.int64)
    words[KERNEL_WORDS["api"]] = code(lay).api.ctypes.data
    words[KERNEL_WORDS["code"]] = entry
    words[KERNEL_WORDS["release"]] = release
    words[KERNEL_WORDS["count"]] = len(pairs)
    words[KERNEL_WORDS["params"] :] = np.array(pairs, np.int64).reshape(-1)
    return words


def invoker(
    address: int, params: Sequence[int], sizes: Sequence[Array], words: Words | None
) -> Callable[..., int]:
    """`invoke(pool, workspace, *arrays)` of a kernel: runs it and returns its status, checking
    nothing."""
    if words is not None and (lay := layout()) is not None:
        return code(lay).function("invoke", words)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3)
    entry = kind(address)
    tail = [int(size.ctypes.data) for size in sizes]

    def invoke(pool: int, workspace: int, *arrays: Array) -> int:
        addresses = [int(arrays[position].ctypes.data) for position in params] + tail
        return int(entry(pool, workspace, (ctypes.c_void_p * len(addresses))(*addresses)))

    return invoke
