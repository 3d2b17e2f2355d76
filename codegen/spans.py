"""What interval arithmetic knows of an index: the least and largest values of i64 operations."""

from __future__ import annotations

from collections.abc import Sequence

from .values import WHOLE, Span

_HALF = 1 << 31


def fits(span: Span) -> bool:
    """Is every value of the span an i32?"""
    return span[0] >= -_HALF and span[1] < _HALF


def span_of(op: str, args: Sequence[Span]) -> Span:
    """The span of an operation's results; everything where they may wrap, or are not known."""
    (a, b), (c, d) = args[0], args[-1]
    match op:
        case "add":
            low, high = a + c, b + d
        case "sub":
            low, high = a - d, b - c
        case "neg":
            low, high = -b, -a
        case "mul":
            corners = (a * c, a * d, b * c, b * d)
            low, high = min(corners), max(corners)
        case "min":
            low, high = min(a, c), min(b, d)
        case "max":
            low, high = max(a, c), max(b, d)
        case "floordiv" if c > 0:
            corners = (a // c, a // d, b // c, b // d)
            low, high = min(corners), max(corners)
        case "mod" if c > 0:
            low, high = 0, min(b, d - 1) if a >= 0 else d - 1
        case _:
            return WHOLE
    return (low, high) if WHOLE[0] <= low and high <= WHOLE[1] else WHOLE


def joined(a: Span, b: Span) -> Span:
    """The least span that holds both."""
    return min(a[0], b[0]), max(a[1], b[1])


def of_loop(low: Span, high: Span) -> Span:
    """The values of a variable that runs from one value to below another, while a body runs."""
    return low[0], max(low[0], high[1] - 1)
