"""What a schedule may know of a machine: widths, registers, caches, threads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU as the default schedules and the lowering see it; defaults are a generic AVX2 core.

    `vector_bytes` is the width of a vector register, `registers` how many there are; `l1`, `l2`
    and `l3` are bytes of data cache for a core (l3 shared); `threads` run at once. `grid` says
    that this is one thread of a GPU's grid. `dots` are the lengths of the dot products that an
    instruction adds to each lane: 4 of unsigned by signed bytes to i32 (x86's VNNI), 2 of bf16 to
    f32; `pairs` says that there are sums of two products of i16 (x86's pmaddwd), so that words are
    multiplied as a whole, bytes as i16 and bf16 as f32, where those are lacking. `matrices` says
    that there are products of matrices of both (x86's AMX).
    """

    vector_bytes: int = 32
    registers: int = 16
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 8 << 20
    threads: int = 1
    grid: bool = False
    dots: tuple[int, ...] = ()
    pairs: bool = False
    matrices: bool = False

    def adds(self, length: int) -> bool:
        """Are words of so many elements, 4 bytes or 2 of bf16, multiplied as a whole?"""
        return length in self.dots or (length in (2, 4) and self.pairs)

    def lanes(self, itemsize: int) -> int:
        """Elements of `itemsize` bytes in one vector register."""
        return max(1, self.vector_bytes // itemsize)
