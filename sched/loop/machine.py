"""What a schedule may know of a machine: widths, registers, caches, threads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU as the default schedules and the lowering see it; defaults are a generic AVX2 core.

    `vector_bytes` is the width of a vector register, `registers` how many there are; `l1`, `l2`
    and `l3` are bytes of data cache for a core (l3 shared); `threads` run at once. `grid` says
    that this is one thread of a GPU's grid, `dots` that an instruction adds four products of an
    unsigned by a signed byte to each lane of i32 (x86's VNNI).
    """

    vector_bytes: int = 32
    registers: int = 16
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 8 << 20
    threads: int = 1
    grid: bool = False
    dots: bool = False

    def lanes(self, itemsize: int) -> int:
        """Elements of `itemsize` bytes in one vector register."""
        return max(1, self.vector_bytes // itemsize)
