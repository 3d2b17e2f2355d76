"""What a machine can do at most: rates of arithmetic and memory, and the cost of sharing work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .machine import Machine

Pairs = Mapping[str, tuple[float, float]]
"""Rates of one thread, and of all of them."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Upper bounds of rates, for one thread and for all of `threads`.

    `operations` are additions and multiplications a second, by the name of the element type (i8:
    where bytes are multiplied and added up by words);
    `bytes` are bytes read a second, by where they lie: l1, l2 or memory (whatever is behind l2).
    `region` is what a parallel region costs beyond its work, in seconds. Schedules are never
    chosen by measured figures: the same program would run differently from day to day.
    """

    threads: int
    operations: Pairs
    bytes: Pairs
    region: float

    def arithmetic(self, dtype: str, threads: int) -> float:
        """Operations a second on elements of a type; f32's rate where it is not known."""
        return self.operations.get(dtype, self.operations["f32"])[threads > 1]

    def bandwidth(self, size: int, machine: Machine, threads: int) -> float:
        """Bytes a second that threads read of data of `size` bytes that they read repeatedly."""
        share = size / threads
        level = "l1" if share <= machine.l1 else "l2" if share <= machine.l2 else "memory"
        return self.bytes[level][threads > 1]

    def floor(
        self, operations: float, moved: float, dtype: str, machine: Machine, threads: int
    ) -> float:
        """Seconds that the roofline allows at least (Williams, Waterman and Patterson, 2009)."""
        by_memory = moved / self.bandwidth(int(moved), machine, threads)
        return max(operations / self.arithmetic(dtype, threads), by_memory)

    def or_better(self, other: Peaks) -> Peaks:
        """The better figure of each, where one was measured while the machine was busy."""

        def best(mine: Pairs, others: Pairs) -> Pairs:
            return {
                name: (max(a, others[name][0]), max(b, others[name][1]))
                for name, (a, b) in mine.items()
            }

        return Peaks(
            self.threads,
            best(self.operations, other.operations),
            best(self.bytes, other.bytes),
            min(self.region, other.region),
        )

    def facts(self) -> dict[str, Any]:
        """As numbers and names that JSON can hold."""
        return {
            "threads": self.threads, "operations": dict(self.operations),
            "bytes": dict(self.bytes), "region": self.region,
        }  # fmt: skip

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Peaks:
        """The inverse of `facts`."""
        pairs = {
            kind: {name: (one, all_) for name, (one, all_) in facts[kind].items()}
            for kind in ("operations", "bytes")
        }
        return cls(facts["threads"], pairs["operations"], pairs["bytes"], facts["region"])
