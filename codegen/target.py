"""What differs between the machines that the emitter serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import llvmlite.ir as ir

from ..algo.errors import InternalError
from .values import I64

if TYPE_CHECKING:
    from ..lower.ir import Buffer, Function
    from .frame import Frame

PTR = ir.PointerType()
STACK_LIMIT = 1 << 16  # bytes of one buffer on a thread's stack


class Target:
    """The host. A GPU overrides what it does otherwise.

    `fma`, `rounding` and `half` say whether llvm.fma, llvm.floor and conversions of f16 are
    instructions here (where they are not, LLVM would call a library); `avx512` whether there are
    AVX-512's instructions, on registers of all three widths; `masks` gives the bytes of the least
    elements whose masked loads and stores are instructions, 0 if none are; `dots` on how many lanes
    of i32 there is x86's dot product of four unsigned by four signed bytes, `pairs` on how many the
    sum of two products of i16, `halves` on how many of f32 the dot product of two by two bf16;
    `stack` is the alignment by which a vector on the stack lies in one cache line, 0 if that is the
    calling convention's;
    `parallel` whether parallel loops go to the thread pool, `prefetches` and `streams` whether
    cells can be brought near, and stored past the caches, `extrema` whether llvm.maximum is few
    instructions.
    """

    def __init__(
        self,
        triple: str,
        *,
        fma: bool = True,
        rounding: bool = True,
        half: bool = True,
        avx512: bool = False,
        masks: int = 1,
        dots: tuple[int, ...] = (),
        pairs: tuple[int, ...] = (),
        halves: tuple[int, ...] = (),
        stack: int = 0,
    ) -> None:
        self.triple = triple
        self.fma = fma
        self.rounding = rounding
        self.half = half
        self.avx512 = avx512
        self.masks = masks
        self.dots = dots
        self.pairs = pairs
        self.halves = halves
        self.stack = stack
        self.parallel = True
        self.prefetches = self.streams = self.extrema = True

    def pointer(self, scope: str) -> ir.PointerType:
        """The type of pointers to a buffer of that scope."""
        return PTR

    def open(self, frame: Frame, function: Function) -> None:
        """Sets the frame's pool, heap, status and parameters, from the function's arguments."""
        pool, heap, *params = frame.fn.args
        frame.pool, frame.heap = pool, heap
        frame.status = frame.stack(I64, "status")
        frame.ib.store(I64(0), frame.status)
        from .frame import Storage

        for param, pointer in zip(function.params, params, strict=True):
            frame.buffers[param.name] = Storage(param, pointer)

    def declare(self, module: ir.Module, function: Function) -> ir.Function:
        """The LLVM function.

        On the host that is `i64 name(pool, workspace, params...)`, which returns a status: 0, or
        the number of the access site whose data-dependent index was out of range.
        """
        params = [PTR, PTR, *(self.pointer(p.scope) for p in function.params)]
        fn = ir.Function(module, ir.FunctionType(I64, params), function.name)
        names = ["pool.", "workspace.", *(p.name for p in function.params)]
        for arg, name in zip(fn.args, names, strict=True):
            arg.name = name
        return fn

    def close(self, frame: Frame) -> None:
        """Returns from the function."""
        frame.ib.ret(frame.ib.load(frame.status, typ=I64))

    def report(self, frame: Frame, number: ir.Value) -> None:
        """A data-dependent index was out of range at that site; the highest site is kept.

        So it does not matter which thread reports first. Each has a cell of its own.
        """
        ib = frame.ib
        old = ib.load(frame.status, typ=I64)
        ib.store(ib.select(ib.icmp_unsigned(">", old, number), old, number), frame.status)

    def in_workspace(self, buffer: Buffer, size: int) -> bool:
        """Does a buffer of `size` bytes live in the workspace that the caller provides?"""
        return buffer.scope == "heap" or (buffer.scope == "stack" and size > STACK_LIMIT)

    def allocate(self, frame: Frame, buffer: Buffer, count: int) -> ir.Value:
        """Storage of `count` elements for a buffer that is not in the workspace."""
        if buffer.scope == "shared":
            raise InternalError(f"shared buffer {buffer.name} in code for the host")
        return frame.alloca(buffer, count)

    def axis(self, frame: Frame, kind: str) -> ir.Value:
        """The i64 position of this thread on a GPU axis such as "block.x"."""
        raise InternalError(f"GPU axis {kind} in code for the host")

    def covers(self, kind: str, extent: int | None) -> bool:
        """Are there exactly `extent` positions on that axis, so that none needs a guard?"""
        return False

    def barrier(self, frame: Frame) -> None:
        """All threads of the block meet."""
        raise InternalError("barrier in code for the host")
