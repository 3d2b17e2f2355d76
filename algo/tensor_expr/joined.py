"""What runs in program order, in loops that it has in common with what comes before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Joined(Protocol):
    """A step, a stage: something that shares its `joined` outermost loops with the one before."""

    @property
    def joined(self) -> int: ...


J = TypeVar("J", bound=Joined)


def parts(items: Sequence[J], depth: int) -> list[list[J]]:
    """Items in order, cut where one shares no more than `depth` loops with the one before."""
    out: list[list[J]] = []
    for item in items:
        if out and item.joined > depth:
            out[-1].append(item)
        else:
            out.append([item])
    return out
